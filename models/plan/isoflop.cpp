#include "models/plan/isoflop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "models/count/convention.hpp"
#include "models/count/depth.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"

namespace fathom {
namespace {

Rational forward_of(const Network& network, const PlanOptions& options) {
  return count_convention(find_convention(options.convention), network, options.length).per_token * Rational(options.length);
}

struct LadderPoint {
  double params;
  double forward;
};

PlanOptimum optimum_at(double budget, const PlanOptions& options, const std::vector<LadderPoint>& ladder) {
  PlanOptimum o;
  o.budget = budget;
  o.params = options.law.optimal_params(budget);
  o.tokens = options.law.optimal_tokens(budget);
  o.extrapolated = o.params < ladder.front().params || o.params > ladder.back().params;
  size_t upper = 1;
  while (upper + 1 < ladder.size() && ladder[upper].params < o.params) ++upper;
  const LadderPoint& a = ladder[upper - 1];
  const LadderPoint& b = ladder[upper];
  const double slope = std::log(b.forward / a.forward) / std::log(b.params / a.params);
  o.forward = a.forward * std::pow(o.params / a.params, slope);
  return o;
}

PlanRow row_of(const Network& network, const std::string& model, const std::string& variant, const Rational& dense_forward, const PlanOptions& options) {
  PlanRow row;
  row.model = model;
  row.variant = variant;
  row.layers = network.layer_count();
  row.params = count_parameters(network).total.value();
  row.forward = forward_of(network, options);
  row.of_dense = (row.forward / dense_forward).value();
  if (options.step_time) row.step_seconds = options.step_time(network);
  return row;
}

}  // namespace

std::vector<Network> dense_ladder() {
  std::vector<Network> ladder;
  for (const NetworkEntry& entry : list_networks())
    if (entry.name.rfind("dense-", 0) == 0) ladder.push_back(builtin_network(entry.name));
  std::sort(ladder.begin(), ladder.end(), [](const Network& a, const Network& b) { return count_parameters(a).total < count_parameters(b).total; });
  return ladder;
}

Network with_layers(const Network& network, std::int64_t layers) {
  if (std::any_of(network.layers.begin(), network.layers.end(), [&](int kind) { return kind != network.layers.front(); }))
    throw_input("a deeper model needs layers that are alike", {network.source, 0, "layers"});
  if (!network.weights_of.empty()) throw_input("a deeper model needs layers with weights of their own", {network.source, 0, "layers"});
  Network deeper = network;
  deeper.layers.assign(static_cast<size_t>(layers), network.layers.front());
  deeper.name = fmt::format("{}-L{}", network.name, layers);
  return deeper;
}

Network deeper_twin(const Network& dense, const PlanOptions& options) {
  const Rational target = forward_of(dense, options);
  const auto at = [&](std::int64_t layers) { return alternate(with_layers(dense, layers), options.every, options.capacity); };
  // Forward FLOPs do not fall with depth: double, then bisect.
  std::int64_t low = dense.layer_count();
  if (forward_of(at(low), options) >= target) return at(low);
  std::int64_t high = low;
  do {
    low = high;
    high *= 2;
    if (high > 64 * dense.layer_count() + 64) throw_input("no depth reaches the dense model's FLOPs: its blocks cost next to nothing", {dense.source, 0, "capacity"});
  } while (forward_of(at(high), options) < target);
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (forward_of(at(middle), options) < target ? low : high) = middle;
  }
  return at(high);
}

Plan plan_isoflop(const std::vector<Network>& dense, const PlanOptions& options) {
  if (!find_convention(options.convention).routed)
    throw_input(fmt::format("'{}' does not know depth routing", options.convention), {"", 0, "convention"}, "use exact, full, mod-a, mod-b or mod-c");
  if (options.batch < 1 || options.length < 1) throw_input("batch and length are at least 1", {"", 0, "batch"});
  if (dense.empty()) throw_input("nothing to plan: no model", {"", 0, "MODEL"});
  std::vector<LadderPoint> ladder;
  for (const Network& network : dense_ladder()) ladder.push_back({count_parameters(network).total.to_double(), forward_of(network, options).value()});
  std::vector<PlanRow> variants;
  Plan plan;
  for (const Network& network : dense) {
    if (network.has_routes()) throw_input("a plan starts from dense models and makes their MoD twins", {network.source, 0, "MODEL"}, "give the dense model");
    const Rational forward = forward_of(network, options);
    variants.push_back(row_of(network, network.name, "dense", forward, options));
    variants.push_back(row_of(alternate(network, options.every, options.capacity), network.name, "MoD", forward, options));
    try {
      variants.push_back(row_of(deeper_twin(network, options), network.name, "MoD deeper", forward, options));
    } catch (const Error& error) {
      plan.notes.push_back(fmt::format("{}: no deeper twin: {}", network.name, error.message()));
    }
  }
  for (double budget : options.budgets) {
    if (!std::isfinite(budget) || budget <= 0) throw_input("a budget is a positive number of FLOPs", {"", 0, "budget"});
    const PlanOptimum optimum = optimum_at(budget, options, ladder);
    plan.optima.push_back(optimum);
    for (PlanRow row : variants) {
      const double step = 3 * row.forward.value() * static_cast<double>(options.batch);
      const double steps = std::floor(budget / step + 0.5);
      if (steps < 1) throw_input(fmt::format("{:.3g} FLOP do not pay one step of {} ({:.3g} FLOP)", budget, row.model, step), {"", 0, "budget"});
      if (steps > 9e15) throw_input("that many steps cannot be counted", {"", 0, "budget"});
      row.budget = budget;
      row.steps = static_cast<std::int64_t>(steps);
      row.tokens = steps * static_cast<double>(options.batch) * static_cast<double>(options.length);
      row.of_optimum = row.forward.value() / optimum.forward;
      if (row.variant == "dense") row.loss = options.law.loss(to_double(row.params), row.tokens);
      if (row.step_seconds) row.wall_seconds = *row.step_seconds * steps;
      plan.rows.push_back(std::move(row));
    }
  }
  return plan;
}

}  // namespace fathom
