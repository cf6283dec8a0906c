// Moving rows in and out of a routed block (arXiv 2404.02258, 3.4): arguments and launch shapes.
//   gather           y[r] = x[indices[r]]
//   scatter          y = x; y[indices[r]] += g(score) f[r]  (replace: = g f). In place only the selected rows are touched; out of place
//                    every row of y is written once, by the inverse index (row -> r or -1). No atomics either way.
//   scatter backward df[r] = g dy[i]; dscore[i] (+)= g' <dy[i], f[r]>, i = indices[r]; replace: dy[i] = 0 afterwards
//   gather backward  dx[indices[r]] += dy[r]: a scatter without a gate
// Indices are unique.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "lib/op_forward.hpp"

namespace fathom::cuda {

struct GatherArgs {
  DType type = DType::kF32;
  RowCount rows;
  std::int64_t width = 0;
  const void* x = nullptr;
  const std::int32_t* indices = nullptr;
  void* y = nullptr;
};

struct ScatterArgs {
  DType type = DType::kF32;
  RowCount rows;                          // selected
  std::int64_t all_rows = 0;              // of x and y
  std::int64_t width = 0;
  Gate gate{GateKind::kNone};
  bool replace = false;
  const void* x = nullptr;                // may be y (then in place)
  const void* f = nullptr;
  const std::int32_t* indices = nullptr;
  const std::int32_t* inverse = nullptr;  // [all_rows], needed out of place
  const float* scores = nullptr;          // [all_rows]
  void* y = nullptr;
};

struct ScatterBackwardArgs {
  DType type = DType::kF32;
  RowCount rows;
  std::int64_t width = 0;
  Gate gate{GateKind::kNone};
  bool replace = false;
  bool accumulate = false;                // dscores
  void* dy = nullptr;                     // read; rows are cleared where `replace`
  const void* f = nullptr;
  const std::int32_t* indices = nullptr;
  const float* scores = nullptr;
  void* df = nullptr;                     // may be f
  float* dscores = nullptr;               // null with no gate
};

inline constexpr int kRowThreads = 256;  // a warp per row
inline constexpr int kRowPacks = 4;      // of a lane, in flight together

inline int gather_vector(const GatherArgs& a) { return vector_width(a.type, a.width, a.x, a.y); }
inline int scatter_vector(const ScatterArgs& a) { return vector_width(a.type, a.width, a.x, a.f, a.y); }
inline int scatter_vector(const ScatterBackwardArgs& a) { return vector_width(a.type, a.width, a.dy, a.f, a.df); }

inline LaunchShape gather_launch(const GatherArgs& a) { return {ceil_div(a.rows.limit, kRowThreads / 32), 1, 1, kRowThreads, 0}; }
inline LaunchShape scatter_launch(const ScatterArgs& a) {
  return {ceil_div(a.x == a.y ? a.rows.limit : a.all_rows, kRowThreads / 32), 1, 1, kRowThreads, 0};
}
inline LaunchShape scatter_backward_launch(const ScatterBackwardArgs& a) { return {ceil_div(a.rows.limit, kRowThreads / 32), 1, 1, kRowThreads, 0}; }

}  // namespace fathom::cuda
