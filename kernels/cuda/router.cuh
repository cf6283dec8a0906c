// Device code of kernels/cuda/router.hpp.
#pragma once

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/router.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

template <class T, int V>
FATHOM_KERNEL(kRouterThreads) router_score_kernel(RouterScoreArgs a) {
  constexpr int kPacks = 4;  // in flight
  const std::int64_t row = dev::bid() * (kRouterThreads / 32) + dev::warp();
  const bool live = row < a.rows;
  const T* x = static_cast<const T*>(a.x) + row * a.width;
  const T* w = static_cast<const T*>(a.w);
  float sum = 0.0f;
  for (std::int64_t first = dev::lane() * V; first < (live ? a.width : 0); first += 32 * kPacks * V) {
    float v[kPacks][V];
    FATHOM_UNROLL
    for (int p = 0; p < kPacks; ++p)
      if (first + p * 32 * V < a.width) dev::load<V>(x + first + p * 32 * V, v[p]);
    FATHOM_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      if (first + p * 32 * V >= a.width) continue;
      float u[V];
      dev::load<V>(w + first + p * 32 * V, u);
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i) sum += v[p][i] * u[i];
    }
  }
  sum = dev::warp_sum(sum);
  if (!live || dev::lane() != 0) return;
  if (a.bias) sum += a.bias_type == DType::kBF16 ? dev::load(static_cast<const bf16*>(a.bias)) : *static_cast<const float*>(a.bias);
  a.scores[row] = sum;
}

template <int kOnce = 0>
FATHOM_KERNEL(kRouterThreads) router_loss_kernel(RouterLossArgs a) {
  float sum = 0.0f;
  for (std::int64_t i = dev::bid() * kRouterThreads + dev::tid(); i < a.rows; i += dev::grid_x() * kRouterThreads) {
    const float r = a.scores[i], z = a.inverse[i] >= 0 ? 1.0f : 0.0f;
    sum += (r > 0.0f ? r : 0.0f) - r * z + dev::flog1p(dev::fexp(-dev::fabsf_(r)));
    a.dscores[i] = a.weight * (logistic(r) - z);
  }
  sum = dev::block_sum(sum, dev::smem<float>());
  if (dev::tid() == 0) a.partials[dev::bid()] = sum;
}

template <class T, int V>
FATHOM_KERNEL(kRouterThreads) router_backward_kernel(RouterBackwardArgs a) {
  const std::int64_t c = (dev::bid() * kRouterThreads + dev::tid()) * V;
  const bool in = c < a.width;
  float dw[V] = {}, w[V] = {}, db = 0.0f;
  if (in && !a.no_input) dev::load<V>(static_cast<const T*>(a.w) + c, w);
  for (std::int64_t row = dev::bid_y(); row < a.rows; row += dev::grid_y()) {
    const std::int64_t at = a.inverse ? a.inverse[row] : -1;
    const float d = a.dscores[row];
    if (a.dw && (a.all_weight_rows || at >= 0)) {
      db += d;
      if (in) {
        float x[V];
        dev::load<V>(at >= 0 && a.gathered ? static_cast<const T*>(a.gathered) + at * a.width + c : static_cast<const T*>(a.y) + row * a.width + c, x);
        FATHOM_UNROLL
        for (int i = 0; i < V; ++i) dw[i] += d * x[i];
      }
    }
    if (!in || a.no_input || !(a.all_input_rows || at >= 0)) continue;
    const float detached = a.detached_weight > 0.0f ? a.detached_weight * (logistic(a.scores[row]) - 1.0f) : 0.0f;
    T* dx = static_cast<T*>(a.dx) + row * a.width + c;
    float v[V] = {};
    if (!a.overwrite_input) dev::load<V>(dx, v);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) v[i] += (d - detached) * w[i];
    dev::store<V>(dx, v);
  }
  if (!a.dw) return;
  float* to = a.partials + dev::bid_y() * a.width + c;
  FATHOM_UNROLL
  for (int i = 0; i < V; ++i)
    if (in) to[i] = dw[i];
  if (c == 0) a.partials[dev::grid_y() * a.width + dev::bid_y()] = db;
}

inline void router_score(const RouterScoreArgs& a, simt::Stream stream) {
  with_elements(a.type, router_vector(a), [&]<class T, int V>() { simt::launch(router_score_kernel<T, V>, router_score_launch(a), a, stream); });
}

inline void router_loss(const RouterLossArgs& a, simt::Stream stream) {
  const LaunchShape shape = router_loss_launch(a);
  simt::launch(router_loss_kernel<>, shape, a, stream);
  ColumnSumArgs sum;
  sum.parts = shape.grid_x, sum.width = 1, sum.scale = a.weight, sum.partials = a.partials, sum.out = a.loss;
  column_sum(sum, stream);
}

inline void router_backward(const RouterBackwardArgs& a, simt::Stream stream) {
  const LaunchShape shape = router_backward_launch(a);
  with_elements(a.type, router_vector(a), [&]<class T, int V>() { simt::launch(router_backward_kernel<T, V>, shape, a, stream); });
  if (!a.dw) return;
  ColumnSumArgs sum;
  sum.type = a.grad_type, sum.parts = shape.grid_y, sum.width = a.width, sum.accumulate = a.accumulate;
  sum.partials = a.partials, sum.out = a.dw;
  column_sum(sum, stream);
  sum.width = 1, sum.partials = a.partials + shape.grid_y * a.width, sum.out = a.db;
  if (a.db) column_sum(sum, stream);
}

}  // namespace fathom::cuda
