// Mixtures of experts on the CPU against the reference as whole lists: top-k experts, no-op experts (integrated MoDE), experts inside a routed
// block (staged MoDE), shared experts, both score functions; training, prefill and decode, in f32 and bf16 (arXiv 2404.02258, 4.3).
#include <catch2/catch.hpp>

#include "tests/tiny_models.hpp"

#if FATHOM_CPU
#include "tests/kernels/cpu_against_reference.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

struct Experts {
  const char* name;
  Tiny tiny;
  MoeConfig moe;
};

Network with_experts(const Experts& e) {
  Network n = network(e.tiny);
  for (BlockConfig& kind : n.kinds) {
    kind.mlp->moe = e.moe;
    kind.mlp->width = 0;
  }
  return n;
}

MoeConfig moe_of(std::int64_t experts, std::int64_t picks) {
  MoeConfig e;
  e.experts = experts, e.picks = picks, e.width = 20;
  return e;
}

std::vector<Experts> zoo() {
  std::vector<Experts> all;
  const auto add = [&](const char* name, MoeConfig moe, auto&& change) {
    Tiny t;
    change(t);
    all.push_back({name, t, moe});
  };
  const auto plain = [](Tiny&) {};
  const auto routed = [](Tiny& t) { t.every = 2, t.capacity = Fraction{1, 2}; };
  add("top-2 of 4", moe_of(4, 2), plain);
  add("top-1 of 3, gated", moe_of(3, 1), [](Tiny& t) { t.gated = true, t.activation = ActivationKind::kSilu; });
  add("every expert", moe_of(3, 3), plain);
  MoeConfig e = moe_of(4, 2);
  e.sigmoid = e.router_bias = true;
  add("sigmoid scores, router bias", e, plain);
  e = moe_of(4, 2);
  e.shared = 2, e.shared_width = 12;
  add("shared experts", e, plain);
  e = moe_of(4, 2);
  e.noops = 2, e.noop_share = Fraction{1, 3};
  add("integrated MoDE", e, plain);
  e.sigmoid = true, e.shared = 1, e.shared_width = 12;
  add("integrated MoDE, sigmoid, shared", e, plain);
  add("staged MoDE", moe_of(4, 2), routed);
  e = moe_of(3, 1);
  e.noops = 1, e.noop_share = Fraction{1, 4};
  add("staged and integrated", e, routed);
  return all;
}

}  // namespace

TEST_CASE("experts on the CPU equal the reference in training, prefill and decode", "[cpu][experts]") {
  for (const Experts& each : zoo()) {
    DYNAMIC_SECTION(each.name) {
      const Network net = with_experts(each);
      compare_with_reference(net, scenario(Phase::kTrain, 2, 13), 2e-5, 5e-4);
      compare_with_reference(net, scenario(Phase::kPrefill, 2, 13), 2e-5, 2e-4);
      compare_with_reference(net, scenario(Phase::kDecode, 5, 9), 2e-5, 2e-4);
      Scenario s = scenario(Phase::kPrefill, 3, 11);
      s.routing = RoutingRule::kThreshold;
      compare_with_reference(net, s, 2e-5, 2e-4);
      s = scenario(Phase::kTrain, 2, 9);
      s.recompute = Recompute::kFull, s.grad_accumulation = 2;
      compare_with_reference(net, s, 2e-5, 5e-4);
    }
  }
}

TEST_CASE("experts on the CPU equal the reference in bf16", "[cpu][experts]") {
  for (const Experts& each : zoo()) {
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      DYNAMIC_SECTION(each.name << " " << phase_name(phase)) {
        Scenario s = scenario(phase, 3, 13);
        s.dtype = s.grad_dtype = s.kv_dtype = DType::kBF16;
        compare_with_reference(with_experts(each), s, 2e-2, 0);
      }
    }
  }
}
#endif
