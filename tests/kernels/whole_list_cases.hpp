// Lists that every backend is compared with the reference on. `compare(network, scenario, op tolerance, list tolerance)` is the backend's.
#pragma once

#include <catch2/catch.hpp>

#include "tests/tiny_models.hpp"

namespace fathom::testing {

// Every architecture switch.
template <class Compare>
void compare_zoo(const Compare& compare, Phase phase, double op_tolerance, double list_tolerance) {
  for (const NamedTiny& each : tiny_zoo()) {
    DYNAMIC_SECTION(each.name) { compare(network(each.tiny), scenario(phase, 2, 13), op_tolerance, list_tolerance); }
  }
}

template <class Compare>
void compare_zoo_in_bf16(const Compare& compare) {
  for (const NamedTiny& each : tiny_zoo()) {
    for (const Phase phase : {Phase::kPrefill, Phase::kTrain}) {
      DYNAMIC_SECTION(each.name << " " << phase_name(phase)) {
        Scenario s = scenario(phase, 2, 13);
        s.dtype = s.grad_dtype = s.kv_dtype = DType::kBF16;
        compare(network(each.tiny), s, 2e-2, 0);
      }
    }
  }
}

template <class Compare>
void compare_recomputation(const Compare& compare) {
  Tiny t;
  t.every = 2;
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    Scenario s = scenario(Phase::kTrain, 2, 9);
    s.recompute = recompute;
    s.grad_accumulation = 2;
    CAPTURE(recompute_name(recompute));
    compare(network(t), s, 2e-5, 5e-4);
  }
}

template <class Compare>
void compare_routing_and_decode(const Compare& compare) {
  Tiny t;
  t.every = 2;
  t.capacity = Fraction{1, 2};
  SECTION("threshold prefill") {
    Scenario s = scenario(Phase::kPrefill, 3, 11);
    s.routing = RoutingRule::kThreshold;
    compare(network(t), s, 2e-5, 2e-4);
  }
  SECTION("random routing") {
    Scenario s = scenario(Phase::kTrain, 3, 11);
    s.routing = RoutingRule::kRandom;
    compare(network(t), s, 2e-5, 2e-4);
  }
  SECTION("decode") { compare(network(t), scenario(Phase::kDecode, 5, 9), 2e-5, 2e-4); }
  SECTION("dense decode with a window") {
    t.every = 0;
    t.window = 4;
    compare(network(t), scenario(Phase::kDecode, 5, 9), 2e-5, 2e-4);
  }
}

}  // namespace fathom::testing
