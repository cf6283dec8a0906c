// The router of a routed block: scores, auxiliary loss and gradients (arXiv 2404.02258, section 3). Arguments and launch shapes.
//   scores    r_i = <x_i, w> (+ b), f32, one warp per row: the summation order depends on the width alone
//   loss      lambda / n sum of BCE(sigma(r), selected), dr_i = lambda / n (sigma(r_i) - z_i)
//   backward  dw (+)= sum dr_i x_i and db (+)= sum dr_i over the weight rows; dx_i += (dr_i - detached) w over the input rows. Rows that were not
//             selected are read from the block's output y, selected ones from their gathered copy, by the inverse index.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct RouterScoreArgs {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;  // of `bias_type`; null: none
  DType bias_type = DType::kF32;
  float* scores = nullptr;
};

struct RouterLossArgs {
  std::int64_t rows = 0;
  float weight = 0.0f;                    // lambda / rows
  const float* scores = nullptr;
  const std::int32_t* inverse = nullptr;  // >= 0: selected
  float* dscores = nullptr;
  float* partials = nullptr;              // router_loss_launch(a).grid_x floats
  float* loss = nullptr;
};

struct RouterBackwardArgs {
  DType type = DType::kF32;
  DType grad_type = DType::kF32;          // of dw and db
  std::int64_t rows = 0;
  std::int64_t width = 0;
  bool all_weight_rows = false;           // else the selected ones
  bool all_input_rows = false;
  bool no_input = false;                  // dx is not wanted
  bool overwrite_input = false;           // plain routers: dx = instead of dx +=
  bool accumulate = false;                // dw, db
  float detached_weight = 0.0f;           // lambda / rows of a detached auxiliary loss; 0: none
  const void* y = nullptr;                // plain routers: x
  const void* gathered = nullptr;         // null: all rows from y
  const std::int32_t* inverse = nullptr;  // null: no row is selected, every row counts
  const void* w = nullptr;
  const float* dscores = nullptr;
  const float* scores = nullptr;
  void* dw = nullptr;                     // null: frozen
  void* db = nullptr;
  void* dx = nullptr;
  float* partials = nullptr;              // router_partial_floats
};

inline constexpr int kRouterThreads = 256;
inline constexpr std::int64_t kRouterBlocks = 264;

inline int router_vector(const RouterScoreArgs& a) { return vector_width(a.type, a.width, a.x, a.w); }
inline int router_vector(const RouterBackwardArgs& a) { return vector_width(a.type, a.width, a.y, a.gathered, a.w, a.dx); }
inline LaunchShape router_score_launch(const RouterScoreArgs& a) { return {ceil_div(a.rows, kRouterThreads / 32), 1, 1, kRouterThreads, 0}; }
inline LaunchShape router_loss_launch(const RouterLossArgs& a) {
  const std::int64_t blocks = ceil_div(a.rows, kRouterThreads);
  return {blocks < 1 ? 1 : blocks < kRouterBlocks ? blocks : kRouterBlocks, 1, 1, kRouterThreads, kRouterThreads / 32 * 4};
}
// x: column strips of 256 packs; y: groups of rows.
inline LaunchShape router_backward_launch(const RouterBackwardArgs& a) {
  const std::int64_t strips = ceil_div(a.width, std::int64_t{kRouterThreads} * router_vector(a));
  const std::int64_t rows = ceil_div(a.rows, 16), most = ceil_div(kRouterBlocks, strips);
  return {strips, rows < 1 ? 1 : rows < most ? rows : most, 1, kRouterThreads, 0};
}
// Partial dw per group of rows, then partial db.
inline std::int64_t router_partial_floats(const RouterBackwardArgs& a) { return router_backward_launch(a).grid_y * (a.width + 1); }

}  // namespace fathom::cuda
