// Whole lists on the reference backend in f64 against a straight-line program: logits, losses, every parameter gradient (from a scalar
// tape, and by central differences), and three AdamW steps.
#include "tests/oracle/straight_line.hpp"

#include <catch2/catch.hpp>

#include "tests/oracle/bound_model.hpp"
#include "tests/tiny_models.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

Parameters<Var> as_inputs(const Parameters<double>& values) {
  Parameters<Var> inputs;
  for (const auto& [key, list] : values)
    for (const double v : list) inputs[key].push_back(Var::input(v));
  return inputs;
}

Parameters<double> tape_gradients(const Network& net, const Parameters<double>& values, const std::vector<int>& tokens, const std::vector<int>& targets,
                                  int sequences) {
  Var::clear();
  const Parameters<Var> inputs = as_inputs(values);
  const Outcome<Var> outcome = StraightLine<Var>(net, inputs, 1e-5).run(tokens, targets, sequences);
  const std::vector<double> d = Var::derivatives(outcome.loss + outcome.auxiliary);
  Parameters<double> gradients;
  for (const auto& [key, list] : inputs)
    for (const Var& v : list) gradients[key].push_back(d[static_cast<size_t>(v.node())]);
  return gradients;
}

}  // namespace

TEST_CASE("prefill logits of every tiny network equal the straight-line program", "[oracle]") {
  for (const NamedTiny& each : tiny_zoo()) {
    for (const RoutingRule rule : {RoutingRule::kTopK, RoutingRule::kThreshold}) {
      CAPTURE(each.name, routing_name(rule));
      const Network net = network(each.tiny);
      Scenario s = scenario(Phase::kPrefill, 2, 11);
      s.routing = rule;
      const bool nobody = each.tiny.capacity == Fraction{0, 1};  // wanted by no rate: no threshold is asked
      // A threshold takes each row with a probability below one; with capacity one the declared rows are all rows.
      if (rule == RoutingRule::kThreshold && (!net.has_routes() || each.tiny.capacity == Fraction{1, 1})) continue;
      BoundModel bound(net, s, {});
      bound.exec->run();
      const Parameters<double> p = bound.parameters();
      const auto outcome = StraightLine<double>(net, p, 1e-5).run(bound.input("tokens"), {}, 2, rule == RoutingRule::kTopK || nobody ? Rule::kTopC : Rule::kThreshold);
      const std::vector<double> logits = bound.read(bound.tensors.at({"head/logits", -1}));
      const size_t stored = static_cast<size_t>(net.table_rows());
      std::vector<double> got, want;
      for (size_t i = 0; i < outcome.logits.size(); ++i)
        for (size_t v = 0; v < outcome.logits[i].size(); ++v) {
          got.push_back(logits[i * stored + v]);
          want.push_back(outcome.logits[i][v]);
        }
      CHECK(worst_difference(got, want) < 1e-11);
    }
  }
}

TEST_CASE("training steps equal the straight-line program: losses, gradients, three AdamW steps", "[oracle]") {
  for (const NamedTiny& each : tiny_zoo()) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (recompute != Recompute::kNone && each.name.rfind("mod", 0) != 0 && each.name != "dense") continue;
      CAPTURE(each.name, recompute_name(recompute));
      Tiny tiny = each.tiny;
      tiny.width = std::min<std::int64_t>(tiny.width, 12);
      tiny.mlp = std::min<std::int64_t>(tiny.mlp, 14);
      tiny.vocab = std::min<std::int64_t>(tiny.vocab, 19);
      tiny.padded_vocab = tiny.padded_vocab > 0 ? 24 : 0;
      tiny.heads = 4, tiny.kv_heads = std::min<std::int64_t>(tiny.kv_heads, 2), tiny.head_dim = 4;
      tiny.rope_dim = tiny.rope_dim > 0 ? 2 : -1;
      const Network net = network(tiny);
      Scenario s = scenario(Phase::kTrain, 2, 9);
      s.recompute = recompute;
      BindOptions options;
      options.learning_rate = 1e-2;
      options.clip = 0.5;
      options.epsilon = 1e-5;
      BoundModel bound(net, s, options);
      Parameters<double> p = bound.parameters();
      Parameters<double> m, v;
      const std::vector<int> tokens = bound.input("tokens"), targets = bound.input("targets");
      for (int step = 1; step <= 3; ++step) {
        CAPTURE(step);
        bound.exec->run();
        const auto outcome = StraightLine<double>(net, p, 1e-5).run(tokens, targets, 2);
        CHECK(bound.losses().first == Approx(outcome.loss).epsilon(1e-10));
        CHECK(bound.losses().second == Approx(outcome.auxiliary).epsilon(1e-10).margin(1e-14));
        const Parameters<double> gradients = tape_gradients(net, p, tokens, targets, 2);
        double squares = 0;
        for (const auto& [key, g] : gradients) {
          CAPTURE(key.first, key.second);
          CHECK(worst_difference(bound.gradient(key), g) < 1e-8);
          for (const double d : g) squares += d * d;
        }
        const double scale = std::min(1.0, options.clip / std::sqrt(squares));
        for (auto& [key, w] : p) {
          CAPTURE(key.first, key.second);
          auto& m1 = m[key];
          auto& v1 = v[key];
          m1.resize(w.size());
          v1.resize(w.size());
          for (size_t i = 0; i < w.size(); ++i) {
            const double g = gradients.at(key)[i] * scale;
            m1[i] = options.beta1 * m1[i] + (1 - options.beta1) * g;
            v1[i] = options.beta2 * v1[i] + (1 - options.beta2) * g * g;
            const double m_hat = m1[i] / (1 - std::pow(options.beta1, step)), v_hat = v1[i] / (1 - std::pow(options.beta2, step));
            w[i] -= options.learning_rate * (m_hat / (std::sqrt(v_hat) + options.epsilon) + options.weight_decay * w[i]);
          }
          CHECK(worst_difference(bound.read(bound.weights.at(key)), w) < 1e-8);
        }
      }
    }
  }
}

TEST_CASE("T10: gradients equal central differences, never selected rows included", "[oracle]") {
  for (const GateKind gate : {GateKind::kRaw, GateKind::kSigmoid}) {
    for (const double lambda : {0.0, 0.7}) {
      CAPTURE(static_cast<int>(gate), lambda);
      Tiny t;
      t.width = 4, t.mlp = 6, t.heads = 2, t.kv_heads = 1, t.head_dim = 2, t.layers = 2, t.vocab = 8;
      t.every = 1, t.capacity = Fraction{3, 7}, t.gate.kind = gate, t.aux_lambda = lambda, t.router_bias = true;
      const Network net = network(t);
      Scenario s = scenario(Phase::kTrain, 1, 7);
      s.optimizer = false;
      BoundModel bound(net, s, {});
      bound.exec->run();
      Parameters<double> gradients;
      for (const auto& [key, at] : bound.weights) gradients[key] = bound.gradient(key);
      const double step = 1e-5;
      double worst = 0;
      for (const auto& [key, at] : bound.weights) {
        const std::vector<double> start = bound.read(at);
        for (size_t i = 0; i < start.size(); ++i) {
          double value[2];
          for (const int side : {0, 1}) {
            std::vector<double> moved = start;
            moved[i] += side ? step : -step;
            bound.write(at, moved);
            bound.exec->run();
            const auto [loss, auxiliary] = bound.losses();
            value[side] = loss + auxiliary;
          }
          worst = std::max(worst, std::abs((value[1] - value[0]) / (2 * step) - gradients.at(key)[i]));
        }
        bound.write(at, start);
      }
      CHECK(worst < 1e-8);
    }
  }
}
