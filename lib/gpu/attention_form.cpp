#include "lib/gpu/attention_form.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/error.hpp"

namespace fathom::gpu {
namespace {

constexpr double kMicro = 1e-6;
constexpr std::array<double, 13> kKvSplits = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128};

double norm_q(double a, double b, double q) {
  const double large = std::max(a, b), small = std::min(a, b);
  if (large <= 0) return 0;
  return large * std::pow(1.0 + std::pow(small / large, q), 1.0 / q);
}

void check(const AttentionShape& s) {
  if (!(s.batch >= 1 && s.seq >= 1 && s.heads >= 1 && s.kv_heads >= 1 && s.head_dim >= 1))
    throw_input("attention needs batch, length, heads, kv_heads and head_dim of at least 1");
  if (s.heads < s.kv_heads || std::fmod(s.heads, s.kv_heads) != 0) throw_input("attention heads must be a multiple of kv_heads");
}

const char* binding_of(const AttentionEstimate& e) {
  if (e.fixed_s >= std::max(e.compute_s, e.memory_s)) return "fixed";
  return e.compute_s >= e.memory_s ? "compute" : "memory";
}

}  // namespace

const std::array<const char*, PrefillParams::kCount>& PrefillParams::names() {
  static const std::array<const char*, kCount> names = {"eff", "f_us", "b_eff", "q", "t0_us", "s0_us", "w_a", "w_kv", "v"};
  return names;
}

const std::array<const char*, DecodeParams::kCount>& DecodeParams::names() {
  static const std::array<const char*, kCount> names = {"t0_us", "f_us", "blk_us", "comb_us", "b_eff", "l", "c", "q", "w"};
  return names;
}

AttentionEstimate explain_prefill(const AttentionShape& s, const GpuDevice& d, const PrefillParams& p) {
  check(s);
  AttentionEstimate e;
  const double group = s.heads / s.kv_heads;
  const double per_head = std::ceil(s.seq * group / 128.0);  // I
  const double full = std::floor(per_head / group);          // groups of G items that see 1, 2, ... blocks
  const double blocks = group * full * (full + 1) / 2 + (per_head - full * group) * (full + 1);
  const double unit = 4.0 * 128 * 128 * s.head_dim / ((d.peak_flops / d.sms) * p.eff);
  const double longest = std::ceil(s.seq / 128.0);
  e.items = s.batch * s.kv_heads * per_head;
  e.blocks = s.batch * s.kv_heads * blocks;
  e.flops = 4.0 * s.batch * s.heads * s.head_dim * s.seq * (s.seq + 1) / 2;
  e.compute_s = norm_q((e.items * p.f * kMicro + e.blocks * unit) / d.sms, p.f * kMicro + longest * unit, p.v);
  e.io_bytes = 2 * s.batch * s.heads * s.seq * s.head_dim * s.element_bytes;
  e.kv_bytes = 2 * s.batch * s.kv_heads * s.seq * s.head_dim * s.element_bytes;
  e.memory_s = (p.w_a * e.io_bytes + p.w_kv * e.kv_bytes) / (p.b_eff * d.dram_bytes_per_s);
  e.sequence_s = p.s0 * kMicro * std::sqrt(longest);
  e.fixed_s = p.t0 * kMicro;
  e.waves = std::max(1.0, e.items / d.sms);
  e.seconds = e.fixed_s + norm_q(e.compute_s, e.memory_s, p.q) + e.sequence_s;
  e.binding = binding_of(e);
  return e;
}

AttentionEstimate explain_decode(const AttentionShape& s, const GpuDevice& d, const DecodeParams& p) {
  check(s);
  AttentionEstimate e;
  const double group = s.heads / s.kv_heads;
  const double key_blocks = std::ceil(s.seq / 128.0);
  e.kv_bytes = 2 * s.batch * s.kv_heads * s.seq * s.head_dim * s.element_bytes;
  e.io_bytes = 2 * s.batch * s.heads * s.head_dim * s.element_bytes;
  e.flops = 4.0 * s.batch * s.heads * s.head_dim * s.seq;
  const double x = e.kv_bytes / (p.c * d.l2_bytes), x2 = x * x;
  e.hit = 1 / (1 + x2 * x2);
  const double w = d.dram_bytes_per_s;
  e.memory_s = e.kv_bytes * (1 - e.hit) / (p.b_eff * w) + e.kv_bytes * e.hit / (p.l * w) + e.io_bytes / (p.b_eff * w);
  e.fixed_s = p.t0 * kMicro;
  // Memory time is the same for every split: the smallest compute time wins among z > 1, and competes with z = 1.
  const double per_split = s.batch * s.kv_heads * std::ceil(group / 64.0);
  double best = std::numeric_limits<double>::infinity();
  for (double z : kKvSplits) {
    if (z > key_blocks || z > p.max_split) break;
    const double v = std::max(1.0, per_split * z / d.sms);
    const double waves = (1 - p.w) * v + p.w * std::ceil(v);
    const double compute = waves * (p.f + std::ceil(key_blocks / z) * p.blk) * kMicro;
    if (z > 1 && compute >= best) continue;
    const double combine = z > 1 ? p.comb * kMicro : 0.0;
    // Compare by the term that differs; the norm is monotone in compute, so z > 1 entries are compared among themselves.
    if (z == 1 || e.split > 1 || norm_q(compute, e.memory_s, p.q) + combine < norm_q(best, e.memory_s, p.q)) {
      best = compute;
      e.split = z, e.waves = waves, e.items = per_split * z, e.compute_s = compute, e.combine_s = combine;
    }
  }
  e.blocks = per_split * key_blocks;
  e.seconds = e.fixed_s + norm_q(e.compute_s, e.memory_s, p.q) + e.combine_s;
  e.binding = binding_of(e);
  return e;
}

double predict_prefill(const AttentionShape& s, const GpuDevice& d, const PrefillParams& p) { return explain_prefill(s, d, p).seconds; }
double predict_decode(const AttentionShape& s, const GpuDevice& d, const DecodeParams& p) { return explain_decode(s, d, p).seconds; }

}  // namespace fathom::gpu
