// Device code of kernels/cuda/experts.hpp.
#pragma once

#include "kernels/cuda/experts.hpp"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

FATHOM_DEV std::int64_t tokens_of(const ExpertSelectArgs& a) { return rows_of({a.tokens, a.token_count}); }

// What an output is chosen by.
template <class T>
FATHOM_DEV float expert_key(const ExpertSelectArgs& a, const T* logits, int e) {
  const float logit = dev::load(logits + e);
  if (!a.correction) return logit;
  const float score = a.sigmoid ? logistic(logit) : logit;
  return e < a.experts ? score + a.correction[e] : score;
}

// A warp per token. An output is ranked by its key and then its number, in one word: pick j is the largest word below pick j - 1's; lane j keeps it.
template <class T>
FATHOM_KERNEL_OCC(kExpertThreads, 4) expert_choose_kernel(ExpertSelectArgs a) {
  const std::int64_t token = dev::bid() * (kExpertThreads / 32) + dev::warp();
  const bool live = token < tokens_of(a);
  const int outputs = a.experts + a.noops;
  const T* logits = static_cast<const T*>(a.logits) + (live ? token : 0) * outputs;
  std::uint64_t last = ~std::uint64_t{0};
  int mine = 0;
  for (int j = 0; j < a.picks; ++j) {
    std::uint64_t best = 0;
    for (int e = dev::lane(); e < outputs; e += 32) {
      const std::uint64_t word = static_cast<std::uint64_t>(dev::ordered_bits(expert_key(a, logits, e))) << 32 | (0xffffffffu - static_cast<dev::u32>(e));
      if (word < last && word > best) best = word;
    }
    FATHOM_UNROLL
    for (int m = 16; m > 0; m >>= 1) {
      const std::uint64_t other = dev::shfl_xor(best, m);
      best = other > best ? other : best;
    }
    last = best;
    if (dev::lane() == j) mine = static_cast<int>(0xffffffffu - static_cast<dev::u32>(best));
  }
  const bool picked = dev::lane() < a.picks && live;
  const float logit = picked ? dev::load(logits + mine) : 0.0f;
  const float first = dev::shfl(logit, 0);
  float weight = !picked ? 0.0f : a.sigmoid ? logistic(logit) : dev::fexp(logit - first);
  weight /= dev::warp_sum(weight);
  if (!picked) return;
  a.chosen[token * a.picks + dev::lane()] = mine;
  a.chosen_weights[token * a.picks + dev::lane()] = weight;
}

// offsets[e + 1] = rows of expert e.
template <int kOnce = 0>
FATHOM_KERNEL(kExpertThreads) expert_count_kernel(ExpertSelectArgs a) {
  const int expert = static_cast<int>(dev::bid());
  const std::int64_t picks = tokens_of(a) * a.picks;
  std::int32_t count = 0;
  for (std::int64_t i = dev::tid(); i < picks; i += kExpertThreads) count += a.chosen[i] == expert;
  count = dev::block_sum(count, dev::smem<std::int32_t>());
  if (a.capacity > 0 && count > a.capacity) count = static_cast<std::int32_t>(a.capacity);
  if (dev::tid() == 0) a.offsets[expert + 1] = count;
}

template <int kOnce = 0>
FATHOM_KERNEL(kExpertThreads) expert_offsets_kernel(ExpertSelectArgs a) {
  std::int32_t before = 0;
  for (int first = 0; first < a.experts; first += kExpertThreads) {
    const int e = first + dev::tid();
    const std::int32_t own = e < a.experts ? a.offsets[e + 1] : 0;
    std::int32_t total = 0;
    const std::int32_t exclusive = dev::block_scan(own, dev::smem<std::int32_t>(), total);
    if (e < a.experts) {
      a.offsets[e + 1] = before + exclusive + own;
      if (a.kept_offsets) a.kept_offsets[e + 1] = before + exclusive + own;
    }
    before += total;
  }
  if (dev::tid() != 0) return;
  a.offsets[0] = 0;
  if (a.kept_offsets) a.kept_offsets[0] = 0;
}

// A token picks an expert at most once, so picks in order are tokens in order.
template <int kOnce = 0>
FATHOM_KERNEL(kExpertThreads) expert_place_kernel(ExpertSelectArgs a) {
  const int expert = static_cast<int>(dev::bid());
  const std::int64_t base = a.offsets[expert], end = a.offsets[expert + 1];
  const std::int64_t picks = tokens_of(a) * a.picks;
  std::int64_t written = base;
  for (std::int64_t first = 0; first < picks; first += kExpertThreads) {
    const std::int64_t i = first + dev::tid();
    const bool own = i < picks && a.chosen[i] == expert;
    std::int32_t total = 0;
    const std::int64_t row = written + dev::block_scan(own ? 1 : 0, dev::smem<std::int32_t>(), total);
    if (own && row < end) {
      a.permutation[row] = static_cast<std::int32_t>(i / a.picks);
      a.weights[row] = a.chosen_weights[i];
    }
    if (own) a.slots[i] = row < end ? static_cast<std::int32_t>(row) : -1;
    written += total;
  }
}

// Rows behind the last one; then picks of no-ops, and of tokens that are not there.
template <int kOnce = 0>
FATHOM_KERNEL(kExpertThreads) expert_tail_kernel(ExpertSelectArgs a) {
  const std::int64_t i = dev::bid() * kExpertThreads + dev::tid();
  if (i < a.room && i >= a.offsets[a.experts]) a.permutation[i] = -1, a.weights[i] = 0.0f;
}
template <int kOnce = 0>
FATHOM_KERNEL(kExpertThreads) expert_noop_kernel(ExpertSelectArgs a) {
  const std::int64_t i = dev::bid() * kExpertThreads + dev::tid();
  if (i >= a.tokens * a.picks) return;
  if (i >= tokens_of(a) * a.picks || a.chosen[i] >= a.experts) a.slots[i] = -1;
}

FATHOM_DEV void store_dlogit(const ExpertSelectArgs& a, std::int64_t at, float value) {
  if (a.dlogit_type == DType::kBF16)
    dev::store(static_cast<bf16*>(a.dlogits) + at, value);
  else
    dev::store(static_cast<float*>(a.dlogits) + at, value);
}

// A warp per token, lane j its pick j. dl_p = slope_p (d_p - sum_q w_q d_q), slope = w (softmax) or sigma (1 - sigma) / sum sigma.
template <class T>
FATHOM_KERNEL(kExpertThreads) expert_select_backward_kernel(ExpertSelectArgs a) {
  const std::int64_t token = dev::bid() * (kExpertThreads / 32) + dev::warp();
  const bool live = token < tokens_of(a);
  const int outputs = a.experts + a.noops;
  const T* logits = static_cast<const T*>(a.logits) + (live ? token : 0) * outputs;
  const bool picked = live && dev::lane() < a.picks;
  const std::int64_t i = token * a.picks + dev::lane();
  const int pick = picked ? a.chosen[i] : 0;
  const int slot = picked ? a.slots[i] : -1;
  const float w = picked ? a.chosen_weights[i] : 0.0f;
  const float d = slot >= 0 ? a.dweights[slot] : 0.0f;
  const float sigma = picked ? logistic(dev::load(logits + pick)) : 0.0f;
  const float dot = dev::warp_sum(w * d), sum = dev::warp_sum(sigma);
  const float slope = a.sigmoid ? sigma * (1.0f - sigma) / sum : w;
  for (int e = dev::lane(); e < (live ? outputs : 0); e += 32) store_dlogit(a, token * outputs + e, 0.0f);
  dev::warp_sync();
  if (picked) store_dlogit(a, token * outputs + pick, slope * (d - dot));
}

template <class T, int V>
FATHOM_KERNEL(kExpertThreads) expert_dispatch_kernel(ExpertRowsArgs a) {
  const std::int64_t row = dev::bid() * (kExpertThreads / 32) + dev::warp();
  if (row >= rows_of(a.rows)) return;
  const std::int64_t token = a.permutation[row];
  if (token < 0) return;
  FATHOM_UNROLL_BY(4)
  for (std::int64_t c = dev::lane() * V; c < a.width; c += 32 * V) {
    float v[V];
    dev::load<V>(static_cast<const T*>(a.x) + token * a.width + c, v);
    dev::store<V>(static_cast<T*>(a.y) + row * a.width + c, v);
  }
}

// Rows of a token in ascending order, whatever the order of its picks.
template <class T, int V>
FATHOM_KERNEL(kExpertThreads) expert_combine_kernel(ExpertRowsArgs a) {
  const std::int64_t token = dev::bid() * (kExpertThreads / 32) + dev::warp();
  const bool live = token < a.tokens;
  const int none = 0x7fffffff;
  int mine = none;
  if (live && dev::lane() < a.picks) mine = a.slots[token * a.picks + dev::lane()];
  if (mine < 0) mine = none;
  const float gate = live && a.shared_gate ? logistic(dev::load(static_cast<const T*>(a.shared_gate) + token)) : 1.0f;
  for (std::int64_t first = 0; first < a.width; first += 32 * V) {
    const std::int64_t c = first + dev::lane() * V;
    const bool in = live && c < a.width;
    T* y = static_cast<T*>(a.y) + token * a.width + c;
    float sum[V] = {};
    if (in && a.shared) dev::load<V>(static_cast<const T*>(a.shared) + token * a.width + c, sum);
    if (in && a.accumulate) dev::load<V>(y, sum);
    FATHOM_UNROLL
    for (int e = 0; e < V; ++e) sum[e] *= gate;
    int left = mine;
    for (int j = 0; j < a.picks; ++j) {
      int row = left;
      FATHOM_UNROLL
      for (int m = 16; m > 0; m >>= 1) {
        const int other = dev::shfl_xor(row, m);
        row = other < row ? other : row;
      }
      if (left == row) left = none;
      if (!in || row == none) continue;
      float v[V];
      dev::load<V>(static_cast<const T*>(a.x) + row * a.width + c, v);
      const float w = a.weights ? a.weights[row] : 1.0f;
      FATHOM_UNROLL
      for (int e = 0; e < V; ++e) sum[e] += w * v[e];
    }
    if (in) dev::store<V>(y, sum);
  }
}

template <class T, int V>
FATHOM_KERNEL_OCC(kExpertThreads, 4) expert_combine_backward_kernel(ExpertCombineBackwardArgs a) {
  const std::int64_t row = dev::bid() * (kExpertThreads / 32) + dev::warp();
  const std::int64_t token = row < rows_of(a.rows) ? a.permutation[row] : -1;
  const float w = token >= 0 ? a.weights[row] : 0.0f;
  float dot = 0.0f;
  for (std::int64_t c = dev::lane() * V; c < (token >= 0 ? a.width : 0); c += 32 * V) {
    float d[V], x[V];
    dev::load<V>(static_cast<const T*>(a.dy) + token * a.width + c, d);
    dev::load<V>(static_cast<const T*>(a.x) + row * a.width + c, x);
    FATHOM_UNROLL
    for (int e = 0; e < V; ++e) dot += d[e] * x[e], d[e] *= w;
    dev::store<V>(static_cast<T*>(a.dx) + row * a.width + c, d);
  }
  dot = dev::warp_sum(dot);
  if (token >= 0 && dev::lane() == 0) a.dweights[row] = dot;
}

template <class T, int V>
FATHOM_KERNEL(kExpertThreads) shared_gate_backward_kernel(ExpertCombineBackwardArgs a) {
  const std::int64_t token = dev::bid() * (kExpertThreads / 32) + dev::warp();
  const bool live = token < a.tokens;
  const float sigma = live ? logistic(dev::load(static_cast<const T*>(a.shared_gate) + token)) : 0.0f;
  float dot = 0.0f;
  for (std::int64_t c = dev::lane() * V; c < (live ? a.width : 0); c += 32 * V) {
    float d[V], s[V];
    dev::load<V>(static_cast<const T*>(a.dy) + token * a.width + c, d);
    dev::load<V>(static_cast<const T*>(a.shared) + token * a.width + c, s);
    FATHOM_UNROLL
    for (int e = 0; e < V; ++e) dot += d[e] * s[e], d[e] *= sigma;
    dev::store<V>(static_cast<T*>(a.dshared) + token * a.width + c, d);
  }
  dot = dev::warp_sum(dot);
  if (live && dev::lane() == 0) dev::store(static_cast<T*>(a.dgate) + token, sigma * (1.0f - sigma) * dot);
}

inline void expert_select(const ExpertSelectArgs& a, simt::Stream stream) {
  with_type(a.logit_type, [&]<class T>() { simt::launch(expert_choose_kernel<T>, expert_choose_launch(a), a, stream); });
  simt::launch(expert_count_kernel<>, expert_place_launch(a), a, stream);
  simt::launch(expert_offsets_kernel<>, expert_offsets_launch(a), a, stream);
  simt::launch(expert_place_kernel<>, expert_place_launch(a), a, stream);
  simt::launch(expert_tail_kernel<>, expert_tail_launch(a), a, stream);
  const LaunchShape picks{ceil_div(a.tokens * a.picks, kExpertThreads), 1, 1, kExpertThreads, 0};
  if (a.noops > 0 || a.token_count) simt::launch(expert_noop_kernel<>, picks, a, stream);
}
inline void expert_select_backward(const ExpertSelectArgs& a, simt::Stream stream) {
  with_type(a.logit_type, [&]<class T>() { simt::launch(expert_select_backward_kernel<T>, expert_choose_launch(a), a, stream); });
}
inline void expert_dispatch(const ExpertRowsArgs& a, simt::Stream stream) {
  with_elements(a.type, vector_width(a.type, a.width, a.x, a.y), [&]<class T, int V>() {
    simt::launch(expert_dispatch_kernel<T, V>, expert_dispatch_launch(a), a, stream);
  });
}
// Also the gradient of dispatch: weights null, x = dy of the rows, y = dx of the tokens.
inline void expert_combine(const ExpertRowsArgs& a, simt::Stream stream) {
  with_elements(a.type, vector_width(a.type, a.width, a.x, a.y, a.shared), [&]<class T, int V>() {
    simt::launch(expert_combine_kernel<T, V>, expert_combine_launch(a), a, stream);
  });
}
inline void expert_combine_backward(const ExpertCombineBackwardArgs& a, simt::Stream stream) {
  const int vector = vector_width(a.type, a.width, a.dy, a.x, a.dx) > 1 ? vector_width(a.type, a.width, a.shared, a.dshared) : 1;
  with_elements(a.type, vector, [&]<class T, int V>() {
    simt::launch(expert_combine_backward_kernel<T, V>, expert_combine_backward_launch(a), a, stream);
    if (a.shared_gate) simt::launch(shared_gate_backward_kernel<T, V>, shared_gate_backward_launch(a), a, stream);
  });
}

}  // namespace fathom::cuda
