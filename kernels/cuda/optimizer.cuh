// Device code of kernels/cuda/optimizer.hpp.
#pragma once

#include "kernels/cuda/optimizer.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

// The tensor that owns this block's chunk: the last one that begins at or before it.
FATHOM_DEV const ParameterTensor& tensor_of(const ParameterTensor* tensors, std::int64_t count, std::int64_t chunk) {
  std::int64_t low = 0, high = count - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (tensors[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  return tensors[low];
}

FATHOM_DEV bool aligned16(const void* p) { return (reinterpret_cast<std::uintptr_t>(p) & 15) == 0; }

template <class G>
FATHOM_KERNEL(kOptimizerThreads) gradient_norm_kernel(GradientNormArgs a) {
  constexpr int V = 16 / static_cast<int>(sizeof(G));
  const ParameterTensor& tensor = tensor_of(a.tensors, a.tensor_count, dev::bid());
  const std::int64_t first = (dev::bid() - tensor.first_chunk) * kOptimizerChunk;
  const std::int64_t count = tensor.count - first < kOptimizerChunk ? tensor.count - first : kOptimizerChunk;
  const G* grad = static_cast<const G*>(tensor.grad) + first;
  const std::int64_t packed = aligned16(grad) ? count / V * V : 0;
  float sum = 0.0f;
  for (std::int64_t i = dev::tid() * V; i < packed; i += kOptimizerThreads * V) {
    float g[V];
    dev::load<V>(grad + i, g);
    FATHOM_UNROLL
    for (int e = 0; e < V; ++e) sum += g[e] * g[e];
  }
  for (std::int64_t i = packed + dev::tid(); i < count; i += kOptimizerThreads) sum += dev::load(grad + i) * dev::load(grad + i);
  sum = dev::block_sum(sum, dev::smem<float>());
  if (dev::tid() == 0) a.partials[dev::bid()] = sum;
}

template <int kOnce = 0>
FATHOM_KERNEL(kOptimizerThreads) gradient_norm_sum_kernel(GradientNormArgs a) {
  float sum = 0.0f;
  for (std::int64_t i = dev::tid(); i < a.chunks; i += kOptimizerThreads) sum += a.partials[i];
  sum = dev::block_sum(sum, dev::smem<float>());
  if (dev::tid() == 0) *a.sum = a.first ? sum : *a.sum + sum;
}

template <class G, class W>
FATHOM_KERNEL(kOptimizerThreads) adamw_kernel(AdamWArgs a) {
  constexpr int V = sizeof(W) == 2 ? 8 : 4;  // packs of 16 bytes of the weights
  const ParameterTensor& tensor = tensor_of(a.tensors, a.tensor_count, dev::bid());
  const std::int64_t first = (dev::bid() - tensor.first_chunk) * kOptimizerChunk;
  const std::int64_t count = tensor.count - first < kOptimizerChunk ? tensor.count - first : kOptimizerChunk;
  const G* grad = static_cast<const G*>(tensor.grad) + first;
  W* weight = static_cast<W*>(tensor.weight) + first;
  float* m = tensor.m + first;
  float* v = tensor.v + first;
  float* master = tensor.master ? tensor.master + first : nullptr;
  const float norm = dev::fsqrt(*a.sum);
  const float scale = norm > a.clip ? a.clip / norm : 1.0f;
  const auto update = [&](float g, float& w, float& mi, float& vi) {
    g *= scale;
    mi = a.beta1 * mi + a.one_minus_beta1 * g;
    vi = a.beta2 * vi + a.one_minus_beta2 * g * g;
    const float step = mi * a.inverse_correction1 / (dev::fsqrt(vi * a.inverse_correction2) + a.epsilon);
    w -= a.learning_rate * (step + a.weight_decay * w);
  };
  const bool aligned = aligned16(grad) && aligned16(weight) && aligned16(m) && aligned16(v) && (!master || aligned16(master));
  const std::int64_t packed = aligned ? count / V * V : 0;
  for (std::int64_t i = dev::tid() * V; i < packed; i += kOptimizerThreads * V) {
    float g[V], w[V], mi[V], vi[V];
    dev::load_wide<V>(grad + i, g);
    dev::load_wide<V>(m + i, mi);
    dev::load_wide<V>(v + i, vi);
    if (master)
      dev::load_wide<V>(master + i, w);
    else
      dev::load_wide<V>(weight + i, w);
    FATHOM_UNROLL
    for (int e = 0; e < V; ++e) update(g[e], w[e], mi[e], vi[e]);
    dev::store_wide<V>(m + i, mi);
    dev::store_wide<V>(v + i, vi);
    if (master) dev::store_wide<V>(master + i, w);
    dev::store_wide<V>(weight + i, w);
  }
  for (std::int64_t i = packed + dev::tid(); i < count; i += kOptimizerThreads) {
    float w = master ? master[i] : dev::load(weight + i), mi = m[i], vi = v[i];
    update(dev::load(grad + i), w, mi, vi);
    m[i] = mi, v[i] = vi;
    if (master) master[i] = w;
    dev::store(weight + i, w);
  }
}

inline void gradient_norm(const GradientNormArgs& a, simt::Stream stream) {
  with_type(a.grad_type, [&]<class G>() { simt::launch(gradient_norm_kernel<G>, gradient_norm_launch(a), a, stream); });
  simt::launch(gradient_norm_sum_kernel<>, gradient_norm_sum_launch(a), a, stream);
}
inline void adamw(const AdamWArgs& a, simt::Stream stream) {
  with_type(a.grad_type, [&]<class G>() {
    with_type(a.weight_type, [&]<class W>() { simt::launch(adamw_kernel<G, W>, adamw_launch(a), a, stream); });
  });
}

}  // namespace fathom::cuda
