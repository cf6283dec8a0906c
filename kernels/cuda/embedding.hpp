// Token embedding and its deterministic gradient: arguments and launch shapes.
//   forward   x[r] = table[tokens[r]] (+ position_table[positions[r]])
//   backward  table[id] (+)= sum of dx[r] over the rows r with that id, in row order. The rows are sorted by id first (stable radix sort,
//             8 bits a pass); then a warp per (first row of an id, strip of columns) adds that id's rows.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct EmbeddingArgs {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const std::int32_t* tokens = nullptr;
  const void* table = nullptr;
  const std::int32_t* positions = nullptr;  // null: no position table
  const void* position_table = nullptr;
  void* x = nullptr;
};

struct EmbeddingBackwardArgs {
  DType type = DType::kF32;       // of dx
  DType grad_type = DType::kF32;  // of the table's gradient
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t table_rows = 0;    // ids are 0 .. table_rows - 1
  bool accumulate = false;        // else the table's gradient is cleared first
  const std::int32_t* ids = nullptr;
  const void* dx = nullptr;
  void* dtable = nullptr;         // [table_rows, width]
  std::int32_t* scratch = nullptr;  // embedding_scratch_ints
  // Set by the launcher for each pass of the sort.
  const std::int32_t* keys_in = nullptr;
  const std::int32_t* values_in = nullptr;  // null: 0, 1, 2, ...
  std::int32_t* keys_out = nullptr;
  std::int32_t* values_out = nullptr;
  std::int32_t* bins = nullptr;
  int shift = 0;
};

inline constexpr int kEmbeddingThreads = 256;
inline constexpr std::int64_t kSortRounds = 8;
inline constexpr std::int64_t kSortItems = kEmbeddingThreads * kSortRounds;  // per block
inline constexpr int kSortDigits = 256;

inline int embedding_vector(const EmbeddingArgs& a) { return vector_width(a.type, a.width, a.x, a.table, a.position_table); }
inline int embedding_vector(const EmbeddingBackwardArgs& a) { return vector_width(a.type, a.width, a.dx); }
inline LaunchShape embedding_launch(const EmbeddingArgs& a) { return {ceil_div(a.rows, kEmbeddingThreads / 32), 1, 1, kEmbeddingThreads, 0}; }

inline std::int64_t sort_blocks(const EmbeddingBackwardArgs& a) { return ceil_div(a.rows, kSortItems); }
inline std::int64_t embedding_scratch_ints(const EmbeddingBackwardArgs& a) { return 4 * a.rows + kSortDigits * sort_blocks(a); }
inline LaunchShape sort_histogram_launch(const EmbeddingBackwardArgs& a) { return {sort_blocks(a), 1, 1, kEmbeddingThreads, kSortDigits * 4}; }
inline LaunchShape sort_scan_launch(const EmbeddingBackwardArgs&) { return {1, 1, 1, kEmbeddingThreads, kEmbeddingThreads / 32 * 4}; }
// Running place per digit, and per warp and digit the count of the round.
inline LaunchShape sort_scatter_launch(const EmbeddingBackwardArgs& a) {
  return {sort_blocks(a), 1, 1, kEmbeddingThreads, kSortDigits * 4 * (1 + kEmbeddingThreads / 32)};
}
inline LaunchShape embedding_clear_launch(const EmbeddingBackwardArgs& a) {
  return {ceil_div(a.table_rows * a.width, std::int64_t{kEmbeddingThreads} * 16), 1, 1, kEmbeddingThreads, 0};
}
inline LaunchShape embedding_backward_launch(const EmbeddingBackwardArgs& a) {
  return {ceil_div(a.rows, kEmbeddingThreads / 32), ceil_div(a.width, 32 * embedding_vector(a)), 1, kEmbeddingThreads, 0};
}

}  // namespace fathom::cuda
