// Executed multiply-adds of whole workloads on the reference: every op of every phase equals its rule at the size that ran, and where
// nothing is random the sum is the declared total.
#include <catch2/catch.hpp>

#include "kernels/reference/backend.hpp"
#include "tests/tiny_models.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

struct Totals {
  u128 executed = 0, model = 0, recompute = 0;
};

Totals run(const Workload& w) {
  const auto exec = reference::ReferenceBackend().bind_reference(w, {});
  exec->run();
  Totals totals;
  for (int i = 0; i < exec->instance_count(); ++i) {
    const Cost cost = cost_at(*exec->bound(i).spec, exec->executed(i));
    CAPTURE(w.path(w.instances()[static_cast<size_t>(i)]));
    CHECK(exec->executed_flops(i).str() == (cost.flops + cost.flops_recompute).str());
    CHECK(exec->executed(i).rows <= declared(*exec->bound(i).spec).rows);
    totals.executed += exec->executed_flops(i).value();
    totals.model += cost.flops.value();
    totals.recompute += cost.flops_recompute.value();
  }
  return totals;
}

// Rows whose number the routing decides at run time, or pairs that depend on where the selected rows lie.
bool fixed_size(const Network& net, const Workload& w) {
  if (w.routed()) return false;
  for (const BlockConfig& kind : net.kinds)
    if (kind.route && kind.attention && (kind.attention->window > 0 || kind.attention->chunk > 0)) return false;
  return true;
}

}  // namespace

TEST_CASE("T22: prefill, training and decode execute exactly what is counted", "[counted]") {
  int exact = 0;
  for (const NamedTiny& each : tiny_zoo()) {
    const Network net = network(each.tiny);
    for (const Phase phase : {Phase::kPrefill, Phase::kTrain, Phase::kDecode}) {
      for (const std::int64_t length : {1, 2, 5, 7}) {
        CAPTURE(each.name, phase_name(phase), length);
        const Workload w = build(net, scenario(phase, 2, length));
        bool supported = true;
        for (const Op& op : w.ops()) supported = supported && reference::ReferenceBackend().supports(op.spec).ok;
        if (!supported) continue;
        const Totals totals = run(w);
        if (!fixed_size(net, w)) continue;
        const Cost total = w.total();
        CHECK(to_string(totals.executed) == (total.flops + total.flops_recompute).str());
        CHECK(to_string(totals.model) == total.flops.str());
        ++exact;
      }
    }
  }
  CHECK(exact > 150);
}

TEST_CASE("recomputation executes more and never changes the model's FLOPs", "[counted]") {
  for (const bool mod : {false, true}) {
    Tiny t;
    t.every = mod ? 2 : 0;
    Scenario s = scenario(Phase::kTrain, 2, 8);
    u128 before = 0;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      CAPTURE(mod, recompute_name(recompute));
      s.recompute = recompute;
      const Workload w = build(network(t), s);
      const Totals totals = run(w);
      const u128 again = w.total(Pass::kRecompute).flops.value();
      CHECK(to_string(totals.executed) == (w.total().flops + w.total().flops_recompute).str());
      CHECK((again > 0) == (recompute != Recompute::kNone));
      const u128 model = totals.model - again;
      if (before > 0) CHECK(to_string(model) == to_string(before));
      before = model;
    }
  }
}

TEST_CASE("training is three times the forward pass when everything is trained", "[counted]") {
  for (const NamedTiny& each : tiny_zoo()) {
    const Tiny& t = each.tiny;
    if (t.every > 0 && (t.aux_lambda == 0 || t.aux_detached)) continue;  // then fewer rows give the router a gradient
    CAPTURE(each.name);
    const Workload train = build(network(t), scenario(Phase::kTrain, 2, 8));
    const Workload forward = build(network(t), scenario(Phase::kPrefill, 2, 8));
    CHECK(train.total().flops.str() == (forward.total().flops * 3).str());
  }
}
