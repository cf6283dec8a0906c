// Uneven expert loads: chances, distinct experts, kept and dropped rows, by hand and as laws.
#include <catch2/catch.hpp>

#include <cmath>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/count/ledger.hpp"
#include "models/expert_loads.hpp"
#include "models/network_ini.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

MoeConfig experts(std::int64_t number, std::int64_t picks, std::vector<double> loads, double skew = 0) {
  MoeConfig moe;
  moe.experts = number, moe.picks = picks, moe.loads = std::move(loads), moe.skew = skew;
  return moe;
}
// The chances of all experts, largest first.
std::vector<double> chances(const MoeConfig& moe) {
  std::vector<double> all;
  for (const ExpertLoad& load : expert_loads(moe)) all.insert(all.end(), static_cast<size_t>(load.experts), load.chance);
  return all;
}
double distinct(const MoeConfig& moe, std::int64_t tokens, double taken = 1) { return expected_distinct(expert_loads(moe), tokens, taken); }

Scenario step(Phase phase, std::int64_t length, std::int64_t batch) {
  Scenario s;
  s.phase = phase;
  s.length = s.context = length;
  s.batch = batch;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  return s;
}

// Mixtral with other loads.
Network mixtral(std::vector<double> loads, double skew = 0, std::optional<Fraction> capacity = {}) {
  Network net = builtin_network("mixtral-8x7b");
  for (BlockConfig& kind : net.kinds) {
    kind.mlp->moe->loads = loads;
    kind.mlp->moe->skew = skew;
    kind.mlp->moe->capacity = capacity;
  }
  return net;
}
const Gemm& gate(const Workload& w) {
  for (const Op& op : w.ops())
    if (op.leaf == "moe/gate") return std::get<Gemm>(op.spec);
  throw std::runtime_error("no experts");
}

}  // namespace

TEST_CASE("chances are proportional to the loads, none above one", "[experts]") {
  CHECK(chances(experts(4, 2, {})) == std::vector<double>{.5, .5, .5, .5});
  CHECK(chances(experts(4, 2, {1, 4, 1, 2})) == std::vector<double>{1, .5, .25, .25});           // 2 w / 8, sorted
  CHECK(chances(experts(3, 2, {10, 1, 1})) == std::vector<double>{1, .5, .5});                   // 20/12 is cut to 1; one pick is left for two
  CHECK(chances(experts(4, 3, {1, 100, 10, 1})) == std::vector<double>{1, 1, .5, .5});           // two are full
  CHECK(chances(experts(3, 2, {1, 0, 1})) == std::vector<double>{1, 1, 0});                      // nobody comes to the third
  const std::vector<double> zipf = chances(experts(3, 1, {}, 1));                               // 1 : 1/2 : 1/3 = 6 : 3 : 2
  CHECK(zipf[0] == Approx(6. / 11));
  CHECK(zipf[1] == Approx(3. / 11));
  CHECK(zipf[2] == Approx(2. / 11));
  CHECK(chances(experts(2, 5, {3, 1})) == std::vector<double>{1, 1});  // more picks than experts (no-ops take the rest)
}

TEST_CASE("distinct experts under skew: sum over e of 1 - (1 - p_e)^T", "[experts]") {
  CHECK(distinct(experts(4, 2, {4, 2, 1, 1}), 1) == Approx(2));
  CHECK(distinct(experts(4, 2, {4, 2, 1, 1}), 2) == Approx(1 + .75 + 2 * .4375));
  CHECK(distinct(experts(3, 1, {}, 1), 2) == Approx(193. / 121));  // 3 - (25 + 64 + 81) / 121
  CHECK(distinct(experts(4, 2, {4, 2, 1, 1}), 2, .5) == Approx(.75 + .4375 + 2 * (1 - .875 * .875)));
  CHECK(distinct(experts(4, 2, {4, 2, 1, 1}), 0) == 0);
  // Even loads are the closed form: the usual formula.
  for (const auto& [e, k, t, value] : {std::tuple{8, 2, 1, 2.0}, std::tuple{8, 2, 4, 5.46875}, std::tuple{8, 2, 16, 7.919819}, std::tuple{128, 8, 16, 82.42251},
                                       std::tuple{256, 8, 32, 163.31385}, std::tuple{256, 8, 128, 251.60115}})
    CHECK(distinct(experts(e, k, {}), t) == Approx(value).epsilon(1e-6));
}

TEST_CASE("kept rows: E[min(n, slots)] of a binomial", "[experts]") {
  CHECK(expected_min(2, .5, 1) == Approx(.75));
  CHECK(expected_min(3, .5, 2) == Approx(11. / 8));  // (3 * 1 + 3 * 2 + 1 * 2) / 8
  CHECK(expected_min(3, .5, 3) == Approx(1.5));
  CHECK(expected_min(3, 1, 2) == 2);
  CHECK(expected_min(3, 0, 2) == 0);
  // A wide one: slots at the mean lose half of the mean deviation, 500 / sqrt(2 pi) = 199.47.
  CHECK(expected_min(1'000'000, .5, 500'000) == Approx(500'000 - 199.4711).epsilon(1e-9));
  CHECK(expected_min(1'000'000'000, .5, 400'000'000) == 400'000'000);
  CHECK(expected_min(1'000'000'000, .5, 600'000'000) == 500'000'000);
  // T = 2, one slot each: 1 + 3/4 + 2 * 7/16 = 2.625 of 4 assignments are kept.
  CHECK(expected_kept(expert_loads(experts(4, 2, {4, 2, 1, 1})), 2, 1, 1) == Approx(2.625));
}

TEST_CASE("skew never raises distinct experts or kept rows", "[experts]") {
  for (const auto& [e, k, t] : {std::tuple{8, 2, 4}, std::tuple{64, 6, 100}, std::tuple{256, 8, 32}}) {
    double before_distinct = 1e9, before_kept = 1e9;
    for (double skew : {0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 16.0}) {
      const auto loads = expert_loads(experts(e, k, {}, skew));
      double sum = 0;
      for (const ExpertLoad& load : loads) sum += load.chance * static_cast<double>(load.experts);
      CHECK(sum == Approx(k).epsilon(1e-9));
      const double d = expected_distinct(loads, t, 1), kept = expected_kept(loads, t, 1, std::max<std::int64_t>(1, t * k / e));
      CHECK(d <= before_distinct + 1e-9);
      CHECK(kept <= before_kept + 1e-9);
      CHECK(d >= k - 1e-9);
      before_distinct = d, before_kept = kept;
    }
  }
}

TEST_CASE("a decode step reads the weights of distinct experts under skew", "[experts]") {
  // Four experts of eight take everything: 4 (1 - .5^4) = 3.75 of 352,321,536 bytes in each of 32 layers.
  const auto weights = [](const Workload& w) {
    double sum = 0;
    for (size_t i = 0; i < w.ops().size(); ++i) {
      const auto* gemm = std::get_if<Gemm>(&w.ops()[i].spec);
      if (!gemm || gemm->experts == 1) continue;
      sum += (expected_cost(w.ops()[i]).read - 2.0 * 8 * static_cast<double>(gemm->in)) * static_cast<double>(w.uses(static_cast<int>(i)));
    }
    return sum;
  };
  const Workload some = build(mixtral({1, 1, 1, 1, 0, 0, 0, 0}), step(Phase::kDecode, 4096, 4));
  CHECK(weights(some) == Approx(3.75 * 352'321'536 * 32).epsilon(1e-12));
  CHECK(expected_experts(gate(some)) == Approx(3.75));
  const Workload even = build(mixtral({}), step(Phase::kDecode, 4096, 4));
  CHECK(weights(even) == Approx(61'656'268'800.0).epsilon(1e-12));
  // Compute, declared rows and footprint do not change.
  CHECK(some.total().flops == even.total().flops);
  CHECK(some.expected_total().flops == Approx(even.expected_total().flops));
  CHECK(some.total().read == even.total().read);
  CHECK(build(mixtral(std::vector<double>(8, 3.0)), step(Phase::kDecode, 4096, 4)).expected_total().read == Approx(even.expected_total().read).epsilon(1e-12));
  // The sums without a list are the same.
  const ListTotals totals = count_totals(mixtral({1, 1, 1, 1, 0, 0, 0, 0}), step(Phase::kDecode, 4096, 4), true);
  CHECK(totals.expected.read == Approx(some.expected_total().read).epsilon(1e-12));
}

TEST_CASE("capacity drops more rows under skew", "[experts]") {
  // T = 2048, k = 2, cf = 1: 512 slots per expert, 4096 declared. One expert of eight is in every choice (p = 1), seven share the other pick
  // (p = 1/7, mean 292.6, five standard deviations below 512 - beyond it 1e-35 of a row): 512 + 7 * 2048 / 7 = 2560 rows stay.
  const Network one = mixtral({1e9, 1, 1, 1, 1, 1, 1, 1}, 0, Fraction{1, 1});
  const Workload w = build(one, step(Phase::kPrefill, 2048, 1));
  const Gemm& gemm = gate(w);
  CHECK(gemm.rows.count == 4096);
  CHECK(expected_cost(gemm).rows == Approx(2560).epsilon(1e-6));
  CHECK(expected_experts(gemm) == Approx(8));
  const Gemm even = gate(build(mixtral({}, 0, Fraction{1, 1}), step(Phase::kPrefill, 2048, 1)));
  CHECK(expected_cost(even).rows > 4000);
  CHECK(expected_cost(even).rows < 4096);
}

TEST_CASE("no-ops take their share of the choices before an expert is full", "[experts]") {
  // 16 experts by 1 / r, 4 choices of which half go to no-ops: two, p_1 = 2 / H_16 = 0.5916 (four would be 1.18, cut to 1 and halved to 0.5).
  MoeConfig moe = experts(16, 4, {}, 1);
  moe.noops = 2, moe.noop_share = {1, 2};
  double harmonic = 0, expected = 0;
  for (int r = 1; r <= 16; ++r) harmonic += 1. / r;
  for (int r = 1; r <= 16; ++r) expected += 1 - std::pow(1 - 2 / (r * harmonic), 15);
  CHECK(chances(moe).front() == Approx(2 / harmonic));
  CHECK(expected == Approx(11.121).margin(5e-4));
  CHECK(distinct(moe, 15) == Approx(expected));
}

TEST_CASE("declared expert slots are E round(cf T k / E)", "[experts]") {
  const std::string base = "[network]\nwidth = 8\nvocab = 9\nlayers = 1\nheads = 2\n[moe]\nexpert_width = 8\n";
  const auto rows = [&](const std::string& more, std::int64_t tokens) {
    const Workload w = build(parse_network_ini(base + more, "t.ini"), step(Phase::kPrefill, tokens, 1));
    for (const Op& op : w.ops())
      if (const auto* gemm = std::get_if<Gemm>(&op.spec); gemm && gemm->experts > 1) return std::pair(gemm->rows.count, expected_cost(op).rows);
    return std::pair(std::int64_t{-1}, 0.0);
  };
  // ceil(1.25 x 12 x 4 / 4) = 15 slots for 12 tokens: three of every expert stay empty.
  CHECK(rows("experts = 4\npicks = 4\nexpert_capacity = 1.25\nexpert_rounding = ceil\n", 12) == std::pair(std::int64_t{60}, 48.0));
  // floor(8 x 2 / (16 x 4)) = 0: an expert has one slot all the same. Of 8 tokens, 1 - 2^-8 find it empty.
  const auto one = rows("experts = 4\npicks = 2\nexpert_capacity = 1/16\n", 8);
  CHECK(one.first == 4);
  CHECK(one.second == Approx(4 * (1 - 1. / 256)).margin(1e-14));
  // Two experts of three slots, four tokens of one pick: E[min(n, 3)] = 2 - 1/16 each, in full precision.
  const auto three = rows("experts = 2\npicks = 1\nexpert_capacity = 3/2\n", 4);
  CHECK(three.first == 6);
  CHECK(three.second == Approx(3.875).margin(1e-14));
  CHECK_THROWS_AS(rows("experts = 4\npicks = 2\nexpert_capacity = 0\n", 8), Error);
  // The closed form of the conventions counts the same slots.
  const Network network = parse_network_ini(base + "experts = 4\npicks = 2\nexpert_capacity = 1/16\n", "t.ini");
  CHECK(exact_terms(network, 8) == list_terms(network, 8, false));
}

TEST_CASE("a routed block without a row has no expert slots", "[experts]") {
  // 8 tokens of width 64: the depth router 2 x 8 x 64 and the last position's logits 2 x 64 x 100.
  for (const char* route : {"slots = 0\n", "capacity = 1/10\n"}) {
    const Network network = parse_network_ini(std::string("[network]\nwidth = 64\nvocab = 100\nlayers = 1\nheads = 4\n[moe]\nexperts = 4\npicks = 2\nexpert_width = 32\nexpert_capacity = 1/2\n") +
                                                  "[route]\nevery = 1\n" + route, "t.ini");
    const Workload w = build(network, step(Phase::kPrefill, 8, 1));
    CHECK(w.total().flops.str() == "13824");
    CHECK(w.expected_total().flops == 13824);
    const ListTotals totals = count_totals(network, step(Phase::kPrefill, 8, 1), true);
    CHECK(totals.total == w.total());
    CHECK(totals.expected.read == w.expected_total().read);
  }
}

TEST_CASE("expert loads in files and their errors", "[experts]") {
  const std::string base = "[network]\nwidth = 8\nvocab = 9\nlayers = 1\nheads = 2\n[moe]\nexperts = 4\npicks = 2\nexpert_width = 3\n";
  const auto read = [&](const std::string& more) { return parse_network_ini(base + more, "t.ini"); };
  CHECK(read("expert_skew = 1.25\n").kinds[0].mlp->moe->skew == 1.25);
  const Network loads = read("expert_loads = 4, 2, 1, 0.5\n");
  CHECK(loads.kinds[0].mlp->moe->loads == std::vector<double>{4, 2, 1, .5});
  CHECK(parse_network_ini(to_ini(loads), "t.ini").kinds == loads.kinds);
  CHECK(read("expert_loads = none\n").kinds == read("").kinds);
  for (const char* wrong : {"expert_skew = -1\n", "expert_skew = nan\n", "expert_skew = 1e9\n", "expert_loads = 1, 2, 3\n", "expert_loads = 1, 0, 0, 0\n", "expert_loads = 1, 1, 1, -1\n",
                            "expert_loads = 1, 1, 1, x\n", "expert_loads = 1, 1, 1, 1e300\n", "expert_skew = 1\nexpert_loads = 1, 1, 1, 1\n", "expert_loads =\n"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(read(wrong), Error);
  }
}
