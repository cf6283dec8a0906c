// The CPU backend against the reference, op by op and as whole lists: every architecture switch of the tiny zoo.
#include <catch2/catch.hpp>

#include "tests/tiny_models.hpp"

#if FATHOM_CPU
#include "tests/kernels/cpu_against_reference.hpp"

using namespace fathom;
using namespace fathom::testing;

TEST_CASE("the CPU backend equals the reference on prefills", "[reference][cpu]") {
  for (const NamedTiny& each : tiny_zoo()) {
    DYNAMIC_SECTION(each.name) { compare_with_reference(network(each.tiny), scenario(Phase::kPrefill, 2, 13), 2e-5, 2e-4); }
  }
}

TEST_CASE("the CPU backend equals the reference on training steps", "[reference][cpu]") {
  for (const NamedTiny& each : tiny_zoo()) {
    DYNAMIC_SECTION(each.name) { compare_with_reference(network(each.tiny), scenario(Phase::kTrain, 2, 13), 2e-5, 5e-4); }
  }
}

TEST_CASE("the CPU backend equals the reference with recomputation and gradient accumulation", "[reference][cpu]") {
  Tiny t;
  t.every = 2;
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    Scenario s = scenario(Phase::kTrain, 2, 9);
    s.recompute = recompute;
    s.grad_accumulation = 2;
    CAPTURE(recompute_name(recompute));
    compare_with_reference(network(t), s, 2e-5, 5e-4);
  }
}

TEST_CASE("the CPU backend equals the reference on last-token logits, threshold prefills and decode", "[reference][cpu]") {
  Tiny t;
  SECTION("last logits, dense") {
    Scenario s = scenario(Phase::kPrefill, 3, 7);
    s.logits = LogitsKind::kLast;
    compare_with_reference(network(t), s, 2e-5, 2e-4);
  }
  t.every = 2;
  t.capacity = Fraction{1, 2};
  SECTION("threshold prefill") {
    Scenario s = scenario(Phase::kPrefill, 3, 11);
    s.routing = RoutingRule::kThreshold;
    compare_with_reference(network(t), s, 2e-5, 2e-4);
  }
  SECTION("random routing") {
    Scenario s = scenario(Phase::kTrain, 3, 11);
    s.routing = RoutingRule::kRandom;
    compare_with_reference(network(t), s, 2e-5, 2e-4);
  }
  SECTION("decode") { compare_with_reference(network(t), scenario(Phase::kDecode, 5, 9), 2e-5, 2e-4); }
  SECTION("dense decode with a window") {
    t.every = 0;
    t.window = 4;
    compare_with_reference(network(t), scenario(Phase::kDecode, 5, 9), 2e-5, 2e-4);
  }
}

TEST_CASE("the CPU backend equals the reference in bf16", "[reference][cpu]") {
  for (const NamedTiny& each : tiny_zoo()) {
    for (const Phase phase : {Phase::kPrefill, Phase::kTrain}) {
      DYNAMIC_SECTION(each.name << " " << phase_name(phase)) {
        Scenario s = scenario(phase, 2, 13);
        s.dtype = s.grad_dtype = s.kv_dtype = DType::kBF16;
        compare_with_reference(network(each.tiny), s, 2e-2, 0);
      }
    }
  }
}
#endif
