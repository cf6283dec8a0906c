// The CPU backend against the reference, op by op and as whole lists: every architecture switch of the tiny zoo.
#include <catch2/catch.hpp>

#include "tests/kernels/whole_list_cases.hpp"

#if FATHOM_CPU
#include "tests/kernels/cpu_against_reference.hpp"

using namespace fathom;
using namespace fathom::testing;

TEST_CASE("the CPU backend equals the reference on prefills", "[reference][cpu]") { compare_zoo(compare_with_reference, Phase::kPrefill, 2e-5, 2e-4); }

TEST_CASE("the CPU backend equals the reference on training steps", "[reference][cpu]") { compare_zoo(compare_with_reference, Phase::kTrain, 2e-5, 5e-4); }

TEST_CASE("the CPU backend equals the reference with recomputation and gradient accumulation", "[reference][cpu]") { compare_recomputation(compare_with_reference); }

TEST_CASE("the CPU backend equals the reference on last-token logits, threshold prefills and decode", "[reference][cpu]") {
  SECTION("last logits, dense") {
    Scenario s = scenario(Phase::kPrefill, 3, 7);
    s.logits = LogitsKind::kLast;
    compare_with_reference(network(Tiny{}), s, 2e-5, 2e-4);
  }
  compare_routing_and_decode(compare_with_reference);
}

TEST_CASE("the CPU backend equals the reference in bf16", "[reference][cpu]") { compare_zoo_in_bf16(compare_with_reference); }
#endif
