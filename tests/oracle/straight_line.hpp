// A dense or Mixture-of-Depths transformer as one straight program of plain loops, written from the paper (arXiv 2404.02258, section 3)
// and from the usual definitions, not from the op list. Templates over the scalar: double for values and central differences,
// Var (scalar_tape.hpp) for the derivative of the loss by every parameter.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/network.hpp"
#include "tests/oracle/scalar_tape.hpp"

namespace fathom::testing {

// Parameters by name within a layer ("attn/qkv/weight") and layer; embedding and head have layer -1 and their full names.
template <class T>
using Parameters = std::map<std::pair<std::string, int>, std::vector<T>>;

template <class T>
using Table = std::vector<std::vector<T>>;

template <class T>
struct Outcome {
  Table<T> logits;               // [tokens of all sequences][vocab]
  T loss = T(0);                 // cross entropy
  T auxiliary = T(0);            // all router losses
  std::vector<std::vector<int>> selected;  // per routed layer: rows of all sequences
  Table<double> scores;                    // per routed layer
};

enum class Rule { kTopC, kThreshold };

template <class T>
class StraightLine {
 public:
  StraightLine(const Network& network, const Parameters<T>& parameters, double epsilon) : net_(network), p_(parameters), epsilon_(epsilon) {}

  Outcome<T> run(const std::vector<int>& tokens, const std::vector<int>& targets, int sequences, Rule rule = Rule::kTopC) {
    const int rows = static_cast<int>(tokens.size()), length = rows / sequences, width = static_cast<int>(net_.width);
    Outcome<T> out;
    Table<T> x(tokens.size());
    for (int i = 0; i < rows; ++i) {
      for (int c = 0; c < width; ++c) {
        T value = at("embed/table", -1)[static_cast<size_t>(tokens[static_cast<size_t>(i)] * width + c)];
        if (net_.positions == PositionKind::kLearned) value = value + at("embed/positions", -1)[static_cast<size_t>(i % length * width + c)];
        x[static_cast<size_t>(i)].push_back(value);
      }
    }
    for (int layer = 0; layer < net_.layer_count(); ++layer) {
      const BlockConfig& block = net_.block(layer);
      if (!block.route) {
        for (int s = 0; s < sequences; ++s) {
          Table<T> own(x.begin() + s * length, x.begin() + (s + 1) * length);
          std::vector<int> positions(static_cast<size_t>(length));
          for (int i = 0; i < length; ++i) positions[static_cast<size_t>(i)] = i;
          const Table<T> f = update(layer, own, positions);
          for (int i = 0; i < length; ++i)
            for (int c = 0; c < width; ++c) x[static_cast<size_t>(s * length + i)][static_cast<size_t>(c)] += f[static_cast<size_t>(i)][static_cast<size_t>(c)];
        }
      } else {
        x = routed(layer, x, sequences, rule, out);
      }
    }
    head(x, targets, out);
    return out;
  }

 private:
  const std::vector<T>& at(const std::string& name, int layer) const { return p_.at({name, layer}); }
  bool has(const std::string& name, int layer) const { return p_.count({name, layer}) != 0; }

  Table<T> routed(int layer, const Table<T>& x, int sequences, Rule rule, Outcome<T>& out) {
    const Route& route = *net_.block(layer).route;
    const int rows = static_cast<int>(x.size()), length = rows / sequences, width = static_cast<int>(net_.width);
    std::vector<T> r;
    for (int i = 0; i < rows; ++i) {
      T score = route.router_bias ? at("route/score/bias", layer)[0] : T(0);
      for (int c = 0; c < width; ++c) score += x[static_cast<size_t>(i)][static_cast<size_t>(c)] * at("route/score/weight", layer)[static_cast<size_t>(c)];
      r.push_back(score);
    }
    out.scores.emplace_back();
    for (const T& score : r) out.scores.back().push_back(value_of(score));
    out.selected.emplace_back();
    Table<T> y = x;
    for (int s = 0; s < sequences; ++s) {
      // C best of the sequence: position i is in iff fewer than C positions stand before it in the order (higher score, lower position).
      const int slots = static_cast<int>(slots_of(route, length));
      std::vector<int> chosen;
      for (int i = 0; i < length; ++i) {
        const double own = value_of(r[static_cast<size_t>(s * length + i)]);
        int before = 0;
        for (int j = 0; j < length; ++j) {
          const double other = value_of(r[static_cast<size_t>(s * length + j)]);
          before += other > own || (other == own && j < i);
        }
        if (rule == Rule::kTopC ? before < slots : own > 0) chosen.push_back(i);
      }
      Table<T> gathered;
      for (const int i : chosen) gathered.push_back(x[static_cast<size_t>(s * length + i)]);
      const Table<T> f = update(layer, gathered, chosen);
      for (size_t k = 0; k < chosen.size(); ++k) {
        const size_t row = static_cast<size_t>(s * length + chosen[k]);
        out.selected.back().push_back(static_cast<int>(row));
        for (int c = 0; c < width; ++c) y[row][static_cast<size_t>(c)] += gate(route.gate, r[row]) * f[k][static_cast<size_t>(c)];
      }
    }
    // Auxiliary loss: was it selected? Mean over all rows. Detached: its gradient reaches the router but not the stream.
    if (route.aux_lambda > 0) {
      T sum = T(0);
      for (int i = 0; i < rows; ++i) {
        T score = r[static_cast<size_t>(i)];
        if (route.aux_detached) {
          score = route.router_bias ? at("route/score/bias", layer)[0] : T(0);
          for (int c = 0; c < width; ++c)
            score += T(value_of(x[static_cast<size_t>(i)][static_cast<size_t>(c)])) * at("route/score/weight", layer)[static_cast<size_t>(c)];
        }
        const auto& rows_in = out.selected.back();
        const bool in = std::find(rows_in.begin(), rows_in.end(), i) != rows_in.end();
        const T probability = T(1) / (T(1) + exp(-score));
        sum += -log(in ? probability : T(1) - probability);
      }
      out.auxiliary += sum * T(route.aux_lambda / rows);
    }
    return y;
  }

  static T gate(const Gate& g, const T& r) {
    switch (g.kind) {
      case GateKind::kNone: return T(1);
      case GateKind::kRaw: return r;
      case GateKind::kSigmoid: return T(1) / (T(1) + exp(-r));
      case GateKind::kScaledSigmoid: return T(g.alpha) / (T(1) + exp(-r));
      case GateKind::kTanh: return T(g.alpha) * tanh(r) + T(g.beta);
    }
    return T(0);
  }

  // f(x) = a + MLP(norm(x + a)), a = Attention(norm(x)): the block's update without the outer residual.
  Table<T> update(int layer, const Table<T>& x, const std::vector<int>& positions) {
    const Table<T> a = attention(layer, norm("norm1", layer, x), positions);
    Table<T> u = x;
    for (size_t i = 0; i < u.size(); ++i)
      for (size_t c = 0; c < u[i].size(); ++c) u[i][c] += a[i][c];
    Table<T> f = mlp(layer, norm("norm2", layer, u));
    for (size_t i = 0; i < f.size(); ++i)
      for (size_t c = 0; c < f[i].size(); ++c) f[i][c] += a[i][c];
    return f;
  }

  Table<T> norm(const std::string& name, int layer, const Table<T>& x) {
    Table<T> y = x;
    const T width = T(static_cast<double>(net_.width));
    for (auto& row : y) {
      T mean = T(0), square = T(0);
      if (net_.norm == NormKind::kLayer)
        for (const T& v : row) mean += v / width;
      for (const T& v : row) square += (v - mean) * (v - mean) / width;
      const T deviation = sqrt(square + T(epsilon_));
      for (size_t c = 0; c < row.size(); ++c) {
        row[c] = (row[c] - mean) / deviation * at(name + "/gain", layer)[c];
        if (net_.norm == NormKind::kLayer && net_.norm_bias) row[c] += at(name + "/bias", layer)[c];
      }
    }
    return y;
  }

  Table<T> linear(const std::string& name, int layer, const Table<T>& x, size_t outputs) {
    Table<T> y(x.size());
    const std::vector<T>& w = at(name + "/weight", layer);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t o = 0; o < outputs; ++o) {
        T sum = has(name + "/bias", layer) ? at(name + "/bias", layer)[o] : T(0);
        for (size_t c = 0; c < x[i].size(); ++c) sum += x[i][c] * w[c * outputs + o];
        y[i].push_back(sum);
      }
    }
    return y;
  }

  Table<T> attention(int layer, const Table<T>& x, const std::vector<int>& positions) {
    const AttentionConfig& a = *net_.block(layer).attention;
    const size_t heads = static_cast<size_t>(a.heads), groups = static_cast<size_t>(a.kv_heads), d = static_cast<size_t>(a.head_dim);
    Table<T> qkv = linear("attn/qkv", layer, x, (heads + 2 * groups) * d);
    const size_t rotated = net_.positions == PositionKind::kRope ? static_cast<size_t>(a.rope_dim) : 0;
    for (size_t i = 0; i < qkv.size(); ++i) {
      for (size_t h = 0; h < heads + groups; ++h) {  // queries and keys
        for (size_t j = 0; j < rotated / 2; ++j) {
          const double angle = positions[i] / std::pow(net_.rope_base, 2.0 * static_cast<double>(j) / static_cast<double>(rotated));
          const T first = qkv[i][h * d + j], second = qkv[i][h * d + rotated / 2 + j];
          qkv[i][h * d + j] = first * T(std::cos(angle)) - second * T(std::sin(angle));
          qkv[i][h * d + rotated / 2 + j] = second * T(std::cos(angle)) + first * T(std::sin(angle));
        }
      }
    }
    Table<T> o(x.size(), std::vector<T>(heads * d, T(0)));
    for (size_t b = 0; b < x.size(); ++b) {
      for (size_t h = 0; h < heads; ++h) {
        const size_t key_at = (heads + h * groups / heads) * d, value_at = key_at + groups * d;
        T sum = T(0);
        std::vector<T> weights(x.size(), T(0));
        for (size_t k = 0; k <= b; ++k) {
          const int distance = positions[b] - positions[k];
          if (a.window > 0 && distance >= a.window) continue;
          if (a.chunk > 0 && positions[b] / a.chunk != positions[k] / a.chunk) continue;
          T score = T(0);
          for (size_t j = 0; j < d; ++j) score += qkv[b][h * d + j] * qkv[k][key_at + j];
          weights[k] = exp(score * T(1 / std::sqrt(static_cast<double>(d))));
          sum += weights[k];
        }
        for (size_t k = 0; k <= b; ++k)
          for (size_t j = 0; j < d; ++j) o[b][h * d + j] += weights[k] / sum * qkv[k][value_at + j];
      }
    }
    return linear("attn/out", layer, o, static_cast<size_t>(net_.width));
  }

  static T activate(ActivationKind kind, const T& v) {
    switch (kind) {
      case ActivationKind::kGeluTanh: return T(0.5) * v * (T(1) + tanh(T(std::sqrt(2 / M_PI)) * (v + T(0.044715) * v * v * v)));
      case ActivationKind::kGeluErf: return T(0.5) * v * (T(1) + erf(v / T(std::sqrt(2.0))));
      case ActivationKind::kSilu: return v / (T(1) + exp(-v));
      case ActivationKind::kRelu: return v > T(0) ? v : T(0);
      case ActivationKind::kRelu2: return v > T(0) ? v * v : T(0);
    }
    return v;
  }

  Table<T> mlp(int layer, const Table<T>& x) {
    const MlpConfig& m = *net_.block(layer).mlp;
    const size_t width = static_cast<size_t>(m.width);
    Table<T> inner = linear(m.gated ? "mlp/gate" : "mlp/up", layer, x, width);
    for (auto& row : inner)
      for (T& v : row) v = activate(m.activation, v);
    if (m.gated) {
      const Table<T> up = linear("mlp/up", layer, x, width);
      for (size_t i = 0; i < inner.size(); ++i)
        for (size_t c = 0; c < width; ++c) inner[i][c] = inner[i][c] * up[i][c];
    }
    return linear("mlp/down", layer, inner, static_cast<size_t>(net_.width));
  }

  void head(const Table<T>& x, const std::vector<int>& targets, Outcome<T>& out) {
    const Table<T> normed = norm("head/norm", -1, x);
    const size_t stored = static_cast<size_t>(net_.table_rows());
    for (size_t i = 0; i < x.size(); ++i) {
      out.logits.emplace_back();
      for (size_t v = 0; v < static_cast<size_t>(net_.vocab); ++v) {
        T sum = T(0);
        for (size_t c = 0; c < normed[i].size(); ++c)
          sum += normed[i][c] * (net_.tied ? at("embed/table", -1)[v * normed[i].size() + c] : at("head/logits/weight", -1)[c * stored + v]);
        out.logits.back().push_back(sum);
      }
      if (targets.empty()) continue;
      T total = T(0);
      for (const T& logit : out.logits.back()) total += exp(logit);
      out.loss += (log(total) - out.logits.back()[static_cast<size_t>(targets[i])]) / T(static_cast<double>(x.size()));
    }
  }

  const Network& net_;
  const Parameters<T>& p_;
  double epsilon_;
};

}  // namespace fathom::testing
