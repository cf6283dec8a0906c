// By which measure the results of an op are compared: see held_columns in check.hpp.
#include <algorithm>
#include <cmath>

#include "tools/check.hpp"

namespace fathom {
namespace {

// An operand as doubles.
struct Values {
  Values(const ProgramExecution& run, const OperandView& view) : data(run.read(view.at)), rows(view.rows), cols(view.cols) {}
  double at(std::int64_t r, std::int64_t c) const { return std::abs(static_cast<double>(data[static_cast<size_t>(r * cols + c)])); }
  double top(std::int64_t first, std::int64_t count) const {
    double most = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = first; c < first + count; ++c) most = std::max(most, at(r, c));
    return most;
  }
  double top() const { return top(0, cols); }
  std::vector<float> data;
  std::int64_t rows, cols;
};

double gate_slope(const Gate& gate, double score) {
  const double sigma = 1 / (1 + std::exp(-score)), tanh = std::tanh(score);
  switch (gate.kind) {
    case GateKind::kNone: return 0;
    case GateKind::kRaw: return 1;
    case GateKind::kSigmoid: return sigma * (1 - sigma);
    case GateKind::kScaledSigmoid: return std::abs(gate.alpha) * sigma * (1 - sigma);
    case GateKind::kTanh: return std::abs(gate.alpha) * (1 - tanh * tanh);
  }
  return 0;
}

// sum_c |a[i,c] b[j,c]|: what a scalar product is made of.
double product_of_rows(const Values& a, std::int64_t i, const Values& b, std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < a.cols; ++c) sum += a.at(i, c) * b.at(j, c);
  return sum;
}

using Held = std::vector<std::vector<HeldColumns>>;

// dx = inverse (u - mean(u) - h mean(u h)), u = dy gain, |h| of order 1: terms of the size inverse |u| of their row. dgain and dbias are sums of
// dy h and dy.
void hold_norm(Held& held, const Values& dy, const Values* gain, const Values& stats, std::int64_t inverses, std::int64_t groups, std::int64_t width,
               std::int64_t offset) {
  double terms = 0;
  for (std::int64_t r = 0; r < dy.rows; ++r) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const double inverse = std::abs(static_cast<double>(stats.data[static_cast<size_t>(inverses + r * groups + group)]));
      for (std::int64_t c = 0; c < width; ++c)
        terms = std::max(terms, inverse * dy.at(r, offset + group * width + c) * (gain ? gain->at(gain->rows > 1 ? group : 0, c) : 1));
    }
  }
  const std::int64_t own = groups * width, cols = held[0][0].count;
  held[0] = {{0, offset, 0}, {offset, own, terms}, {offset + own, cols - offset - own, 0}};
  for (size_t o = 1; o < held.size(); ++o) held[o][0].scale = dy.top(offset, own);
}

// Scores' gradients are p (dp - <do, o>) with dp = <do, v>, a difference that vanishes where a query sees one key; dq and dk are sums of them
// times keys and queries. dv has no such difference.
void hold_attention(Held& held, const Attention& a, const ProgramExecution& run, const BoundOp& bound) {
  const Values first(run, bound.in[0]), gradient(run, bound.in[4]);
  const std::int64_t q = a.heads * a.qk_dim, k = a.kv_heads * a.qk_dim, v = a.kv_heads * a.v_dim;
  const std::int64_t k_at = a.apart ? 0 : q;
  const Values second = a.apart ? Values(run, bound.in[5]) : first;
  const double scores = gradient.top() * second.top(k_at + k, v);
  const HeldColumns dk{k_at, k, scores * first.top(0, q)}, dv{k_at + k, v, 0};
  held[0] = {{0, q, scores * second.top(k_at, k)}};
  auto& keys = a.apart ? held[1] : held[0];
  if (a.apart) keys.clear();
  keys.push_back(dk);
  keys.push_back(dv);
  if (a.sinks && held.size() > (a.apart ? 2u : 1u)) held.back()[0].scale = gradient.top() * Values(run, bound.in[2]).top();
}

}  // namespace

std::vector<std::vector<HeldColumns>> held_columns(const ProgramExecution& run, const BoundOp& bound) {
  Held held;
  for (const OperandView& view : bound.out) held.push_back({{0, view.cols, 0}});
  const auto in = [&](size_t i) { return Values(run, bound.in[i]); };
  if (const auto* op = std::get_if<RmsNormBackward>(bound.spec)) {
    const RmsNorm& f = op->forward;
    const size_t at = f.gains > 0 ? 2 : 1;
    const Values gain = in(1);
    hold_norm(held, in(at + 1), at == 2 ? &gain : nullptr, in(at), 0, f.groups, f.width, f.offset);
  } else if (const auto* layer = std::get_if<LayerNormBackward>(bound.spec)) {
    const LayerNorm& f = layer->forward;
    const size_t at = f.gain ? 2 : 1;
    const Values gain = in(1), stats = in(at);
    hold_norm(held, in(at + 1), at == 2 ? &gain : nullptr, stats, stats.rows, 1, f.width, 0);
  } else if (const auto* attention = std::get_if<AttentionBackward>(bound.spec)) {
    hold_attention(held, attention->forward, run, bound);
  } else if (const auto* scatter = std::get_if<ScatterAddBackward>(bound.spec)) {
    if (scatter->forward.gate.kind == GateKind::kNone) return held;
    const Values dy = in(0), f = in(1), indices = in(2), scores = in(3);
    for (std::int64_t j = 0; j < f.rows; ++j) {
      const auto row = static_cast<std::int64_t>(indices.data[static_cast<size_t>(j)]);
      held[1][0].scale = std::max(held[1][0].scale, gate_slope(scatter->forward.gate, scores.data[static_cast<size_t>(row)]) * product_of_rows(dy, row, f, j));
    }
  } else if (std::holds_alternative<ExpertCombineBackward>(*bound.spec)) {
    const Values dy = in(0), x = in(1), tokens = in(2);
    for (std::int64_t j = 0; j < x.rows && tokens.data[static_cast<size_t>(j)] >= 0; ++j)
      held[1][0].scale = std::max(held[1][0].scale, product_of_rows(dy, static_cast<std::int64_t>(tokens.data[static_cast<size_t>(j)]), x, j));
    if (held.size() > 3) {
      const Values shared = in(4);
      for (std::int64_t t = 0; t < dy.rows; ++t) held[3][0].scale = std::max(held[3][0].scale, product_of_rows(dy, t, shared, t) / 4);
    }
  }
  return held;
}

double relative_difference(const std::vector<float>& got, const std::vector<float>& want, std::int64_t cols, const std::vector<HeldColumns>& held) {
  double worst = 0;
  std::vector<float> a, b;
  for (const HeldColumns& part : held) {
    a.clear(), b.clear();
    for (size_t row = 0; row + static_cast<size_t>(cols) <= want.size() && part.count > 0; row += static_cast<size_t>(cols)) {
      const auto first = static_cast<std::ptrdiff_t>(row) + part.first, last = first + part.count;
      a.insert(a.end(), got.begin() + first, got.begin() + last);
      b.insert(b.end(), want.begin() + first, want.begin() + last);
    }
    worst = std::max(worst, relative_difference(a, b, part.scale));
  }
  return worst;
}

}  // namespace fathom
