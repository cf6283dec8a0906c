// Recomputation by op names on random networks: gradients are those of the step that keeps everything, to the bit; the model's FLOPs do not
// change; what runs again is what the list states.
#include <catch2/catch.hpp>

#include <map>
#include <random>
#include <set>

#include "kernels/reference/backend.hpp"
#include "lib/error.hpp"
#include "lib/plan.hpp"
#include "models/builder.hpp"
#include "tests/random_networks.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

using reference::Precision;
using reference::ReferenceBackend;

// Empty where the builder refuses the network or the policy.
std::optional<Workload> list_of(const Network& network, const Scenario& scenario) {
  try {
    return build(network, scenario);
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return {};
  }
}

// Every gradient of a step by name and copy.
std::map<std::pair<std::string, int>, std::vector<double>> gradients(const Workload& list) {
  BindOptions options;
  options.seed = 3;
  const auto run = ReferenceBackend(Precision::kWide).bind_reference(list, options);
  run->run();
  u128 executed = 0, stated = 0;
  for (int i = 0; i < run->instance_count(); ++i) {
    const Cost cost = cost_at(*run->bound(i).spec, run->executed(i));
    executed += run->executed_flops(i).value();
    stated += (cost.flops + cost.flops_recompute).value();
  }
  CHECK(to_string(executed) == to_string(stated));
  std::map<std::pair<std::string, int>, std::vector<double>> found;
  for (int i = 0; i < run->instance_count(); ++i)
    for (const OperandView& view : run->bound(i).out) {
      const Tensor& tensor = list.tensors()[static_cast<size_t>(view.at.tensor)];
      if (tensor.role == Role::kGradient) found[{tensor.name, view.at.copy}] = run->read_wide(view.at);
    }
  return found;
}

}  // namespace

TEST_CASE("gradients do not depend on what is recomputed by name", "[recompute]") {
  int compared = 0, repeated = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Network network = random_network(seed);
    Scenario s = random_scenario(seed, Phase::kTrain);
    s.recompute = Recompute::kNone;
    const std::optional<Workload> kept = list_of(network, s);
    if (!kept) continue;
    // Names that can be followed one by one.
    std::set<std::string> leaves, names;
    for (const Op& op : kept->ops())
      if (op.pass == Pass::kForward && kept->blocks()[static_cast<size_t>(kept->block_of(static_cast<int>(&op - kept->ops().data())))].layered) leaves.insert(op.leaf);
    s.recompute = Recompute::kNamed;
    for (const std::string& leaf : leaves) {
      s.recompute_ops = {leaf};
      if (list_of(network, s)) names.insert(leaf);
    }
    REQUIRE_FALSE(names.empty());
    const auto expected = gradients(*kept);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 3; ++round) {
      s.recompute_ops.clear();
      for (const std::string& name : names)
        if (round == 0 || random() % 2 == 0) s.recompute_ops.push_back(name);
      if (s.recompute_ops.empty()) continue;
      CAPTURE(seed, recompute_text(s));
      const std::optional<Workload> list = list_of(network, s);
      REQUIRE(list);
      CHECK(list->total(Pass::kForward) == kept->total(Pass::kForward));
      CHECK(list->total(Pass::kBackward) == kept->total(Pass::kBackward));
      const ListTotals totals = count_totals(network, s);
      CHECK(totals.total == list->total());
      CHECK(totals.pass(Pass::kRecompute) == list->total(Pass::kRecompute).flops);
      CHECK(list->total(Pass::kRecompute).flops <= kept->total(Pass::kForward).flops);
      const auto found = gradients(*list);
      REQUIRE(found.size() == expected.size());
      for (const auto& [key, values] : expected) {
        CAPTURE(key.first, key.second);
        CHECK(found.at(key) == values);
      }
      for (const Op& op : list->ops()) repeated += op.pass == Pass::kRecompute;
      ++compared;
    }
  }
  CHECK(compared > 60);
  CHECK(repeated > 500);
}
