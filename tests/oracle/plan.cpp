// What a budget buys, and the deeper twin of equal forward FLOPs.
#include <catch2/catch.hpp>

#include <cmath>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/count/depth.hpp"
#include "models/params.hpp"
#include "models/plan/isoflop.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

Plan plan_of(const std::string& convention) {
  PlanOptions options;
  options.budgets = {6e18};
  options.convention = convention;
  return plan_isoflop({builtin_network("dense-220m")}, options);
}

}  // namespace

TEST_CASE("steps and tokens at 6e18, batch 128 x 2048") {
  const Plan a = plan_of("mod-a");
  const Plan b = plan_of("mod-b");
  REQUIRE(a.rows.size() == 3);
  CHECK(a.rows[0].steps == 15879);
  CHECK(b.rows[0].steps == 14186);
  CHECK(a.rows[1].steps == 29011);
  CHECK(b.rows[1].steps == 23818);
  CHECK(a.rows[0].tokens / 1e9 == Approx(4.16).margin(5e-3));
  CHECK(b.rows[0].tokens / 1e9 == Approx(3.72).margin(5e-3));
  CHECK(a.rows[1].of_dense == Approx(.5473).margin(5e-5));
  CHECK(b.rows[1].of_dense == Approx(.5956).margin(5e-5));
  // Step-count ratio over step-rate ratio of the paper (1.66): 1.10 and 1.01.
  CHECK(static_cast<double>(a.rows[1].steps) / static_cast<double>(a.rows[0].steps) / 1.66 == Approx(1.10).margin(5e-3));
  CHECK(static_cast<double>(b.rows[1].steps) / static_cast<double>(b.rows[0].steps) / 1.66 == Approx(1.01).margin(5e-3));
}

TEST_CASE("the deeper twin: 33 blocks for 18") {
  const Network dense = builtin_network("dense-220m");
  const std::vector<std::pair<std::string, std::pair<double, double>>> modes = {{"mod-a", {1.029, .973}}, {"mod-b", {1.026, .976}}, {"exact", {1.035, .986}}};
  for (const auto& [convention, ratios] : modes) {
    INFO(convention);
    PlanOptions options;
    options.convention = convention;
    const Plan plan = plan_of(convention);
    const PlanRow& deeper = plan.rows[2];
    CHECK(deeper.layers == 33);
    CHECK(deeper.of_dense == Approx(ratios.first).margin(5e-4));
    // One block fewer stays below the dense model.
    const Network shallower = with_layers(dense, 32);
    options.budgets = {6e18};
    const Plan below = plan_isoflop({shallower}, options);
    CHECK((below.rows[1].forward / plan.rows[0].forward).value() == Approx(ratios.second).margin(5e-4));
    CHECK(deeper_twin(dense, options).layer_count() == 33);
  }
  // 12 h^2 L without table and vectors: 347M parameters at 33 blocks, 12 x 896^2 x 33 = 317.9M + the table of 28.7M.
  CHECK(count_parameters(with_layers(dense, 33)).total.to_double() / 1e6 == Approx(347).margin(1));
}

TEST_CASE("a plan is about its budget") {
  PlanOptions options;
  const std::vector<Network> ladder = dense_ladder();
  REQUIRE(ladder.size() == 7);
  CHECK(ladder.front().name == "dense-60m");
  CHECK(ladder.back().name == "dense-3b");
  const Plan plan = plan_isoflop(ladder, options);
  REQUIRE(plan.optima.size() == 3);
  REQUIRE(plan.rows.size() == 3 * 7 * 3);
  for (const PlanRow& row : plan.rows) {
    // Spent FLOPs are the budget to within half a step.
    const double step = 3 * row.forward.value() * 128;
    CHECK(std::abs(static_cast<double>(row.steps) * step - row.budget) <= step / 2 * (1 + 1e-9));
    CHECK(row.loss.has_value() == (row.variant == "dense"));
    if (row.variant == "dense") CHECK(row.of_dense == 1.0);
    if (row.variant == "MoD") CHECK(row.of_dense < 1);
    if (row.variant == "MoD deeper") CHECK(row.of_dense >= 1);
  }
  CHECK(plan.optima[0].params < plan.optima[1].params);
  CHECK(plan.optima[0].forward < plan.optima[2].forward);
  // A ladder member at its own optimum costs what the ladder says.
  options.law = ScalingLaw{"own", "test", ScalingLaw::Form::kPower, 0, 0, 0, 0, 0, count_parameters(ladder[2]).total.to_double(), 1e-300};
  const Plan own = plan_isoflop({ladder[2]}, options);
  CHECK(own.rows[0].of_optimum == Approx(1.0));
  CHECK_THROWS_AS(plan_isoflop({builtin_network("mod-220m")}, PlanOptions{}), Error);
  options.convention = "palm";
  CHECK_THROWS_WITH(plan_isoflop(ladder, options), Catch::Contains("depth routing"));
  options.convention = "exact";
  options.budgets = {1e10};
  CHECK_THROWS_WITH(plan_isoflop(ladder, options), Catch::Contains("one step"));
}

TEST_CASE("training FLOPs are three times forward on the op list") {
  Scenario s;
  s.phase = Phase::kTrain;
  s.logits = LogitsKind::kAll;
  const Plan plan = plan_of("exact");
  CHECK(build(builtin_network("dense-220m"), s).total().flops.value() == (plan.rows[0].forward * Rational(3)).count());
  CHECK(build(alternate(builtin_network("dense-220m"), 2, {1, 8}), s).total().flops.value() == (plan.rows[1].forward * Rational(3)).count());
}

TEST_CASE("laws") {
  const ScalingLaw& three = find_law("chinchilla-3");
  const double n = three.optimal_params(1e20);
  const double d = three.optimal_tokens(1e20);
  CHECK(6 * n * d == Approx(1e20));
  // The optimum of the parametric form: moving along the budget raises the loss.
  CHECK(*three.loss(n, d) < *three.loss(n * 1.1, d / 1.1));
  CHECK(*three.loss(n, d) < *three.loss(n / 1.1, d * 1.1));
  CHECK(find_law("chinchilla-1").optimal_params(1.21e20) == Approx(1e9));
  CHECK_FALSE(find_law("chinchilla-1").loss(1, 1));
  CHECK_THROWS_WITH(find_law("chinchila-3"), Catch::Contains("chinchilla-3"));
  const ScalingLaw own = parse_law("[law]\nform = power\ncoefficient = 0.1\nexponent = 0.5\nsource = own\n", "own.ini");
  CHECK(own.optimal_params(1e20) == Approx(1e9));
  CHECK_THROWS_AS(parse_law("[law]\nform = power\ncoefficient = -1\nexponent = 0.5\n", "x.ini"), Error);
  CHECK_THROWS_AS(parse_law("[law]\nform = parametric\nE = 1\n", "x.ini"), Error);
  CHECK_THROWS_AS(parse_law("[law]\nform = power\ncoefficient = nan\nexponent = 0.5\n", "x.ini"), Error);
}
