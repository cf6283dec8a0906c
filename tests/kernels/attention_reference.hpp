// Attention in double by its definition, one query at a time, and the problems the attention tests share.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention_bf16.hpp"

namespace fathom::cpu::testing {

struct AttentionCase {
  std::vector<std::int64_t> lengths;  // rows of each sequence
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 64;
  std::int64_t window = 0;
  bool gaps = false;  // positions ascend with gaps, as in a routed block

  std::string name() const {
    std::string text = "lengths";
    for (const auto n : lengths) text += ' ' + std::to_string(n);
    return text + " heads " + std::to_string(heads) + '/' + std::to_string(kv_heads) + " d " + std::to_string(head_dim) + " window " +
           std::to_string(window) + (gaps ? " gaps" : "");
  }
};

// The inputs in one qkv buffer, as a network has them, with `kPad` spare columns of sentinels.
struct AttentionProblem {
  static constexpr std::int64_t kPad = 3;
  AttentionCase shape;
  std::int64_t total = 0;
  std::int64_t qkv_stride = 0;
  std::int64_t out_stride = 0;
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> positions;
  std::vector<bf16> qkv;
  std::vector<bf16> dout;
  AttentionInputs in;

  explicit AttentionProblem(const AttentionCase& c, unsigned seed = 1) : shape(c) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    begin.push_back(0);
    for (const auto n : c.lengths) begin.push_back(begin.back() + n);
    total = begin.back();
    for (const auto n : c.lengths) {
      std::int32_t position = static_cast<std::int32_t>(random() % 3);
      for (std::int64_t r = 0; r < n; ++r) {
        positions.push_back(position);
        position += c.gaps ? 1 + static_cast<std::int32_t>(random() % 7) : 1;
      }
    }
    qkv_stride = std::int64_t{c.heads + 2 * c.kv_heads} * c.head_dim + kPad;
    out_stride = std::int64_t{c.heads} * c.head_dim + kPad;
    qkv.resize(static_cast<std::size_t>(total * qkv_stride));
    dout.resize(static_cast<std::size_t>(total * out_stride));
    for (auto& x : qkv) x = bf16(normal(random));
    for (auto& x : dout) x = bf16(normal(random));
    in.batch = static_cast<std::int64_t>(c.lengths.size());
    in.sequence_begin = begin.data();
    in.heads = c.heads;
    in.kv_heads = c.kv_heads;
    in.head_dim = c.head_dim;
    in.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    in.window = c.window;
    in.positions = c.gaps || c.window > 0 ? positions.data() : nullptr;
    in.q = qkv.data();
    in.k = qkv.data() + std::int64_t{c.heads} * c.head_dim;
    in.v = qkv.data() + std::int64_t{c.heads + c.kv_heads} * c.head_dim;
    in.q_stride = in.k_stride = in.v_stride = qkv_stride;
  }

  AttentionProblem(const AttentionProblem&) = delete;
  AttentionProblem& operator=(const AttentionProblem&) = delete;
};

// Dense double arrays: q, out, dout, dq [rows][heads][d]; k, v, dk, dv [rows][kv_heads][d]; lse [rows][heads].
struct DoubleAttention {
  AttentionCase shape;
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> positions;
  double scale = 1;
  std::vector<double> q, k, v, out, lse, dout, dq, dk, dv;

  explicit DoubleAttention(const AttentionProblem& p)
      : shape(p.shape), begin(p.begin), positions(p.positions), scale(static_cast<double>(p.in.scale)) {
    const std::int64_t width = std::int64_t{shape.heads} * shape.head_dim, kv_width = std::int64_t{shape.kv_heads} * shape.head_dim;
    for (std::int64_t r = 0; r < p.total; ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        q.push_back(static_cast<double>(float{p.in.q[r * p.qkv_stride + i]}));
        dout.push_back(static_cast<double>(float{p.dout[static_cast<std::size_t>(r * p.out_stride + i)]}));
      }
      for (std::int64_t i = 0; i < kv_width; ++i) {
        k.push_back(static_cast<double>(float{p.in.k[r * p.qkv_stride + i]}));
        v.push_back(static_cast<double>(float{p.in.v[r * p.qkv_stride + i]}));
      }
    }
    out.resize(q.size());
    lse.resize(static_cast<std::size_t>(p.total * shape.heads));
    dq.resize(q.size());
    dk.resize(k.size());
    dv.resize(v.size());
  }

  std::size_t at(std::int64_t row, int heads, int head) const {
    return static_cast<std::size_t>((row * heads + head) * shape.head_dim);
  }
  int kv_head(int head) const { return head / (shape.heads / shape.kv_heads); }
  bool visible(std::int64_t query, std::int64_t key) const {
    if (key > query) return false;
    return shape.window == 0 || positions[static_cast<std::size_t>(query)] - positions[static_cast<std::size_t>(key)] < shape.window;
  }
  double dot(const std::vector<double>& a, std::size_t i, const std::vector<double>& b, std::size_t j) const {
    double sum = 0;
    for (int d = 0; d < shape.head_dim; ++d) sum += a[i + static_cast<std::size_t>(d)] * b[j + static_cast<std::size_t>(d)];
    return sum;
  }

  // Calls f(sequence begin, query, head) for every query row.
  template <class F>
  void each_query(F&& f) const {
    for (std::size_t s = 0; s + 1 < begin.size(); ++s) {
      for (std::int64_t b = begin[s]; b < begin[s + 1]; ++b) {
        for (int h = 0; h < shape.heads; ++h) f(begin[s], b, h);
      }
    }
  }

  void forward() {
    each_query([&](std::int64_t first, std::int64_t b, int h) {
      const std::size_t query = at(b, shape.heads, h);
      std::vector<double> p;
      double max = -1e300, sum = 0;
      for (std::int64_t a = first; a <= b; ++a) {
        p.push_back(visible(b, a) ? scale * dot(q, query, k, at(a, shape.kv_heads, kv_head(h))) : -1e300);
        max = std::max(max, p.back());
      }
      for (double& x : p) sum += x = std::exp(x - max);
      for (int d = 0; d < shape.head_dim; ++d) {
        double o = 0;
        for (std::int64_t a = first; a <= b; ++a) {
          o += p[static_cast<std::size_t>(a - first)] * v[at(a, shape.kv_heads, kv_head(h)) + static_cast<std::size_t>(d)];
        }
        out[query + static_cast<std::size_t>(d)] = o / sum;
      }
      lse[static_cast<std::size_t>(b * shape.heads + h)] = max + std::log(sum);
    });
  }

  // Needs forward().
  void backward() {
    each_query([&](std::int64_t first, std::int64_t b, int h) {
      const std::size_t query = at(b, shape.heads, h);
      const double delta = dot(dout, query, out, query);
      for (std::int64_t a = first; a <= b; ++a) {
        if (!visible(b, a)) continue;
        const std::size_t key = at(a, shape.kv_heads, kv_head(h));
        const double p = std::exp(scale * dot(q, query, k, key) - lse[static_cast<std::size_t>(b * shape.heads + h)]);
        const double ds = p * (dot(dout, query, v, key) - delta) * scale;
        for (std::size_t d = 0; d < static_cast<std::size_t>(shape.head_dim); ++d) {
          dv[key + d] += p * dout[query + d];
          dq[query + d] += ds * k[key + d];
          dk[key + d] += ds * q[query + d];
        }
      }
    });
  }

  // <dout, out>: the scalar whose gradient backward() gives.
  double objective() {
    forward();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  }
};

// |a - b| / |b| in the 2-norm over a strided bf16 view and a dense double array. Where b is zero (a window of one key has no
// gradient for q and k) the root mean square of a.
inline double relative_error(const bf16* a, std::int64_t stride, std::int64_t rows, std::int64_t width, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double x = static_cast<double>(float{a[r * stride + i]}), y = b[static_cast<std::size_t>(r * width + i)];
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  }
  if (norm > 1e-12) return std::sqrt(difference / norm);
  return rows * width > 0 ? std::sqrt(difference / static_cast<double>(rows * width)) : 0.0;
}

// Levels this machine can execute, slowest first.
inline std::vector<Isa> executable_levels() {
  std::vector<Isa> levels;
  for (const Isa level : {Isa::kBase, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (level <= cpu_info().isa) levels.push_back(level);
  }
  return levels;
}

inline std::vector<AttentionCase> attention_cases() {
  return {
      {{0}, 2, 2, 64, 0, false},
      {{1}, 2, 1, 64, 0, false},
      {{2}, 1, 1, 8, 0, false},
      {{17}, 2, 2, 16, 0, false},
      {{33}, 4, 2, 32, 0, true},
      {{31, 0, 1, 65}, 3, 1, 64, 0, false},
      {{129}, 2, 2, 80, 0, false},
      {{160}, 2, 1, 96, 0, true},
      {{257}, 2, 2, 128, 0, false},
      {{300, 77}, 6, 2, 64, 0, false},
      {{100}, 2, 2, 64, 1, false},
      {{100}, 2, 2, 64, 7, false},
      {{300}, 2, 1, 64, 64, false},
      {{300}, 2, 2, 64, 100, true},
      {{401, 203}, 4, 2, 32, 150, true},
      {{90}, 1, 1, 40, 33, true},
      {{70}, 1, 1, 160, 0, false},
      {{70}, 1, 1, 192, 0, false},
      {{70}, 1, 1, 224, 0, false},
      {{70}, 2, 1, 256, 20, false},
      {{50}, 1, 1, 264, 0, false},
      {{45}, 1, 1, 5, 0, false},
  };
}

}  // namespace fathom::cpu::testing
