// Two independent counts of the same parameters: the closed counting of models/params and the weight tensors of the op
// list.
#include <catch2/catch.hpp>

#include <optional>
#include <set>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

// Elements of every weight tensor instance that the program touches: one per weight set for tensors of that scope.
u128 weights_in(const Workload& workload) {
  std::set<std::pair<TensorId, int>> seen;
  u128 sum = 0;
  for (const Instance& instance : workload.instances()) {
    const Op& op = workload.ops()[static_cast<std::size_t>(instance.op)];
    const Step& step = workload.program()[static_cast<std::size_t>(instance.step)];
    for (const Operand& operand : op.inputs) {
      if (operand.tensor < 0) continue;
      const Tensor& tensor = workload.tensors()[static_cast<std::size_t>(operand.tensor)];
      if (tensor.role != Role::kWeight) continue;
      const int index = tensor.scope == Scope::kGlobal    ? 0
                        : tensor.scope == Scope::kWeights ? step.weights
                                                          : step.layer;
      if (seen.insert({operand.tensor, index}).second) sum = checked_add(sum, product(tensor.rows, tensor.cols));
    }
  }
  return sum;
}

// The op list of a short pass; none for a block kind that the builder refuses, with its reason.
std::optional<Workload> built(const Network& network, Phase phase) {
  Scenario scenario;
  scenario.length = network.max_length > 0 && network.max_length < 64 ? network.max_length : 64;
  scenario.logits = LogitsKind::kAll;
  scenario.phase = phase;
  try {
    return build(network, scenario);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("the op list's weights add up to the parameter count", "[params]") {
  int compared = 0;
  for (const NetworkEntry& entry : list_networks()) {
    const Network network = builtin_network(entry.name);
    const std::optional<Workload> workload = built(network, Phase::kPrefill);
    if (!workload) continue;
    CAPTURE(entry.name);
    // A predictor is executed where it decides, which a top-k prefill does not need.
    const ParameterCount count = count_parameters(network);
    CHECK(to_string(weights_in(*workload)) == (count.total - count.part(Part::kPredictor)).str());
    ++compared;
  }
  CHECK(compared >= 17);  // the ladder, its twins, and the plain published models
}

TEST_CASE("one optimizer step updates every parameter once", "[params]") {
  int compared = 0;
  for (const NetworkEntry& entry : list_networks()) {
    const Network network = builtin_network(entry.name);
    const std::optional<Workload> workload = built(network, Phase::kTrain);
    if (!workload) continue;
    CAPTURE(entry.name);
    u128 updated = 0;
    for (const Instance& instance : workload->instances())
      if (const auto* adamw = std::get_if<AdamW>(&workload->ops()[static_cast<std::size_t>(instance.op)].spec))
        updated = checked_add(updated, product(adamw->params));
    // Score corrections of experts are set by balance, not by gradients.
    u128 corrections = 0;
    for (std::int64_t l = 0; l < network.layer_count(); ++l)
      if (const auto& mlp = network.block(l).mlp; mlp && mlp->moe && mlp->moe->correction_bias) corrections += product(mlp->moe->experts);
    CHECK(to_string(updated) == (count_parameters(network).total - Params(corrections)).str());
    ++compared;
  }
  CHECK(compared >= 17);
}
