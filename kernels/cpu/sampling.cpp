#include "kernels/cpu/sampling.hpp"

#include <Random123/philox.h>

#include <algorithm>

#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {
namespace {

// Probabilities in order of (-p, token) up to the first whose cumulated sum reaches top_p; returns how many tokens that is.
// Only a prefix is sorted, doubled until it is long enough: nuclei are small.
std::int64_t nucleus(const float* p, std::int64_t count, double top_p, std::int32_t* order) {
  for (std::int64_t i = 0; i < count; ++i) order[i] = static_cast<std::int32_t>(i);
  const auto before = [p](std::int32_t a, std::int32_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; };
  std::int64_t sorted = 0;
  double mass = 0;
  for (std::int64_t target = 64; sorted < count; target *= 4) {
    const std::int64_t end = std::min(count, target);
    if (end < count) std::nth_element(order + sorted, order + end, order + count, before);
    std::sort(order + sorted, order + end, before);
    for (; sorted < end; ++sorted) {
      mass += p[order[sorted]];
      if (mass >= top_p) return sorted + 1;
    }
  }
  return count;
}

}  // namespace

std::int64_t argmax(DType type, const void* logits, std::int64_t count) { return vector_kernels().argmax[storage(type)](logits, count); }

double uniform_draw(std::uint64_t seed, std::uint64_t draw) {
  const r123::Philox4x32::ctr_type counter = {{static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0, 0}};
  const r123::Philox4x32::key_type key = {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  const auto bits = r123::Philox4x32()(counter, key);
  return static_cast<double>((static_cast<std::uint64_t>(bits[0]) << 32 | bits[1]) >> 11) * 0x1p-53;
}

std::int64_t sample_workspace_bytes(std::int64_t count) { return count * 8; }

std::int64_t sample_token(const Sampling& s, DType type, const void* logits, std::int64_t count, void* workspace) {
  if (!(s.temperature >= 0) || !(s.top_p > 0 && s.top_p <= 1)) throw_internal("sample_token: temperature must be >= 0 and top_p in (0, 1]");
  const VectorKernels& kernels = vector_kernels();
  const std::int64_t best = argmax(type, logits, count);
  if (best < 0 || s.temperature == 0) return best;
  float* p = static_cast<float*>(workspace);
  auto* order = static_cast<std::int32_t*>(static_cast<void*>(p + count));
  if (type == DType::kBF16) {
    kernels.to_f32(static_cast<const bf16*>(logits), p, 0, count);
    kernels.softmax_row(p, p, count, static_cast<float>(1 / s.temperature));
  } else {
    kernels.softmax_row(static_cast<const float*>(logits), p, count, static_cast<float>(1 / s.temperature));
  }
  const bool all = s.top_p >= 1;
  const std::int64_t kept = all ? count : nucleus(p, count, s.top_p, order);
  const auto token = [&](std::int64_t i) { return all ? i : static_cast<std::int64_t>(order[i]); };
  double total = 0;
  for (std::int64_t i = 0; i < kept; ++i) total += p[token(i)];
  const double target = uniform_draw(s.seed, s.draw) * total;
  double sum = 0;
  std::int64_t last = best;
  for (std::int64_t i = 0; i < kept; ++i) {
    if (p[token(i)] <= 0) continue;
    last = token(i);
    sum += p[last];
    if (sum > target) return last;
  }
  return last;  // rounding left the target at the very end
}

}  // namespace fathom::cpu
