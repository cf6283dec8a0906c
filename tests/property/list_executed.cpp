// Random lists executed on the reference: the multiply-adds that really ran are those the cost rules state (SPEC_COUNT 14, law 10), and
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
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Network network = random_network(seed);
    for (Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario = random_scenario(seed, phase);
      scenario.optimizer = false;
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
  CHECK(ran > 900);
}

TEST_CASE("gradients of random lists are those of their losses", "[executed]") {
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    const Network network = random_network(seed);
    Scenario scenario = random_scenario(seed, Phase::kTrain);
    scenario.optimizer = false;
    scenario.grad_accumulation = 1;
    const Bound bound = bind(network, scenario, seed);
    if (!bound.run) continue;
    bound.run->run();
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
      std::vector<double> weight = bound.run->read_wide(at);
      for (int probe = 0; probe < 2; ++probe) {
        const size_t i = static_cast<size_t>(dice.between(0, static_cast<std::int64_t>(weight.size()) - 1));
        const double before = weight[i];
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
          return (value[1] - value[0]) / (2 * step);
        };
        const double step = 1e-5, first = slope(step), second = slope(step / 2);
        // A choice (top-k, expert, kink of an activation) inside the interval makes the two slopes differ: not a derivative.
        if (std::abs(first - second) > 1e-5 * (1e-3 + std::abs(first))) continue;
        CAPTURE(seed, key.first, key.second, i, recompute_name(scenario.recompute));
        CHECK(gradient[i] == Approx(second).epsilon(1e-4).margin(1e-8));
        ++checked;
      }
    }
  }
  CHECK(checked > 4000);
}
