// Device code of kernels/cuda/loss.hpp.
#pragma once

#include "kernels/cuda/loss.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

template <int kOnce = 0>
FATHOM_KERNEL(kLossThreads) count_labels_kernel(CrossEntropyArgs a) {
  std::int32_t count = 0;
  for (std::int64_t r = dev::tid(); r < a.rows; r += kLossThreads) count += a.labels[r] >= 0;
  count = dev::block_sum(count, dev::smem<std::int32_t>());
  if (dev::tid() == 0) *a.counted = count;
}

template <int kOnce = 0>
FATHOM_KERNEL(kLossThreads) sum_losses_kernel(CrossEntropyArgs a) {
  float sum = 0.0f;
  for (std::int64_t r = dev::tid(); r < a.rows; r += kLossThreads) sum += a.row_losses[r];
  sum = dev::block_sum(sum, dev::smem<float>());
  if (dev::tid() == 0) *a.loss = *a.counted > 0 ? sum * a.weight / static_cast<float>(*a.counted) : 0.0f;
}

// Rows run from the last to the first: the product that made the logits left its last rows in the cache.
template <class T, int V>
FATHOM_KERNEL(kLossThreads) cross_entropy_kernel(CrossEntropyArgs a) {
  float* scratch = dev::smem<float>();
  const std::int64_t row = a.rows - 1 - dev::bid();
  T* x = static_cast<T*>(a.logits) + row * a.stride;
  const std::int64_t label = a.labels[row];
  const float target = label >= 0 ? dev::load(x + label) : 0.0f;
  float top = -INFINITY, sum = 0.0f;
  for (std::int64_t c = dev::tid() * V; c < a.vocab; c += kLossThreads * V) {
    float v[V], pack = top;
    dev::load<V>(x + c, v);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i)
      if (c + i < a.vocab) pack = dev::fmaxf_(pack, v[i]);
    float added = 0.0f;
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i)
      if (c + i < a.vocab) added += dev::fexp(v[i] - pack);
    sum = (top == pack ? sum : sum * dev::fexp(top - pack)) + added;
    top = pack;
  }
  const float all_top = dev::block_max(top, scratch);
  const float all_sum = dev::block_sum(top == -INFINITY ? 0.0f : sum * dev::fexp(top - all_top), scratch);
  if (dev::tid() == 0) a.row_losses[row] = label >= 0 ? all_top + dev::flog(all_sum) - target : 0.0f;
  if (!a.gradient) return;
  const float scale = *a.counted > 0 ? a.weight / static_cast<float>(*a.counted) : 0.0f;
  const float factor = label >= 0 ? scale / all_sum : 0.0f;
  for (std::int64_t c = dev::tid() * V; c < a.stride; c += kLossThreads * V) {
    float v[V];
    dev::load<V>(x + c, v);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) {
      const float p = c + i < a.vocab && label >= 0 ? dev::fexp(v[i] - all_top) * factor : 0.0f;
      v[i] = c + i == label ? p - scale : p;
    }
    dev::store<V>(x + c, v);
  }
}

inline void cross_entropy(const CrossEntropyArgs& a, simt::Stream stream) {
  simt::launch(count_labels_kernel<>, cross_entropy_single_launch(a), a, stream);
  with_elements(a.type, loss_vector(a), [&]<class T, int V>() { simt::launch(cross_entropy_kernel<T, V>, cross_entropy_launch(a), a, stream); });
  simt::launch(sum_losses_kernel<>, cross_entropy_single_launch(a), a, stream);
}

}  // namespace fathom::cuda
