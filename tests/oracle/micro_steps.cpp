// Gradient accumulation: A micro-steps of batch b take the very step of one of batch A b, in losses, gradients and weights after it.
#include <catch2/catch.hpp>

#include "tests/oracle/bound_model.hpp"
#include "tests/tiny_models.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

constexpr std::int64_t kMicroSteps = 3, kSequences = 2, kLength = 9;

// Tokens and labels of the whole step, part `micro` of them for a micro-step.
void write_batch(BoundModel& model, const Network& net, std::int64_t sequences, std::int64_t micro) {
  for (const auto& [key, at] : model.tensors) {
    const bool tokens = key.first == "tokens" || key.first.ends_with("/tokens"), labels = key.first == "targets" || key.first.ends_with("/targets");
    if (model.workload.tensors()[static_cast<size_t>(at.tensor)].role != Role::kInput || (!tokens && !labels)) continue;
    std::vector<double> values;
    for (std::int64_t i = micro * sequences * kLength; i < (micro + 1) * sequences * kLength; ++i)
      values.push_back(static_cast<double>((i * i * (labels ? 5 : 7) + 3 * i + static_cast<std::int64_t>(key.first.size())) % net.vocab));
    model.write(at, values);
  }
}

// A step; the next micro-step's tokens are written where the token table is read again.
void run_step(BoundModel& model, const Network& net, std::int64_t sequences) {
  model.exec->begin_pass();
  std::int64_t micro = 0;
  for (int i = 0; i < model.exec->instance_count(); ++i) {
    const BoundOp& op = model.exec->bound(i);
    if (std::holds_alternative<Embedding>(*op.spec) && op.in[0].at == model.tensors.at({"tokens", -1})) write_batch(model, net, sequences, micro++);
    model.exec->run_instance(i);
  }
  CHECK(micro == kMicroSteps * kSequences / sequences);
}

void compare_steps(const Network& net) {
  BindOptions options;
  options.learning_rate = 1e-2;
  options.clip = 0.5;
  options.epsilon = 1e-5;
  Scenario whole = scenario(Phase::kTrain, kMicroSteps * kSequences, kLength), parts = scenario(Phase::kTrain, kSequences, kLength);
  parts.grad_accumulation = kMicroSteps;
  BoundModel one(net, whole, options), many(net, parts, options);
  for (const auto& [key, at] : one.weights) many.write(many.weights.at(key), one.read(at));
  for (int step = 1; step <= 2; ++step) {
    CAPTURE(step);
    run_step(one, net, kMicroSteps * kSequences);
    run_step(many, net, kSequences);
    for (const auto& [key, at] : one.weights) {
      CAPTURE(key.first, key.second);
      if (one.tensors.count({key.first + ".grad", key.second})) CHECK(worst_difference(many.gradient(key), one.gradient(key)) < 1e-10);
      CHECK(worst_difference(many.read(many.weights.at(key)), one.read(at)) < 1e-10);
    }
  }
}

}  // namespace

TEST_CASE("micro-steps take the step of the whole batch", "[oracle]") {
  for (const NamedTiny& each : tiny_zoo()) {
    DYNAMIC_SECTION(each.name) { compare_steps(network(each.tiny)); }
  }
  Tiny t;
  t.every = 2, t.aux_lambda = 0.7, t.router_bias = true;
  Network net = network(t);
  SECTION("predictor") {
    for (BlockConfig& kind : net.kinds)
      if (kind.route) kind.route->predictor = Predictor{6};
    compare_steps(net);
  }
  SECTION("MLP router") {
    for (BlockConfig& kind : net.kinds)
      if (kind.route) kind.route->router = RouterKind::kMlp, kind.route->router_hidden = 5;
    compare_steps(net);
  }
  SECTION("MLP router that the selected rows alone teach") {
    for (BlockConfig& kind : net.kinds)
      if (kind.route) kind.route->router = RouterKind::kMlp, kind.route->router_hidden = 5, kind.route->aux_lambda = 0;
    compare_steps(net);
  }
  SECTION("prediction modules") {
    net.mtp = 2;
    compare_steps(net);
  }
  SECTION("prediction modules, untied") {
    net.mtp = 2;
    net.tied = false;
    compare_steps(net);
  }
  SECTION("learned positions beside a frozen token table") {
    net.positions = PositionKind::kLearned;
    for (BlockConfig& kind : net.kinds) kind.attention->rope_dim = 0;
    net.tied = false;
    net.freeze_embedding = true;
    compare_steps(net);
  }
  SECTION("norms of queries and keys") {
    for (BlockConfig& kind : net.kinds) kind.attention->qk_norm = true;
    compare_steps(net);
  }
}
