// Device code of kernels/cuda/rows.hpp.
#pragma once

#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

// A warp per row, four packs of every lane in flight; no division to find the row.
template <class T, int V>
FATHOM_KERNEL(kRowThreads) gather_kernel(GatherArgs a) {
  const std::int64_t row = dev::bid() * (kRowThreads / 32) + dev::warp();
  if (row >= rows_of(a.rows)) return;
  const T* from = static_cast<const T*>(a.x) + a.indices[row] * a.width;
  T* to = static_cast<T*>(a.y) + row * a.width;
  for (std::int64_t first = dev::lane() * V; first < a.width; first += 32 * kRowPacks * V) {
    float v[kRowPacks][V];
    FATHOM_UNROLL
    for (int p = 0; p < kRowPacks; ++p)
      if (first + p * 32 * V < a.width) dev::load<V>(from + first + p * 32 * V, v[p]);
    FATHOM_UNROLL
    for (int p = 0; p < kRowPacks; ++p)
      if (first + p * 32 * V < a.width) dev::store<V>(to + first + p * 32 * V, v[p]);
  }
}

template <class T, int V, bool kInPlace>
FATHOM_KERNEL(kRowThreads) scatter_kernel(ScatterArgs a) {
  const std::int64_t item = dev::bid() * (kRowThreads / 32) + dev::warp();
  if (item >= (kInPlace ? rows_of(a.rows) : a.all_rows)) return;
  const std::int64_t row = kInPlace ? static_cast<std::int64_t>(a.indices[item]) : item;
  const std::int64_t selected = kInPlace ? item : static_cast<std::int64_t>(a.inverse[item]);
  const T* x = static_cast<const T*>(a.x) + row * a.width;
  const T* f = static_cast<const T*>(a.f) + selected * a.width;
  T* y = static_cast<T*>(a.y) + row * a.width;
  const bool keeps = !a.replace || selected < 0;
  const float g = selected >= 0 && a.gate.kind != GateKind::kNone ? gate_value(a.gate, a.scores[row]) : 1.0f;
  for (std::int64_t first = dev::lane() * V; first < a.width; first += 32 * kRowPacks * V) {
    float v[kRowPacks][V] = {}, w[kRowPacks][V];
    FATHOM_UNROLL
    for (int p = 0; p < kRowPacks; ++p) {
      if (first + p * 32 * V >= a.width) continue;
      if (keeps) dev::load<V>(x + first + p * 32 * V, v[p]);
      if (selected >= 0) dev::load<V>(f + first + p * 32 * V, w[p]);
    }
    FATHOM_UNROLL
    for (int p = 0; p < kRowPacks; ++p) {
      if (first + p * 32 * V >= a.width) continue;
      if (selected >= 0) {
        FATHOM_UNROLL
        for (int e = 0; e < V; ++e) v[p][e] += g * w[p][e];
      }
      dev::store<V>(y + first + p * 32 * V, v[p]);
    }
  }
}

template <class T, int V>
FATHOM_KERNEL(kRowThreads) scatter_backward_kernel(ScatterBackwardArgs a) {
  const std::int64_t row = dev::bid() * (kRowThreads / 32) + dev::warp();
  const bool live = row < rows_of(a.rows);
  const std::int64_t index = live ? a.indices[row] : 0;
  const bool gated = a.gate.kind != GateKind::kNone;
  const float score = gated && live ? a.scores[index] : 0.0f;
  const float g = gated ? gate_value(a.gate, score) : 1.0f;
  const T* f = static_cast<const T*>(a.f) + row * a.width;
  T* dy = static_cast<T*>(a.dy) + index * a.width;
  T* df = static_cast<T*>(a.df) + row * a.width;
  float dot = 0.0f;
  for (std::int64_t c = dev::lane() * V; c < (live ? a.width : 0); c += 32 * V) {
    float d[V], v[V], out[V];
    dev::load<V>(dy + c, d);
    if (gated) dev::load<V>(f + c, v);
    FATHOM_UNROLL
    for (int e = 0; e < V; ++e) {
      if (gated) dot += d[e] * v[e];
      out[e] = g * d[e];
    }
    dev::store<V>(df + c, out);
    if (a.replace) {
      FATHOM_UNROLL
      for (int e = 0; e < V; ++e) out[e] = 0.0f;
      dev::store<V>(dy + c, out);
    }
  }
  dot = dev::warp_sum(dot);
  if (!live || !gated || dev::lane() != 0) return;
  const float before = a.accumulate ? a.dscores[index] : 0.0f;
  a.dscores[index] = before + gate_slope(a.gate, score) * dot;
}

inline void gather(const GatherArgs& a, simt::Stream stream) {
  with_elements(a.type, gather_vector(a), [&]<class T, int V>() { simt::launch(gather_kernel<T, V>, gather_launch(a), a, stream); });
}
inline void scatter(const ScatterArgs& a, simt::Stream stream) {
  with_elements(a.type, scatter_vector(a), [&]<class T, int V>() {
    simt::launch(a.x == a.y ? scatter_kernel<T, V, true> : scatter_kernel<T, V, false>, scatter_launch(a), a, stream);
  });
}
inline void scatter_backward(const ScatterBackwardArgs& a, simt::Stream stream) {
  with_elements(a.type, scatter_vector(a), [&]<class T, int V>() {
    simt::launch(scatter_backward_kernel<T, V>, scatter_backward_launch(a), a, stream);
  });
}

}  // namespace fathom::cuda
