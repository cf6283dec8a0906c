// Device code of kernels/cuda/norm.hpp.
#pragma once

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

// Sum over the threads that share a norm: a warp or the block.
template <bool kWarp>
FATHOM_DEV float norm_sum(float v, float* scratch) {
  if constexpr (kWarp) return dev::warp_sum(v);
  return dev::block_sum(v, scratch);
}

// Packs of a row stay in registers up to kNormPacks per thread; wider rows read the rest again (from the caches).
template <class T, int V, bool kWarp>
FATHOM_KERNEL(kNormThreads) norm_kernel(NormArgs a) {
  constexpr int kThreads = kWarp ? 32 : kNormThreads;
  float* scratch = dev::smem<float>();
  const int t = dev::tid() % kThreads;
  const std::int64_t item = kWarp ? dev::bid() * (kNormThreads / 32) + dev::warp() : dev::bid();
  const std::int64_t row = item / a.groups, group = item % a.groups;
  const bool live = row < rows_of(a.rows);
  const std::int64_t from = live && a.indices ? a.indices[row] : row;
  const T* x = static_cast<const T*>(a.x) + from * a.stride + a.offset + group * a.width;
  T* y = static_cast<T*>(a.y) + row * a.stride + a.offset + group * a.width;
  const T* gain = static_cast<const T*>(a.gain) + (a.gains > 1 ? group * a.width : 0);
  const T* bias = static_cast<const T*>(a.bias);
  const std::int64_t width = live ? a.width : 0;

  float kept[kNormPacks][V];
  float sum = 0.0f;
  FATHOM_UNROLL
  for (int p = 0; p < kNormPacks; ++p) {
    const std::int64_t c = (static_cast<std::int64_t>(p) * kThreads + t) * V;
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) kept[p][i] = 0.0f;
    if (c < width) dev::load<V>(x + c, kept[p]);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) sum += a.centred ? kept[p][i] : kept[p][i] * kept[p][i];
  }
  for (std::int64_t c = (static_cast<std::int64_t>(kNormPacks) * kThreads + t) * V; c < width; c += kThreads * V) {
    float v[V];
    dev::load<V>(x + c, v);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) sum += a.centred ? v[i] : v[i] * v[i];
  }
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  float mean = 0.0f;
  float squares = norm_sum<kWarp>(sum, scratch);
  if (a.centred) {
    mean = squares * inverse_width;
    sum = 0.0f;
    FATHOM_UNROLL
    for (int p = 0; p < kNormPacks; ++p) {
      const bool in = (static_cast<std::int64_t>(p) * kThreads + t) * V < width;
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i) sum += in ? (kept[p][i] - mean) * (kept[p][i] - mean) : 0.0f;
    }
    for (std::int64_t c = (static_cast<std::int64_t>(kNormPacks) * kThreads + t) * V; c < width; c += kThreads * V) {
      float v[V];
      dev::load<V>(x + c, v);
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i) sum += (v[i] - mean) * (v[i] - mean);
    }
    squares = norm_sum<kWarp>(sum, scratch);
  }
  const float inverse = dev::frsqrt(squares * inverse_width + a.epsilon);
  if (live && t == 0 && a.stats) {
    if (a.centred) a.stats[row] = mean;
    a.stats[a.centred ? a.declared_rows + row : item] = inverse;
  }
  const auto write = [&](std::int64_t c, const float(&v)[V]) {
    float g[V], b[V], out[V];
    if (a.gain) dev::load<V>(gain + c, g);
    if (a.bias) dev::load<V>(bias + c, b);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) {
      out[i] = (v[i] - mean) * inverse;
      if (a.gain) out[i] *= g[i];
      if (a.bias) out[i] += b[i];
    }
    if (a.copy) dev::store<V>(static_cast<T*>(a.copy) + item * a.width + c, v);
    dev::store<V>(y + c, out);
  };
  FATHOM_UNROLL
  for (int p = 0; p < kNormPacks; ++p) {
    const std::int64_t c = (static_cast<std::int64_t>(p) * kThreads + t) * V;
    if (c < width) write(c, kept[p]);
  }
  for (std::int64_t c = (static_cast<std::int64_t>(kNormPacks) * kThreads + t) * V; c < width; c += kThreads * V) {
    float v[V];
    dev::load<V>(x + c, v);
    write(c, v);
  }
}

// Every thread owns the same columns in all rows of its block, so the sums for dgain and dbias stay in registers.
template <class T, int V, bool kWarp>
FATHOM_KERNEL(kNormThreads) norm_backward_kernel(NormBackwardArgs a) {
  constexpr int kThreads = kWarp ? 32 : kNormThreads;
  constexpr int kSlots = kNormThreads / kThreads;  // norms that the block works on at once
  float* scratch = dev::smem<float>();
  const int t = dev::tid() % kThreads, slot = dev::tid() / kThreads;
  const bool own_gain = a.gains > 1;
  const std::int64_t groups = own_gain ? 1 : a.groups;
  const std::int64_t items = rows_of(a.rows) * groups;
  const T* gain = static_cast<const T*>(a.gain) + (own_gain ? dev::bid_y() * a.width : 0);
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  float dgain[kNormPacks][V] = {}, dbias[kNormPacks][V] = {};

  for (std::int64_t first = dev::bid() * kSlots; first < items; first += dev::grid_x() * kSlots) {
    const std::int64_t item = first + slot;
    const bool live = item < items;
    const std::int64_t row = item / groups, group = own_gain ? dev::bid_y() : item % groups;
    const std::int64_t width = live ? a.width : 0;
    const T* x = static_cast<const T*>(a.x) + row * a.x_stride + a.x_offset + group * a.width;
    const T* dy = static_cast<const T*>(a.dy) + row * a.stride + a.offset + group * a.width;
    T* dx = static_cast<T*>(a.dx) + row * a.stride + a.offset + group * a.width;
    const float mean = live && a.centred ? a.stats[row] : 0.0f;
    const float inverse = !live ? 0.0f : a.centred ? a.stats[a.declared_rows + row] : a.stats[row * a.groups + group];
    float sum_u = 0.0f, sum_uh = 0.0f;
    FATHOM_UNROLL
    for (int p = 0; p < kNormPacks; ++p) {
      const std::int64_t c = (static_cast<std::int64_t>(p) * kThreads + t) * V;
      if (c >= width) continue;
      float xv[V], gv[V], dv[V];
      dev::load<V>(x + c, xv);
      dev::load<V>(dy + c, dv);
      if (a.gain) dev::load<V>(gain + c, gv);
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i) {
        const float h = (xv[i] - mean) * inverse, u = a.gain ? dv[i] * gv[i] : dv[i];
        sum_u += u;
        sum_uh += u * h;
        dgain[p][i] += dv[i] * h;
        dbias[p][i] += dv[i];
      }
    }
    const float mean_uh = norm_sum<kWarp>(sum_uh, scratch) * inverse_width;
    const float mean_u = a.centred ? norm_sum<kWarp>(sum_u, scratch + kNormThreads / 32) * inverse_width : 0.0f;
    FATHOM_UNROLL
    for (int p = 0; p < kNormPacks; ++p) {
      const std::int64_t c = (static_cast<std::int64_t>(p) * kThreads + t) * V;
      if (c >= width) continue;
      float xv[V], gv[V], dv[V], out[V];
      dev::load<V>(x + c, xv);
      dev::load<V>(dy + c, dv);
      if (a.gain) dev::load<V>(gain + c, gv);
      if (a.accumulate) dev::load<V>(dx + c, out);
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i) {
        const float h = (xv[i] - mean) * inverse, u = a.gain ? dv[i] * gv[i] : dv[i];
        const float d = inverse * (u - mean_u - h * mean_uh);
        out[i] = a.accumulate ? out[i] + d : d;
      }
      dev::store<V>(dx + c, out);
    }
  }

  if (!a.dgain && !a.dbias) return;
  float* to = a.partials + (dev::bid_y() * dev::grid_x() + dev::bid()) * a.width;
  float* to_bias = to + dev::grid_x() * dev::grid_y() * a.width;
  float* strips = scratch + 2 * (kNormThreads / 32);
  for (int which = 0; which < 2; ++which) {
    float* out = which == 0 ? to : to_bias;
    if (kWarp) dev::block_sync();
    FATHOM_UNROLL
    for (int p = 0; p < kNormPacks; ++p) {
      const std::int64_t c = (static_cast<std::int64_t>(p) * kThreads + t) * V;
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i)
        if (c < a.width) (kWarp ? strips + slot * a.width : out)[c + i] = which == 0 ? dgain[p][i] : dbias[p][i];
    }
    if (!kWarp) continue;
    dev::block_sync();
    for (std::int64_t c = dev::tid(); c < a.width; c += kNormThreads) {
      float sum = 0.0f;
      for (int s = 0; s < kSlots; ++s) sum += strips[s * a.width + c];
      out[c] = sum;
    }
  }
}

inline void norm(const NormArgs& a, simt::Stream stream) {
  const int vector = norm_vector(a);
  with_elements(a.type, vector, [&]<class T, int V>() {
    simt::launch(norm_by_warp(a.width, vector) ? norm_kernel<T, V, true> : norm_kernel<T, V, false>, norm_launch(a), a, stream);
  });
}

inline void norm_backward(const NormBackwardArgs& a, simt::Stream stream) {
  const int vector = norm_vector(a);
  const LaunchShape shape = norm_backward_launch(a);
  with_elements(a.type, vector, [&]<class T, int V>() {
    simt::launch(norm_by_warp(a.width, vector) ? norm_backward_kernel<T, V, true> : norm_backward_kernel<T, V, false>, shape, a, stream);
  });
  ColumnSumArgs sums;
  sums.type = a.grad_type;
  sums.parts = shape.grid_x;
  sums.width = a.width;
  sums.matrices = shape.grid_y;
  sums.accumulate = a.accumulate_weights;
  sums.partials = a.partials;
  sums.out = a.dgain;
  if (a.dgain) column_sum(sums, stream);
  sums.partials = a.partials + shape.grid_x * shape.grid_y * a.width;
  sums.out = a.dbias;
  if (a.dbias) column_sum(sums, stream);
}

}  // namespace fathom::cuda
