// RMSNorm and LayerNorm, forward (a gather fused in) and backward: arguments and launch shapes.
//   y = (x - mean) * inverse * gain + bias; RMSNorm has mean 0 and no bias; inverse = 1 / sqrt(mean((x - mean)^2) + epsilon)
//   dx (+)= inverse * (u - mean(u) - h * mean(u h)), h = (x - mean) * inverse, u = dy * gain; RMSNorm has no mean(u)
//   dgain (+)= sum over rows of dy h, dbias (+)= sum of dy: each block sums its rows in order, a second kernel sums the blocks in order.
// A row has `groups` norms of `width` columns that start at column `offset` of rows of `stride` elements (query and key norms).
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct NormArgs {
  DType type = DType::kF32;
  RowCount rows;
  std::int64_t declared_rows = 0;  // LayerNorm: where the inverses begin in stats
  std::int64_t width = 0;
  std::int64_t groups = 1;
  std::int64_t gains = 1;          // rows of the gain: 0, 1 (the same for all groups) or groups
  std::int64_t stride = 0;         // elements from one row of x and y to the next
  std::int64_t offset = 0;
  float epsilon = 1e-5f;
  bool centred = false;            // LayerNorm
  const void* x = nullptr;
  const std::int32_t* indices = nullptr;  // row r reads x[indices[r]]; null: x[r]
  const void* gain = nullptr;      // null: 1
  const void* bias = nullptr;      // null: 0
  void* y = nullptr;               // may be x where there are no indices
  float* stats = nullptr;          // RMSNorm [rows * groups] inverses; LayerNorm means, then inverses; null: not kept
  void* copy = nullptr;            // the columns as they were, [rows, groups * width]; null: not kept
};

struct NormBackwardArgs {
  DType type = DType::kF32;
  DType grad_type = DType::kF32;   // of dgain and dbias
  RowCount rows;
  std::int64_t declared_rows = 0;
  std::int64_t width = 0;
  std::int64_t groups = 1;
  std::int64_t gains = 1;
  std::int64_t stride = 0;         // of dy and dx
  std::int64_t offset = 0;
  std::int64_t x_stride = 0;       // of x (its columns start at x_offset)
  std::int64_t x_offset = 0;
  bool centred = false;
  bool accumulate = false;         // dx
  bool accumulate_weights = false;
  const void* x = nullptr;
  const void* gain = nullptr;
  const float* stats = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;              // may be dy
  void* dgain = nullptr;           // [gains, width]; null: not wanted
  void* dbias = nullptr;
  float* partials = nullptr;       // norm_partial_floats
};

inline constexpr int kNormThreads = 256;
inline constexpr std::int64_t kNormBackwardBlocks = 264;  // two per multiprocessor of the largest chips
inline constexpr int kNormPacks = 4;                      // packs per thread that the backward pass keeps sums of

inline int norm_vector(const NormArgs& a) {
  const std::int64_t step = a.width | a.stride | a.offset;
  return vector_width(a.type, step, a.x, a.gain, a.bias, a.y) > 1 ? vector_width(a.type, step, a.copy) : 1;
}
inline int norm_vector(const NormBackwardArgs& a) {
  const std::int64_t step = a.width | a.stride | a.offset | a.x_stride | a.x_offset;
  return vector_width(a.type, step, a.x, a.gain, a.dy, a.dx);
}
// A warp per norm for narrow ones, a block for wide ones.
inline bool norm_by_warp(std::int64_t width, int vector) { return width <= 32 * kNormPacks * vector; }

inline LaunchShape norm_launch(const NormArgs& a) {
  const std::int64_t norms = a.rows.limit * a.groups;
  if (norm_by_warp(a.width, norm_vector(a))) return {ceil_div(norms, kNormThreads / 32), 1, 1, kNormThreads, 0};
  return {norms, 1, 1, kNormThreads, kNormThreads / 32 * 4};
}

// Widest norm of the backward kernel (8192 for aligned rows).
inline std::int64_t norm_backward_limit(const NormBackwardArgs& a) { return std::int64_t{kNormThreads} * kNormPacks * norm_vector(a); }
inline LaunchShape norm_backward_launch(const NormBackwardArgs& a) {
  const std::int64_t norms = a.rows.limit * (a.gains > 1 ? 1 : a.groups);
  const bool warp = norm_by_warp(a.width, norm_vector(a));
  const std::int64_t blocks = ceil_div(norms, warp ? kNormThreads / 32 : 1);
  const std::int64_t most = a.gains > 1 ? ceil_div(kNormBackwardBlocks, a.groups) : kNormBackwardBlocks;
  const std::int64_t shared = kNormThreads / 32 * 2 * 4 + (warp && (a.dgain || a.dbias) ? kNormThreads / 32 * a.width * 4 : 0);
  // Without rows the weight gradients are still cleared: one block writes zeros.
  return {blocks < 1 ? 1 : blocks < most ? blocks : most, a.gains > 1 ? a.groups : 1, 1, kNormThreads, shared};
}
// [dgain, dbias][gain row][block][width]
inline std::int64_t norm_partial_floats(const NormBackwardArgs& a) {
  const LaunchShape shape = norm_backward_launch(a);
  return 2 * shape.grid_x * shape.grid_y * a.width;
}

}  // namespace fathom::cuda
