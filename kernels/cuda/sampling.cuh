// Device code of kernels/cuda/sampling.hpp.
#pragma once

#include "kernels/cuda/sampling.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

// Largest logit, the first of equals; -1 where one is NaN. The same for all threads.
template <class T>
FATHOM_DEV std::int32_t block_argmax(const T* x, std::int64_t count) {
  float* tops = dev::smem<float>();
  std::int32_t* at = dev::smem<std::int32_t>(kSamplingThreads / 32 * 8);
  const std::int32_t none = 0x7fffffff;
  float top = -INFINITY;
  std::int32_t index = none;
  bool nan = false;
  for (std::int64_t c = dev::tid(); c < count; c += kSamplingThreads) {
    const float v = dev::load(x + c);
    nan = nan || v != v;
    if (v > top || index == none) top = v, index = static_cast<std::int32_t>(c);
  }
  nan = dev::block_any(nan);
  FATHOM_UNROLL
  for (int m = 16; m > 0; m >>= 1) {
    const float other = dev::shfl_xor(top, m);
    const std::int32_t where = dev::shfl_xor(index, m);
    if (other > top || (other == top && where < index)) top = other, index = where;
  }
  dev::block_sync();
  if (dev::lane() == 0) tops[dev::warp()] = top, at[dev::warp()] = index;
  dev::block_sync();
  for (int w = 0; w < kSamplingThreads / 32; ++w)
    if (tops[w] > top || (tops[w] == top && at[w] < index)) top = tops[w], index = at[w];
  return nan || index == none ? -1 : index;
}

// Sum of the probabilities whose bits are at least `bits` (they are not negative, so bits order them).
FATHOM_DEV double mass_from(const float* p, std::int64_t count, dev::u32 bits) {
  double sum = 0.0;
  for (std::int64_t c = dev::tid(); c < count; c += kSamplingThreads)
    if (dev::float_bits(p[c]) >= bits) sum += static_cast<double>(p[c]);
  return dev::block_sum(sum, dev::smem<double>());
}

// The largest probability (as bits) at which the mass from it upwards reaches `target` (or passes it, where `strictly`); 0: never.
FATHOM_DEV dev::u32 mass_cut(const float* p, std::int64_t count, double target, bool strictly) {
  dev::u32 low = 0, high = 0x3f800001u;  // above the bits of 1
  while (high - low > 1) {
    const dev::u32 middle = low + (high - low) / 2;
    const double mass = mass_from(p, count, middle);
    if (strictly ? mass > target : mass >= target)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// How many tokens before `limit` have exactly these bits, and which is the n-th of them (from 0); -1 where there are fewer.
FATHOM_DEV std::int32_t nth_equal(const float* p, std::int64_t count, dev::u32 bits, std::int64_t n) {
  std::int32_t* scratch = dev::smem<std::int32_t>();
  std::int32_t* found = dev::smem<std::int32_t>(kSamplingThreads / 32 * 16);
  dev::block_sync();
  if (dev::tid() == 0) *found = -1;
  std::int64_t before = 0;
  for (std::int64_t first = 0; first < count; first += kSamplingThreads) {
    const std::int64_t c = first + dev::tid();
    const bool equal = c < count && dev::float_bits(p[c]) == bits;
    std::int32_t total = 0;
    const std::int64_t rank = before + dev::block_scan(equal ? 1 : 0, scratch, total);
    if (equal && rank == n) *found = static_cast<std::int32_t>(c);
    before += total;
  }
  dev::block_sync();
  return *found;
}

template <class T>
FATHOM_KERNEL(kSamplingThreads) sampling_kernel(SamplingArgs a) {
  const std::int64_t row = dev::bid();
  const T* x = static_cast<const T*>(a.logits) + row * a.stride;
  const std::int32_t best = block_argmax(x, a.vocab);
  if (best < 0 || a.inverse_temperature == 0.0f) {
    if (dev::tid() == 0) a.tokens[row] = best;
    return;
  }
  float* p = a.probabilities + row * a.vocab;
  const float top = dev::load(x + best);
  float sum = 0.0f;
  for (std::int64_t c = dev::tid(); c < a.vocab; c += kSamplingThreads) {
    p[c] = dev::fexp((dev::load(x + c) - top) * a.inverse_temperature);
    sum += p[c];
  }
  sum = dev::block_sum(sum, dev::smem<float>());
  for (std::int64_t c = dev::tid(); c < a.vocab; c += kSamplingThreads) p[c] /= sum;
  dev::block_sync();
  const double u = a.uniforms[row];

  if (a.top_p >= 1.0) {
    // Thread t owns neighbouring tokens: the sums of the threads, added in order, find the owner of the target.
    double* sums = dev::smem<double>(kSamplingThreads / 32 * 16);
    const std::int64_t each = (a.vocab + kSamplingThreads - 1) / kSamplingThreads, first = dev::tid() * each;
    const std::int64_t last = first + each < a.vocab ? first + each : a.vocab;
    double own = 0.0;
    for (std::int64_t c = first; c < last; ++c) own += static_cast<double>(p[c]);
    sums[dev::tid()] = own;
    dev::block_sync();
    if (dev::tid() != 0) return;
    double total = 0.0;
    for (int t = 0; t < kSamplingThreads; ++t) total += sums[t];
    const double target = u * total;
    double before = 0.0;
    std::int32_t token = best;
    for (int t = 0; t < kSamplingThreads; ++t) {
      if (before + sums[t] <= target && t + 1 < kSamplingThreads) {
        before += sums[t];
        continue;
      }
      bool done = false;
      for (std::int64_t c = t * each; c < (t + 1) * each && c < a.vocab && !done; ++c) {
        if (p[c] <= 0.0f) continue;
        token = static_cast<std::int32_t>(c);
        before += static_cast<double>(p[c]);
        done = before > target;
      }
      if (done) break;
    }
    a.tokens[row] = token;
    return;
  }

  // The nucleus: everything above the cut and the first few at it.
  const dev::u32 cut = mass_cut(p, a.vocab, a.top_p, false);
  const double cut_p = static_cast<double>(dev::bits_float(cut)), above = mass_from(p, a.vocab, cut + 1);
  double kept = above;  // mass of the nucleus: tokens at the cut are added one by one, as a walk in order would
  std::int64_t at_cut = 0;
  if (cut_p > 0.0) {
    const double rest = (a.top_p - above) / cut_p;
    at_cut = static_cast<std::int64_t>(rest);
    if (static_cast<double>(at_cut) < rest) ++at_cut;
    if (at_cut < 1) at_cut = 1;
    kept += static_cast<double>(at_cut) * cut_p;
  }
  const double target = u * kept;
  const dev::u32 drawn = target < above ? mass_cut(p, a.vocab, target, true) : cut;
  const double before = mass_from(p, a.vocab, drawn + 1), step = static_cast<double>(dev::bits_float(drawn));
  std::int64_t n = step > 0.0 && target > before ? static_cast<std::int64_t>((target - before) / step) : 0;
  if (drawn == cut && n >= at_cut) n = at_cut > 0 ? at_cut - 1 : 0;
  std::int32_t token = -1;
  while (token < 0 && n >= 0) token = nth_equal(p, a.vocab, drawn, n--);  // rounding may leave the rank one too high
  if (dev::tid() == 0) a.tokens[row] = token < 0 ? best : token;
}

inline void sample(const SamplingArgs& a, simt::Stream stream) {
  with_type(a.type, [&]<class T>() { simt::launch(sampling_kernel<T>, sampling_launch(a), a, stream); });
}

}  // namespace fathom::cuda
