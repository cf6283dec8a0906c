// A problem of the f32 attention kernels, as the engine lays out its operands, and both passes of it by the definition, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/attention_f32.hpp"

namespace fathom::testing::attention_f32 {

using cpu::AttentionShape;
using cpu::ConstView;
using Index = std::int64_t;

// May query i of sequence b see key j?
inline bool visible(const AttentionShape& s, Index b, Index i, Index j) {
  const auto floor_div = [](Index a, Index n) { return a / n - (a % n < 0 ? 1 : 0); };
  const Index at = s.q_positions != nullptr ? s.q_positions[b * s.q_rows + i] : s.q_offset + i;
  const Index key = s.kv_positions != nullptr ? s.kv_positions[b * s.kv_rows + j] : j;
  if (s.causal && key > at) return false;
  if (s.window > 0 && at - key >= s.window) return false;
  return s.chunk == 0 || floor_div(at, s.chunk) == floor_div(key, s.chunk);
}

// Operands in one qkv buffer per side, as the engine lays them out, with some unused columns to the right.
struct Problem {
  AttentionShape shape;
  Index q_width, kv_width, out_width;
  std::vector<float> q, kv, d_out;  // rows of q_width; rows of kv_width = keys then values; rows of out_width
  std::vector<std::int32_t> q_positions, kv_positions;

  explicit Problem(AttentionShape s, unsigned seed = 1) : shape(s) {
    q_width = s.heads * s.d_qk + 3;
    kv_width = s.kv_heads * (s.d_qk + s.d_v) + 5;
    out_width = s.heads * s.d_v + 7;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    q.resize(s.batch * s.q_rows * q_width);
    kv.resize(s.batch * s.kv_rows * kv_width);
    d_out.resize(s.batch * s.q_rows * out_width);
    for (float& x : q) x = normal(random);
    for (float& x : kv) x = normal(random);
    for (float& x : d_out) x = normal(random);
  }

  // Ascending positions with gaps, the same for queries and keys (a routed block).
  void gaps(unsigned seed) {
    std::mt19937 random(seed);
    kv_positions.clear();
    for (Index b = 0; b < shape.batch; ++b) {
      std::int32_t position = static_cast<std::int32_t>(random() % 3);
      for (Index j = 0; j < shape.kv_rows; ++j, position += 1 + static_cast<std::int32_t>(random() % 6)) {
        kv_positions.push_back(position);
      }
    }
    q_positions = kv_positions;
    shape.kv_positions = kv_positions.data();
    shape.q_positions = q_positions.data();
  }

  ConstView q_view() const { return {q.data(), q_width, 0}; }
  ConstView k_view() const { return {kv.data(), kv_width, 0}; }
  ConstView v_view() const { return {kv.data() + shape.kv_heads * shape.d_qk, kv_width, 0}; }
};

struct Reference {
  std::vector<double> out, lse, dq, dkv;  // dense: heads * d_v, heads, heads * d_qk, kv_heads * (d_qk + d_v) per row
};

inline Reference reference(const Problem& p) {
  const AttentionShape& s = p.shape;
  const double scale = s.scale > 0 ? s.scale : 1.0 / std::sqrt(static_cast<double>(s.d_qk));
  const Index k_columns = s.kv_heads * s.d_qk, kv_columns = s.kv_heads * (s.d_qk + s.d_v);
  Reference r;
  r.out.assign(s.batch * s.q_rows * s.heads * s.d_v, 0.0);
  r.lse.assign(s.batch * s.q_rows * s.heads, -std::numeric_limits<double>::infinity());
  r.dq.assign(s.batch * s.q_rows * s.heads * s.d_qk, 0.0);
  r.dkv.assign(s.batch * s.kv_rows * kv_columns, 0.0);
  std::vector<double> prob(s.kv_rows), dp(s.kv_rows);
  for (Index b = 0; b < s.batch; ++b)
    for (Index i = 0; i < s.q_rows; ++i)
      for (Index h = 0; h < s.heads; ++h) {
        const Index row = b * s.q_rows + i, g = h / (s.heads / s.kv_heads);
        const float* q = p.q.data() + row * p.q_width + h * s.d_qk;
        const float* d_out = p.d_out.data() + row * p.out_width + h * s.d_v;
        const auto key = [&](Index j) { return p.kv.data() + (b * s.kv_rows + j) * p.kv_width + g * s.d_qk; };
        const auto value = [&](Index j) { return p.kv.data() + (b * s.kv_rows + j) * p.kv_width + k_columns + g * s.d_v; };
        double top = -std::numeric_limits<double>::infinity(), sum = 0.0, delta = 0.0;
        for (Index j = 0; j < s.kv_rows; ++j) {
          prob[j] = -std::numeric_limits<double>::infinity();
          if (!visible(s, b, i, j)) continue;
          double score = 0.0;
          for (Index e = 0; e < s.d_qk; ++e) score += static_cast<double>(q[e]) * key(j)[e];
          prob[j] = score * scale;
          top = std::max(top, prob[j]);
        }
        if (std::isinf(top)) continue;
        for (Index j = 0; j < s.kv_rows; ++j) sum += prob[j] = std::exp(prob[j] - top);
        r.lse[row * s.heads + h] = top + std::log(sum);
        double* out = r.out.data() + (row * s.heads + h) * s.d_v;
        for (Index j = 0; j < s.kv_rows; ++j) {
          prob[j] /= sum;
          dp[j] = 0.0;
          if (prob[j] == 0.0) continue;
          for (Index e = 0; e < s.d_v; ++e) {
            out[e] += prob[j] * value(j)[e];
            dp[j] += static_cast<double>(d_out[e]) * value(j)[e];
          }
          delta += prob[j] * dp[j];
        }
        for (Index j = 0; j < s.kv_rows; ++j) {
          if (prob[j] == 0.0) continue;
          double* dk = r.dkv.data() + (b * s.kv_rows + j) * kv_columns + g * s.d_qk;
          double* dv = r.dkv.data() + (b * s.kv_rows + j) * kv_columns + k_columns + g * s.d_v;
          const double ds = prob[j] * (dp[j] - delta) * scale;
          for (Index e = 0; e < s.d_qk; ++e) {
            dk[e] += ds * q[e];
            r.dq[(row * s.heads + h) * s.d_qk + e] += ds * key(j)[e];
          }
          for (Index e = 0; e < s.d_v; ++e) dv[e] += prob[j] * d_out[e];
        }
      }
  return r;
}

}  // namespace fathom::testing::attention_f32
