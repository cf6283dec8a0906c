// Attention over selected rows, forward and backward, and over KV caches: arguments, launch shapes, and which kernel runs.
//
// Every mask is one contiguous range of keys per query. Rows stand in ascending original position within their sequence, so causal, window and chunk masks
// (lists of visible keys) become begin[row] <= key < end[row], found once by attention_ranges (binary search on positions); the kernels know nothing else of masks.
// Both bounds never fall from one row to the next, so a tile of queries visits one run of key tiles, and a tile of keys one run of queries.
//
// Kernels: bf16 with head sizes up to 128 (multiples of 8) on tensor cores (attention_mma.cuh), one query per sequence on tensor cores with the heads
// of a group as rows (attention_decode.cuh), everything else on plain cores in f32 (attention_simt.cuh). Backward is two kernels, one per keys and one per
// queries, with 7 products instead of 5 but without atomics: the same bits every time.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "lib/op_forward.hpp"

namespace fathom::cuda {

struct AttentionRangeArgs {
  Mask mask;
  Ragged queries;
  std::int64_t row_limit = 0;                   // queries of all sequences, at most
  const std::int32_t* positions = nullptr;      // of the query rows
  Ragged keys;                                  // without a cache
  const std::int32_t* key_positions = nullptr;  // of the key rows
  const std::int32_t* counts = nullptr;         // cached keys per sequence, new rows included; null: no cache
  const std::int32_t* kept = nullptr;           // [sequences, keys.each] positions of the cached keys, where a list has gaps; null: slots are positions
  bool all_keys = false;                        // cached: every token left a key and only some query, so a query's slot is its position
  std::int32_t* begin = nullptr;                // [row_limit], relative to the sequence's first key
  std::int32_t* end = nullptr;
};

struct AttentionArgs {
  DType type = DType::kF32;
  Ragged queries;
  std::int64_t row_limit = 0;        // queries of all sequences, at most
  std::int64_t rows_per_sequence = 0;  // of one sequence, at most
  std::int64_t keys_per_sequence = 0;  // at most: splits and key tiles are made for it
  Ragged keys;                       // first key row of each sequence (a cache: each = room)
  int heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
  float scale = 1.0f;                // of the scores, 1 / sqrt(head size)
  const void* q = nullptr;           // row r, head h at q + r * q_stride + h * qk_dim
  const void* k = nullptr;           // row r, head h at k + r * kv_stride + h * qk_dim
  const void* v = nullptr;           // row r, head h at v + r * kv_stride + h * v_head_stride
  std::int64_t q_stride = 0, kv_stride = 0, v_head_stride = 0;
  const std::int32_t* begin = nullptr;
  const std::int32_t* end = nullptr;
  const void* sinks = nullptr;       // [heads]; null: none
  DType sink_type = DType::kF32;
  void* o = nullptr;                 // row r, head h at o + r * o_stride + h * v_dim
  std::int64_t o_stride = 0;
  float* lse = nullptr;              // [rows, heads], natural logarithm; forward: may be null
  int splits = 1;                    // of the keys; > 1 needs partials
  float* partial_o = nullptr;        // [splits, rows, heads, v_dim]
  float* partial_lse = nullptr;      // [splits, rows, heads]
};

struct AttentionBackwardArgs {
  AttentionArgs forward;             // o, lse and ranges as the forward pass left them
  const void* d_o = nullptr;         // strides as o
  float* delta = nullptr;            // scratch [rows, heads]: <dO, O>
  void* dq = nullptr;                // strides as q, k, v; every row is written
  void* dk = nullptr;
  void* dv = nullptr;
  void* dsinks = nullptr;            // [heads] of sink_type; null: none
  bool accumulate_sinks = false;
};

enum class AttentionKernel : std::uint8_t { kSimt, kTensor, kDecode };

inline bool attention_tensor_ready(const AttentionArgs& a) {
  const std::int64_t steps = a.qk_dim | a.v_dim | a.q_stride | a.kv_stride | a.v_head_stride | a.o_stride;
  return a.type == DType::kBF16 && a.qk_dim <= 128 && a.v_dim <= 128 && vector_width(a.type, steps, a.q, a.k, a.v, a.o) > 1;
}
inline AttentionKernel attention_kernel_for(const AttentionArgs& a) {
  if (!attention_tensor_ready(a)) return AttentionKernel::kSimt;
  return a.rows_per_sequence <= 1 && a.heads / a.kv_heads <= 16 ? AttentionKernel::kDecode : AttentionKernel::kTensor;
}
// The head size that a tensor kernel is compiled for.
inline int attention_tile_dim(const AttentionArgs& a) { return a.qk_dim <= 64 && a.v_dim <= 64 ? 64 : 128; }

inline constexpr int kTensorThreads = 128;   // 4 warps
template <int kDim>
inline constexpr int kTensorKeys = kDim <= 64 ? 64 : 32;  // keys per tile, forward: scores of 64 beside outputs of 128 columns take too many registers
inline int tensor_keys(int dim) { return dim <= 64 ? kTensorKeys<64> : kTensorKeys<128>; }
inline constexpr int kTensorPad = 8;         // elements behind each row of a tile: matrix loads without bank conflicts
inline constexpr int kTensorRows = 128;          // queries per block, forward
inline constexpr int kTensorBackwardRows = 64;   // queries (or keys) per block, backward
template <int kDim>
inline constexpr int kTensorOther = kDim <= 64 ? 64 : 32;  // rows of the other side per tile
inline int tensor_other(int dim) { return dim <= 64 ? kTensorOther<64> : kTensorOther<128>; }

inline LaunchShape attention_tensor_launch(const AttentionArgs& a) {
  const int dim = attention_tile_dim(a), line = (dim + kTensorPad) * 2;
  return {ceil_div(a.rows_per_sequence, kTensorRows), a.heads, a.queries.sequences, kTensorThreads,
          std::int64_t{kTensorRows + 4 * tensor_keys(dim)} * line + 2 * kTensorRows * 4};
}
// Own rows (two tensors), two stages of the other side (two tensors), and its log-sum-exp and delta.
inline std::int64_t attention_backward_shared(int dim) {
  return std::int64_t{2 * kTensorBackwardRows + 4 * tensor_other(dim)} * (dim + kTensorPad) * 2 + 4 * tensor_other(dim) * 4;
}
inline LaunchShape attention_dq_tensor_launch(const AttentionArgs& a) {
  return {ceil_div(a.rows_per_sequence, kTensorBackwardRows), a.heads, a.queries.sequences, kTensorThreads, attention_backward_shared(attention_tile_dim(a))};
}
inline LaunchShape attention_dkv_tensor_launch(const AttentionArgs& a) {
  return {ceil_div(a.keys_per_sequence, kTensorBackwardRows), a.kv_heads, a.queries.sequences, kTensorThreads, attention_backward_shared(attention_tile_dim(a))};
}

inline constexpr int kSimtThreads = 128;  // a warp per (query, head) or (key, head)
inline LaunchShape attention_simt_launch(const AttentionArgs& a) {
  return {ceil_div(a.row_limit, kSimtThreads / 32), a.heads, a.splits, kSimtThreads, std::int64_t{kSimtThreads / 32} * (a.qk_dim + a.v_dim) * 4};
}
inline LaunchShape attention_dkv_simt_launch(const AttentionArgs& a) {
  return {ceil_div(a.keys_per_sequence, kSimtThreads / 32), a.kv_heads, a.queries.sequences, kSimtThreads, std::int64_t{kSimtThreads / 32} * (a.qk_dim + a.v_dim) * 4};
}

inline constexpr int kDecodeThreads = 128;
inline constexpr int kDecodeKeys = 16;  // per warp and stage
inline LaunchShape attention_decode_launch(const AttentionArgs& a) {
  const std::int64_t dim = attention_tile_dim(a), line = (dim + kTensorPad) * 2;
  const std::int64_t tiles = kDecodeThreads / 32 * 2 * 2 * kDecodeKeys * line;      // warps x stages x (K, V)
  const std::int64_t merge = kDecodeThreads / 32 * 16 * (dim + 2) * 4;
  return {a.splits, a.kv_heads, a.row_limit, kDecodeThreads, 16 * line + (tiles > merge ? tiles : merge)};
}
inline LaunchShape attention_merge_launch(const AttentionArgs& a) { return {ceil_div(a.row_limit * a.heads, kSimtThreads / 32), 1, 1, kSimtThreads, 0}; }
inline LaunchShape attention_delta_launch(const AttentionArgs& a) { return {ceil_div(a.row_limit * a.heads, kSimtThreads / 32), 1, 1, kSimtThreads, 0}; }
inline LaunchShape attention_sinks_launch(const AttentionArgs& a) { return {a.heads, 1, 1, kSimtThreads, kSimtThreads / 32 * 4}; }
inline LaunchShape attention_ranges_launch(const AttentionRangeArgs& a) { return {ceil_div(a.row_limit, kSimtThreads), 1, 1, kSimtThreads, 0}; }

// Splits of the keys for one query per sequence, so that all multiprocessors have work: 1 where batch and heads fill them, else the smallest count
// whose waves are at least 85 % as full as the best, at most one split per key block of 256 (head size 64), 128 (128) keys.
inline int attention_splits(std::int64_t blocks, std::int64_t keys, int dim, int multiprocessors) {
  if (blocks <= 0 || 10 * blocks >= 8 * 2 * std::int64_t{multiprocessors}) return 1;
  const std::int64_t key_blocks = ceil_div(keys, dim <= 64 ? 256 : 128);
  std::int64_t most = key_blocks < multiprocessors ? key_blocks : multiprocessors;
  if (most > 128) most = 128;
  const auto fullness = [&](std::int64_t splits) {
    const double waves = static_cast<double>(blocks * splits) / (2.0 * multiprocessors);
    return waves / static_cast<double>(ceil_div(blocks * splits, 2 * std::int64_t{multiprocessors}));
  };
  double best = 0;
  for (std::int64_t s = 1; s <= most; ++s) best = fullness(s) > best ? fullness(s) : best;
  for (std::int64_t s = 1; s <= most; ++s) {
    const bool same_blocks = s > 1 && ceil_div(key_blocks, s) == ceil_div(key_blocks, s - 1);
    if (!same_blocks && fullness(s) >= 0.85 * best) return static_cast<int>(s);
  }
  return 1;
}

}  // namespace fathom::cuda
