// What the attention kernels share: key ranges, the merge of splits, delta, and the gradient of sinks.
#pragma once

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/sequence.cuh"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// First i in [0, count) with positions[i] >= value, else count.
FATHOM_DEV std::int32_t lower_bound(const std::int32_t* positions, std::int32_t count, std::int64_t value) {
  std::int32_t low = 0, high = count;
  while (low < high) {
    const std::int32_t middle = (low + high) / 2;
    if (positions[middle] < value)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <int kOnce = 0>
FATHOM_KERNEL(kSimtThreads) attention_ranges_kernel(AttentionRangeArgs a) {
  const std::int64_t row = dev::bid() * kSimtThreads + dev::tid();
  if (row >= a.row_limit || row >= first_row(a.queries, a.queries.sequences)) return;
  const std::int64_t sequence = sequence_of(a.queries, row);
  const std::int64_t position = a.positions[row];
  const bool causal = a.mask.kind == MaskKind::kCausal;
  // The oldest position that a window or chunk shows.
  std::int64_t oldest = 0;
  if (causal && a.mask.window > 0) oldest = position - a.mask.window + 1;
  if (causal && a.mask.chunk > 0 && position / a.mask.chunk * a.mask.chunk > oldest) oldest = position / a.mask.chunk * a.mask.chunk;
  std::int64_t begin = 0, end = 0;
  if (a.counts) {
    // New row j of n is the (counts - n + j)-th of the list, or, where all tokens keep keys, the one at its position.
    const std::int64_t count = a.counts[sequence], after = first_row(a.queries, sequence + 1) - row;
    const std::int64_t own = a.all_keys ? position : count - after;
    end = causal ? own + 1 : count;
    if (oldest > 0) begin = a.kept ? lower_bound(a.kept + sequence * a.keys.each, static_cast<std::int32_t>(end), oldest) : oldest;
  } else {
    const std::int64_t first = first_row(a.keys, sequence);
    const auto count = static_cast<std::int32_t>(first_row(a.keys, sequence + 1) - first);
    end = causal ? lower_bound(a.key_positions + first, count, position + 1) : count;
    if (oldest > 0) begin = lower_bound(a.key_positions + first, count, oldest);
  }
  a.begin[row] = static_cast<std::int32_t>(begin < end ? begin : end);
  a.end[row] = static_cast<std::int32_t>(end);
}

FATHOM_DEV float sink_of(const AttentionArgs& a, std::int64_t head) {
  if (a.sinks == nullptr) return -INFINITY;
  return a.sink_type == DType::kBF16 ? dev::load(static_cast<const bf16*>(a.sinks) + head) : static_cast<const float*>(a.sinks)[head];
}

// A warp per (row, head): o = sum of partials weighted by exp(lse - total), in the order of the splits.
template <class T>
FATHOM_KERNEL(kSimtThreads) attention_merge_kernel(AttentionArgs a) {
  const std::int64_t item = dev::bid() * (kSimtThreads / 32) + dev::warp();
  const std::int64_t row = item / a.heads, head = item % a.heads;
  if (row >= a.row_limit || row >= first_row(a.queries, a.queries.sequences)) return;
  const std::int64_t items = a.row_limit * a.heads;
  const float sink = sink_of(a, head);
  float top = sink;
  for (int s = 0; s < a.splits; ++s) top = dev::fmaxf_(top, a.partial_lse[s * items + item]);
  const float base = top == -INFINITY ? 0.0f : top;
  float sum = dev::fexp(sink - base);
  for (int s = 0; s < a.splits; ++s) sum += dev::fexp(a.partial_lse[s * items + item] - base);
  const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (int c = dev::lane(); c < a.v_dim; c += 32) {
    float total = 0.0f;
    for (int s = 0; s < a.splits; ++s) total += dev::fexp(a.partial_lse[s * items + item] - base) * a.partial_o[(s * items + item) * a.v_dim + c];
    dev::store(static_cast<T*>(a.o) + row * a.o_stride + head * a.v_dim + c, total * inverse);
  }
  if (a.lse && dev::lane() == 0) a.lse[item] = sum > 0.0f ? base + dev::flog(sum) : -INFINITY;
}

// delta[row, head] = <dO, O>, a warp each.
template <class T>
FATHOM_KERNEL(kSimtThreads) attention_delta_kernel(AttentionBackwardArgs b) {
  const AttentionArgs& a = b.forward;
  const std::int64_t item = dev::bid() * (kSimtThreads / 32) + dev::warp();
  const std::int64_t row = item / a.heads, head = item % a.heads;
  const bool live = row < a.row_limit && row < first_row(a.queries, a.queries.sequences);
  const std::int64_t at = row * a.o_stride + head * a.v_dim;
  float dot = 0.0f;
  for (int c = dev::lane(); c < (live ? a.v_dim : 0); c += 32)
    dot += dev::load(static_cast<const T*>(b.d_o) + at + c) * dev::load(static_cast<const T*>(a.o) + at + c);
  dot = dev::warp_sum(dot);
  if (live && dev::lane() == 0) b.delta[item] = dot;
}

// dt = -sum over rows of exp(t - lse) <dO, O>, a block per head.
template <int kOnce = 0>
FATHOM_KERNEL(kSimtThreads) attention_sinks_kernel(AttentionBackwardArgs b) {
  const AttentionArgs& a = b.forward;
  const std::int64_t head = dev::bid(), rows = first_row(a.queries, a.queries.sequences);
  const float sink = sink_of(a, head);
  float sum = 0.0f;
  for (std::int64_t row = dev::tid(); row < rows; row += kSimtThreads) sum -= dev::fexp(sink - a.lse[row * a.heads + head]) * b.delta[row * a.heads + head];
  sum = dev::block_sum(sum, dev::smem<float>());
  if (dev::tid() != 0) return;
  if (a.sink_type == DType::kBF16) {
    bf16* to = static_cast<bf16*>(b.dsinks) + head;
    dev::store(to, b.accumulate_sinks ? dev::load(to) + sum : sum);
  } else {
    float* to = static_cast<float*>(b.dsinks) + head;
    *to = b.accumulate_sinks ? *to + sum : sum;
  }
}

inline void attention_ranges(const AttentionRangeArgs& a, simt::Stream stream) {
  simt::launch(attention_ranges_kernel<>, attention_ranges_launch(a), a, stream);
}

}  // namespace fathom::cuda
