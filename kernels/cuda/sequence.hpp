// Rotary positions, the KV cache's append, and latent attention's copies: arguments and launch shapes.
//   rope       element i of a head turns with i + width / 2 by the angle of its position, from a table [position][cosines | sines] in f32 that
//              fill_rope_table makes in double (angles of long contexts do not fit f32)
//   kv append  the last `width` elements of each qkv row go to the end of their sequence's list; then the counts advance
//   latent     see LatentHeads in lib/op_forward.hpp
#pragma once

#include <cmath>

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct RopeArgs {
  DType type = DType::kF32;
  RowCount rows;
  std::int64_t row_stride = 0;
  int heads = 0;
  int head_dim = 0;
  int width = 0;   // rotated elements of a head
  int offset = 0;  // first of them
  bool inverse = false;
  void* x = nullptr;  // in place
  const std::int32_t* positions = nullptr;
  const float* table = nullptr;
};

// table: positions * width floats.
inline void fill_rope_table(double base, std::int64_t width, std::int64_t positions, float* table) {
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < width / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      table[p * width + i] = static_cast<float>(std::cos(angle));
      table[p * width + width / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
}

struct KvAppendArgs {
  DType type = DType::kF32;     // of the source
  DType kv_type = DType::kF32;  // of the cache
  Ragged rows;                  // new rows of each sequence
  std::int64_t row_limit = 0;   // at most this many in all
  std::int64_t width = 0;
  std::int64_t stride = 0;      // of the source
  std::int64_t offset = 0;      // its first column that is kept
  std::int64_t room = 0;        // slots per sequence
  const void* source = nullptr;
  void* cache = nullptr;        // [sequences, room, width]
  std::int32_t* counts = nullptr;
  const std::int32_t* positions = nullptr;  // of the rows, with `kept`: where they are kept beside the cache
  std::int32_t* kept = nullptr;             // [sequences, room]
  std::int32_t* full = nullptr; // set to 1 + the sequence whose list is full, by atomic max; its rows are dropped
};

struct LatentArgs {
  DType type = DType::kF32;
  RowCount rows;
  int heads = 0, nope = 0, rope = 0, v = 0, rank = 0;
  bool absorbed = false, queries = true;
  const void* q = nullptr;       // [rows, heads, nope + rope]
  const void* latent = nullptr;  // [rows, rank + rope]
  const void* parts = nullptr;   // naive [rows, heads, nope + v]; absorbed [rows, heads, rank]
  void* y = nullptr;
  // Backward: y is read, these are written.
  void* dq = nullptr;
  void* dlatent = nullptr;
  void* dparts = nullptr;
};

inline constexpr int kSequenceThreads = 256;

inline int rope_vector(const RopeArgs& a) {
  const std::int64_t step = a.row_stride | a.head_dim | a.offset | (a.width / 2);
  return vector_width(a.type, step, a.x, a.table);
}
inline LaunchShape rope_launch(const RopeArgs& a) { return {ceil_div(a.rows.limit, kSequenceThreads / 32), 1, 1, kSequenceThreads, 0}; }
inline LaunchShape kv_append_launch(const KvAppendArgs& a) { return {ceil_div(a.row_limit, kSequenceThreads / 32), 1, 1, kSequenceThreads, 0}; }
inline LaunchShape kv_count_launch(const KvAppendArgs& a) { return {ceil_div(a.rows.sequences, kSequenceThreads), 1, 1, kSequenceThreads, 0}; }
inline std::int64_t latent_row_width(const LatentArgs& a) {
  return a.absorbed ? std::int64_t{a.heads} * (a.rank + a.rope) : std::int64_t{a.heads} * ((a.queries ? 2 : 1) * (a.nope + a.rope) + a.v);
}
inline LaunchShape latent_launch(const LatentArgs& a) { return {a.rows.limit, 1, 1, kSequenceThreads, 0}; }

}  // namespace fathom::cuda
