// Laws of counting on op lists of small random models, and the soundness of every list: what an op reads was written
// before it, gradients are overwritten first and added to later, and counting without a list gives the list's sums.
#include <catch2/catch.hpp>

#include <set>

#include "lib/error.hpp"
#include "lib/plan.hpp"
#include "models/totals_memo.hpp"
#include "models/builder.hpp"
#include "models/pairs.hpp"
#include "tests/random_networks.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

// The scenarios a random network cannot be built for are stated refusals; anything else is a bug.
std::optional<Workload> try_build(const Network& network, const Scenario& scenario) {
  try {
    return build(network, scenario);
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return std::nullopt;
  }
}

std::string problem(const Workload& w) {
  std::set<TensorInstance> written;
  std::set<TensorInstance> gradients;
  const auto needs = [](Role role) { return role == Role::kActivation || role == Role::kIndex || role == Role::kGradient; };
  for (const Instance& instance : w.instances()) {
    const Op& op = w.ops()[static_cast<size_t>(instance.op)];
    const Step& step = w.program()[static_cast<size_t>(instance.step)];
    for (const Operand& in : op.inputs) {
      const Tensor& tensor = w.tensors()[static_cast<size_t>(in.tensor)];
      if (needs(tensor.role) && !written.count(instance_of(w, step, in))) return w.path(instance) + " reads " + tensor.name;
    }
    bool accumulates = false, accumulates_weights = false;
    std::visit(
        [&](const auto& spec) {
          if constexpr (requires { spec.accumulate; }) accumulates = spec.accumulate;
          if constexpr (requires { spec.accumulate_weights; }) accumulates_weights = spec.accumulate_weights;
        },
        op.spec);
    const bool adds = std::holds_alternative<GatherBackward>(op.spec) || std::holds_alternative<Rope>(op.spec);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const Tensor& tensor = w.tensors()[static_cast<size_t>(op.outputs[i].tensor)];
      const TensorInstance at = instance_of(w, step, op.outputs[i]);
      if (tensor.role == Role::kGradient) {
        const bool norm = std::holds_alternative<RmsNormBackward>(op.spec) || std::holds_alternative<LayerNormBackward>(op.spec) || std::holds_alternative<AttentionBackward>(op.spec);
        bool adds_here = norm ? accumulates_weights : accumulates;
        if (const auto* embedding = std::get_if<EmbeddingBackward>(&op.spec); embedding && i == 1) adds_here = embedding->accumulate_positions;
        if (adds_here != (gradients.count(at) > 0)) return w.path(instance) + (adds_here ? " adds to unwritten " : " overwrites ") + tensor.name;
        gradients.insert(at);
      } else if (tensor.role == Role::kActivation && i == 0 && (adds || (op.pass == Pass::kBackward && accumulates && !std::holds_alternative<ScatterAddBackward>(op.spec) &&
                                                                         !std::holds_alternative<RouterScoreBackward>(op.spec)))) {
        if (!written.count(at)) return w.path(instance) + " adds to unwritten " + tensor.name;
      }
      written.insert(at);
    }
  }
  // Whatever AdamW updates has a gradient.
  for (const Tensor& tensor : w.tensors())
    if (tensor.role == Role::kGradient) {
      bool any = false;
      for (const TensorInstance& at : gradients) any = any || &w.tensors()[static_cast<size_t>(at.tensor)] == &tensor;
      if (!any) return "no gradient ever reaches " + tensor.name;
    }
  return "";
}

u128 flops(const Network& n, const Scenario& s) { return count_totals(n, s).total.flops.value(); }
std::string text(u128 value) { return to_string(value); }

Network plain(bool moe = false) {
  Network n;
  n.name = "plain";
  n.width = 12, n.vocab = 20, n.tied = false;
  BlockConfig b;
  b.attention.emplace();
  b.attention->heads = 4, b.attention->kv_heads = 2, b.attention->head_dim = 6, b.attention->rope_dim = 6;
  b.mlp.emplace();
  b.mlp->width = 20, b.mlp->gated = true;
  if (moe) b.mlp->moe = MoeConfig{6, 2, 5, 1, 7};
  n.kinds = {b};
  n.layers = {0, 0, 0};
  return n;
}
Scenario prefill(std::int64_t length, LogitsKind logits = LogitsKind::kAll) {
  Scenario s;
  s.length = length;
  s.logits = logits;
  return s;
}

}  // namespace

TEST_CASE("every list is sound, and counting without it gives its sums", "[laws]") {
  int built = 0;
  for (std::uint64_t seed = 0; seed < seeds(1500); ++seed) {
    const Network network = random_network(seed);
    for (Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      const Scenario scenario = random_scenario(seed, phase);
      const std::optional<Workload> w = try_build(network, scenario);
      if (!w) continue;
      CAPTURE(seed, phase_name(phase), recompute_name(scenario.recompute));
      ++built;
      CHECK(problem(*w) == "");
      const ListTotals totals = count_totals(network, scenario, true);
      CHECK(totals.total == w->total());
      for (int p = 0; p < kPartCount; ++p) CHECK(totals.flops_by_part[static_cast<size_t>(p)] == w->total(static_cast<Part>(p)).flops);
      for (int p = 0; p < 4; ++p) CHECK(totals.flops_by_pass[static_cast<size_t>(p)] == w->total(static_cast<Pass>(p)).flops);
      const ExpectedCost expected = w->expected_total();
      CHECK(totals.expected.flops == Approx(expected.flops).epsilon(1e-9));
      CHECK(totals.expected.read == Approx(expected.read).epsilon(1e-9));
      CHECK(expected.flops <= w->total().flops.to_double() * (1 + 1e-9) + 1e-6);
    }
  }
  CHECK(built > static_cast<int>(seeds(3500)));
}

TEST_CASE("totals along batches and lengths are those of each configuration", "[laws]") {
  TotalsMemo memo;
  int affine = 0, random = 0;
  const auto compare = [&](const Network& network, std::uint64_t seed, const Scenario& scenario, bool expectations) {
    const ListTotals direct = count_totals(network, scenario, expectations);
    const ListTotals& kept = memo.totals(network, seed, scenario, expectations);
    CAPTURE(scenario.length, scenario.batch, expectations);
    CHECK(kept.total == direct.total);
    CHECK(kept.flops_by_part == direct.flops_by_part);
    CHECK(kept.flops_by_pass == direct.flops_by_pass);
    if (expectations) {
      CHECK(kept.expected.flops == direct.expected.flops);
      CHECK(kept.expected.read == direct.expected.read);
    }
    ++(direct.affine_in_batch ? affine : random);
  };
  for (std::uint64_t seed = 0; seed < seeds(500); ++seed) {
    const Network network = random_network(seed);
    for (Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario = random_scenario(seed, phase);
      if (seed % 9 == 4) scenario.fusions = parse_fusions(seed % 2 == 0 ? "all" : "none");
      if (!try_build(network, scenario)) continue;
      CAPTURE(seed, phase_name(phase));
      for (const std::int64_t batch : {2, 1, 3, 7, 8, 1000, 2}) {
        scenario.batch = batch;
        compare(network, seed, scenario, batch != 8);
      }
      // Lengths upwards, down again, and in steps; two batches of each.
      for (std::int64_t step : {1, 3, 4}) {
        for (std::int64_t k = 0; k < 30; ++k) {
          scenario.length = 1 + step * (k == 25 ? 2 : k);
          if (phase == Phase::kDecode && seed % 4 < 3) scenario.context = scenario.length;
          for (const std::int64_t batch : {1, 5}) {
            scenario.batch = batch;
            compare(network, seed, scenario, seed % 2 == 0);
          }
        }
      }
    }
  }
  CHECK(affine > static_cast<int>(seeds(50'000)));
  CHECK(random > static_cast<int>(seeds(50'000)));
}

TEST_CASE("pairs: windows and chunks (law 1)", "[laws]") {
  for (std::int64_t s : {1, 2, 7, 64, 2048}) {
    const u128 causal = visible_pairs({MaskKind::kCausal, 0, 0}, s, 0);
    u128 before = 0;
    for (std::int64_t w = 1; w <= s + 2; w += s > 100 ? 97 : 1) {
      const u128 pairs = visible_pairs({MaskKind::kCausal, w, 0}, s, 0);
      CHECK(pairs >= before);
      if (w >= s) CHECK(pairs == causal);
      before = pairs;
    }
    CHECK(visible_pairs({MaskKind::kCausal, s, 0}, s, 0) == causal);
    CHECK(visible_pairs({MaskKind::kCausal, 0, s}, s, 0) == causal);
  }
  CHECK(text(visible_pairs({MaskKind::kCausal, 512, 0}, 2048, 0)) == "917760");
  CHECK(text(visible_pairs({MaskKind::kCausal, 0, 256}, 2048, 0)) == "263168");
  CHECK(text(visible_pairs({MaskKind::kCausal, 0, 0}, 512, 1536)) == "917760");
}

TEST_CASE("lengths, batches and layers (laws 2, 6, 8)", "[laws]") {
  for (const bool moe : {false, true}) {
    const Network n = plain(moe);
    for (std::int64_t s = 1; s < 40; s += 3) {
      const u128 one = flops(n, prefill(s)), two = flops(n, prefill(2 * s));
      CHECK(two > 2 * one);
      CHECK(two < 4 * one);
      // Chunks of any sizes sum to the whole; so do single decode steps.
      u128 chunks = 0;
      for (std::int64_t at = 0, step = 1; at < s; at += step, step = step % 5 + 1) {
        Scenario c = prefill(std::min(step, s - at));
        c.past = at;
        chunks += flops(n, c);
      }
      CHECK(text(chunks) == text(one));
      u128 steps = 0;
      for (std::int64_t context = 1; context <= s; ++context) {
        Scenario d;
        d.phase = Phase::kDecode;
        d.context = context;
        steps += flops(n, d);
      }
      CHECK(text(steps) == text(one));
    }
    Scenario batch = prefill(9);
    const Cost single = count_totals(n, batch).total;
    batch.batch = 5;
    CHECK(count_totals(n, batch).total.flops == single.flops * 5);
    CHECK(count_totals(n, batch).total.read < single.read * 5);  // weights are read once
    Network deep = n;
    deep.layers.resize(6, 0);
    Network head = n;
    head.layers.resize(1);
    CHECK(text(flops(deep, prefill(9)) - flops(n, prefill(9))) == text(3 * (flops(n, prefill(9)) - flops(head, prefill(9))) / 2));
  }
}

TEST_CASE("heads, tying and experts (laws 3, 4)", "[laws]") {
  Network n = plain();
  const Scenario s = prefill(11);
  const ListTotals two = count_totals(n, s);
  n.kinds[0].attention->kv_heads = 4;
  const ListTotals four = count_totals(n, s);
  CHECK(two.part(Part::kCore) == four.part(Part::kCore));
  CHECK(text(four.part(Part::kProjection).value() - two.part(Part::kProjection).value()) == text(u128{2} * 11 * 12 * 2 * 2 * 6 * 3));  // 2 T h (2 more heads) 2 d, 3 layers
  Network tied = plain();
  tied.tied = true;
  CHECK(text(flops(tied, s)) == text(flops(plain(), s)));
  Network moe = plain(true);
  const ListTotals k2 = count_totals(moe, s);
  moe.kinds[0].mlp->moe->picks = 4;
  const ListTotals k4 = count_totals(moe, s);
  const u128 routed2 = u128{3} * 2 * 11 * 2 * 12 * 5 * 3;
  CHECK(text(k4.total.flops.value() - k2.total.flops.value()) == text(routed2));
  moe = plain(true);
  moe.kinds[0].mlp->moe->experts = 12;
  CHECK(text(count_totals(moe, s).part(Part::kExperts).value()) == text(k2.part(Part::kExperts).value()));
  CHECK(text(count_totals(moe, s).part(Part::kRouter).value()) == text(2 * k2.part(Part::kRouter).value()));
}

TEST_CASE("routed depth between router only and dense (law 5)", "[laws]") {
  const Network dense = plain();
  Route r;
  u128 before = 0;
  for (int c = 0; c <= 8; ++c) {
    r.capacity = make_fraction(c, 8);
    const u128 total = flops(with_routes(dense, 1, r), prefill(16));
    if (c > 0) CHECK(total > before);
    before = total;
    const u128 router = u128{3} * 2 * 16 * 12;
    if (c == 8) CHECK(text(total) == text(flops(dense, prefill(16)) + router));
    if (c == 0) CHECK(text(total) == text(router + 2 * u128{16} * 12 * 20));  // and the head
  }
}

TEST_CASE("training is three times forward; freezing and recomputation (law 7)", "[laws]") {
  for (const bool moe : {false, true}) {
    Network n = plain(moe);
    Scenario t = prefill(10);
    t.phase = Phase::kTrain;
    const u128 full = flops(n, t);
    CHECK(text(full) == text(3 * flops(n, prefill(10))));
    for (Recompute policy : {Recompute::kSelective, Recompute::kFull}) {
      Scenario again = t;
      again.recompute = policy;
      const ListTotals totals = count_totals(n, again);
      CHECK(totals.total.flops.value() > full);
      CHECK(text(totals.total.flops.value() - totals.pass(Pass::kRecompute).value()) == text(full));
    }
    Scenario micro = t;
    micro.grad_accumulation = 3;
    CHECK(text(flops(n, micro)) == text(3 * full));
    Network frozen = n;
    frozen.freeze_embedding = true;
    if (n.positions == PositionKind::kLearned || n.embedding_norm)
      CHECK(flops(frozen, t) == full);  // trained tables and gains lie before every product
    else
      CHECK(flops(frozen, t) < full);
    if (moe) continue;
    Network lora = n;
    lora.lora = Lora{2, {"q", "v"}};
    CHECK(flops(lora, t) < flops(frozen, t));
  }
}
