// Time of attention on a GPU: prefill (causal, whole prompt) and decode (one query per sequence).
//
// One work item = 128 query rows (decode: 64 heads of a group) of one (sequence, KV head) with the G = H/K heads packed;
// every item has a fixed cost f.
// Prefill: items = b·K·I, I = ceil(sG/128); item j of I sees ceil(j/G) key blocks of 128, so blocks = b·K·Σ ceil(j/G);
//   unit = 4·128·128·d / ((P/N)·eff)
//   ct = v-norm of ((items·f + blocks·unit)/N, f + ceil(s/128)·unit)            work per SM against the longest item
//   t  = t0 + q-norm(ct, B/(b_eff·W)) + s0·sqrt(ceil(s/128)),  B = w_a·2bHsd + w_kv·2bKsd bytes x 2
// Decode: KV splits z <= min(nb, max_split), nb = ceil(kv/128), items = b·K·ceil(G/64)·z, v = max(1, items/N)
//   ct = ((1-w)v + w·ceil(v))·(f + ceil(nb/z)·blk)
//   mem = KV·(1-hit)/(b_eff·W) + KV·hit/(l·W) + QO/(b_eff·W),  hit = 1/(1+(KV/(c·C2))^4)
//   t  = t0 + min over z of [q-norm(ct, mem) + [z>1]·comb]
#pragma once

#include <array>

#include "lib/gpu/device.hpp"

namespace fathom::gpu {

struct AttentionShape {
  double batch = 1;
  double seq = 1;       // prefill: prompt tokens; decode: visible keys, the new one included
  double heads = 1, kv_heads = 1, head_dim = 128;
  double element_bytes = 2;
};

struct PrefillParams {  // times in microseconds
  double eff = 0.68, f = 1.0, b_eff = 0.3, q = 1.1, t0 = 10, s0 = 0.3, w_a = 1, w_kv = 1, v = 4;
  static constexpr int kCount = 9;
  static const std::array<const char*, kCount>& names();
  std::array<double, kCount> values() const { return {eff, f, b_eff, q, t0, s0, w_a, w_kv, v}; }
  static PrefillParams from(const std::array<double, kCount>& x) { return {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8]}; }
};

struct DecodeParams {  // times in microseconds
  double t0 = 8.6, f = 3.4, blk = 0.28, comb = 1.7, b_eff = 0.95, l = 1.5, c = 0.8, q = 1.2, w = 0.4;
  double max_split = 128;  // 1: the code path never splits the keys (FlashAttention 2 without grouped heads); chosen, not searched
  static constexpr int kCount = 9;
  static const std::array<const char*, kCount>& names();
  std::array<double, kCount> values() const { return {t0, f, blk, comb, b_eff, l, c, q, w}; }
  static DecodeParams from(const std::array<double, kCount>& x, double max_split = 128) {
    return {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], max_split};
  }
};

struct AttentionEstimate {
  double seconds = 0;
  double items = 0, blocks = 0;  // work items; key blocks over all items
  double split = 1, waves = 0;   // decode: KV splits and waves of items
  double flops = 0, kv_bytes = 0, io_bytes = 0, hit = 0;
  double compute_s = 0, memory_s = 0, combine_s = 0, sequence_s = 0, fixed_s = 0;
  const char* binding = "";  // "compute", "memory" or "fixed"
};

AttentionEstimate explain_prefill(const AttentionShape& shape, const GpuDevice& device, const PrefillParams& params);
AttentionEstimate explain_decode(const AttentionShape& shape, const GpuDevice& device, const DecodeParams& params);
double predict_prefill(const AttentionShape& shape, const GpuDevice& device, const PrefillParams& params);
double predict_decode(const AttentionShape& shape, const GpuDevice& device, const DecodeParams& params);

}  // namespace fathom::gpu
