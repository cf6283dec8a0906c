// Random lists executed on the reference: the multiply-adds that really ran are those the cost rules state, and
// the gradients are those of the losses (central differences), under every recomputation policy.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <set>

#include "kernels/reference/backend.hpp"
#include "lib/error.hpp"
#include "models/builder.hpp"
#include "tests/random_networks.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

using reference::Precision;
using reference::ReferenceBackend;
using reference::ReferenceExecution;

struct Bound {
  std::optional<Workload> list;
  std::unique_ptr<ReferenceExecution> run;
};
// Empty where builder or backend state a refusal.
Bound bind(const Network& network, const Scenario& scenario, std::uint64_t seed) {
  Bound bound;
  try {
    bound.list = build(network, scenario);
    BindOptions options;
    options.seed = seed + 1;
    bound.run = ReferenceBackend(Precision::kWide).bind_reference(*bound.list, options);
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return {};
  }
  return bound;
}

bool ends_with(const std::string& text, const std::string& end) { return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0; }

// Sum of the losses of a step. Predictors learn from their own loss only, which moves nothing else.
double loss_of(const Bound& bound, bool predictors) {
  double sum = 0;
  std::set<TensorInstance> seen;
  const Workload& w = *bound.list;
  for (const Instance& instance : w.instances()) {
    const Op& op = w.ops()[static_cast<size_t>(instance.op)];
    if (!std::holds_alternative<CrossEntropy>(op.spec) && !std::holds_alternative<RouterLoss>(op.spec)) continue;
    const TensorInstance at = instance_of(w, w.program()[static_cast<size_t>(instance.step)], op.outputs[0]);
    if (!seen.insert(at).second) continue;
    const bool predictor = ends_with(w.tensors()[static_cast<size_t>(at.tensor)].name, "predict/loss");
    if (predictor == predictors) sum += bound.run->read_wide(at)[0];
  }
  return sum;
}

}  // namespace

TEST_CASE("executed multiply-adds are the stated ones on random models", "[executed]") {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < seeds(400); ++seed) {
    const Network network = random_network(seed);
    for (Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario = random_scenario(seed, phase);
      scenario.optimizer = seed % 2 == 0;
      const Bound bound = bind(network, scenario, seed);
      if (!bound.run) continue;
      CAPTURE(seed, phase_name(phase));
      ++ran;
      bound.run->run();
      const std::vector<Instance> instances = bound.list->instances();
      for (int i = 0; i < static_cast<int>(instances.size()); ++i) {
        const OpSpec& spec = bound.list->ops()[static_cast<size_t>(instances[static_cast<size_t>(i)].op)].spec;
        const Cost cost = cost_at(spec, bound.run->executed(i));
        CAPTURE(bound.list->path(instances[static_cast<size_t>(i)]));
        CHECK(bound.run->executed_flops(i) == cost.flops + cost.flops_recompute);
        CHECK(bound.run->executed(i).rows <= std::max(rows_of(spec).count, declared(spec).rows));
      }
    }
  }
  CHECK(ran > static_cast<int>(seeds(900)));
}

// Gradients by the names and copies of their weights.
using Gradients = std::map<std::pair<std::string, int>, std::vector<double>>;

Gradients gradients_of(const Bound& bound) {
  Gradients gradients;
  const Workload& w = *bound.list;
  for (const Instance& instance : w.instances()) {
    const Op& op = w.ops()[static_cast<size_t>(instance.op)];
    for (const Operand& operand : op.outputs) {
      const Tensor& tensor = w.tensors()[static_cast<size_t>(operand.tensor)];
      if (tensor.role != Role::kGradient) continue;
      const TensorInstance at = instance_of(w, w.program()[static_cast<size_t>(instance.step)], operand);
      gradients[{tensor.name, at.copy}] = bound.run->read_wide(at);
    }
  }
  return gradients;
}

TEST_CASE("a detached auxiliary loss trains the router and nothing else", "[executed]") {
  int networks = 0, routers = 0;
  for (std::uint64_t seed = 0; seed < seeds(400); ++seed) {
    Network network = random_network(seed);
    int routed = 0, routes = 0;
    for (const int kind : network.layers) {
      const auto& route = network.kinds[static_cast<size_t>(kind)].route;
      if (route && route->aux_lambda > 0 && route->router == RouterKind::kLinear) ++routed;
      routes += route.has_value();
    }
    if (routed == 0 || network.lora) continue;
    Scenario scenario = random_scenario(seed, Phase::kTrain);
    scenario.optimizer = false;
    const auto with = [&](double lambda, bool detached) {
      Network n = network;
      for (BlockConfig& b : n.kinds)
        if (b.route) b.route->aux_lambda = b.route->router == RouterKind::kLinear && b.route->aux_lambda > 0 ? lambda : 0, b.route->aux_detached = detached;
      Bound bound = bind(n, scenario, seed);
      if (bound.run) bound.run->run();
      return bound.run ? gradients_of(bound) : Gradients{};
    };
    const Gradients without = with(0, false), detached = with(0.3, true), attached = with(0.3, false);
    if (without.empty() || detached.empty() || attached.empty()) continue;
    ++networks;
    CAPTURE(seed);
    for (const auto& [key, values] : detached) {
      CAPTURE(key.first, key.second);
      const bool router = key.first.find("/route/") != std::string::npos;
      if (!router) {
        REQUIRE(without.count(key) == 1);
        for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(without.at(key)[i]).epsilon(1e-9).margin(1e-12));
      } else if (routes == 1) {  // with one routed layer the router's own gradient does not depend on where else its loss goes
        ++routers;
        for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(attached.at(key)[i]).epsilon(1e-9).margin(1e-12));
      }
    }
  }
  CHECK(networks >= static_cast<int>(seeds(20)));
  CHECK(routers >= static_cast<int>(seeds(10)));
}

TEST_CASE("gradients of random lists are those of their losses", "[executed]") {
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Network network = random_network(seed);
    // A stopped gradient is no derivative of the loss: the case above is about it.
    for (BlockConfig& b : network.kinds)
      if (b.route) b.route->aux_detached = false;
    Scenario scenario = random_scenario(seed, Phase::kTrain);
    scenario.optimizer = false;
    scenario.grad_accumulation = 1;
    const Bound bound = bind(network, scenario, seed);
    if (!bound.run) continue;
    bound.run->run();
    const double losses = loss_of(bound, false), predictors = loss_of(bound, true);
    // Weights and gradients by name and copy.
    std::map<std::pair<std::string, int>, std::pair<TensorInstance, TensorInstance>> pairs;
    const Workload& w = *bound.list;
    for (const Instance& instance : w.instances()) {
      const Op& op = w.ops()[static_cast<size_t>(instance.op)];
      const Step& step = w.program()[static_cast<size_t>(instance.step)];
      for (const auto* operands : {&op.inputs, &op.outputs})
        for (const Operand& operand : *operands) {
          const Tensor& tensor = w.tensors()[static_cast<size_t>(operand.tensor)];
          const TensorInstance at = instance_of(w, step, operand);
          if (tensor.role == Role::kWeight) pairs[{tensor.name, at.copy}].first = at;
          if (tensor.role == Role::kGradient) pairs[{tensor.name.substr(0, tensor.name.size() - 5), at.copy}].second = at;
        }
    }
    std::map<std::pair<std::string, int>, std::vector<double>> gradients;
    for (const auto& [key, at] : pairs)
      if (at.second.tensor >= 0) gradients[key] = bound.run->read_wide(at.second);
    Dice dice(seed);
    for (const auto& [key, gradient] : gradients) {
      const TensorInstance at = pairs[key].first;
      const bool predictor = key.first.find("/predict/") != std::string::npos;
      const double base = predictor ? predictors : losses;
      std::vector<double> weight = bound.run->read_wide(at);
      for (int probe = 0; probe < 2; ++probe) {
        const size_t i = static_cast<size_t>(dice.between(0, static_cast<std::int64_t>(weight.size()) - 1));
        const double before = weight[i];
        bool jumps = false;
        const auto slope = [&](double step) {
          double value[2];
          for (int side = 0; side < 2; ++side) {
            weight[i] = before + (side ? step : -step);
            bound.run->write_wide(at, weight);
            bound.run->run();
            value[side] = loss_of(bound, predictor);
          }
          weight[i] = before;
          bound.run->write_wide(at, weight);
          jumps = jumps || std::abs(value[0] + value[1] - 2 * base) > 1e-7 * (1 + std::abs(base));
          return (value[1] - value[0]) / (2 * step);
        };
        const double step = 1e-5, first = slope(step), second = slope(step / 2);
        // A choice (top-k, expert, kink of an activation) inside the interval makes the two slopes differ, or moves both sides off the middle
        // (equal tokens whose tie is broken by rounding): not a derivative.
        if (jumps || std::abs(first - second) > 1e-5 * (1e-3 + std::abs(first))) continue;
        CAPTURE(seed, key.first, key.second, i, recompute_name(scenario.recompute));
        CHECK(gradient[i] == Approx(second).epsilon(1e-4).margin(1e-8));
        ++checked;
      }
    }
  }
  CHECK(checked > static_cast<int>(seeds(2500)));
}
