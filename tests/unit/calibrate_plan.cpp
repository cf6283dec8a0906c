// Which calibration workloads stay when time is short: sums by hand.
#include "tools/calibrate_plan.hpp"

#include <catch2/catch.hpp>

#include "tests/unit/predict_sample.hpp"

using namespace fathom;
using Catch::Detail::Approx;

namespace {

CalibrationCost cost(const char* line, double pass, double rows = 1) {
  CalibrationCost c;
  c.line = line;
  c.rows = rows;
  c.pass = pass;
  c.passes = 4;
  return c;
}

}  // namespace

TEST_CASE("what does not fit the time is left out: what costs most for what it tells, two of a kind stay") {
  // Four passes each: 1, 2 and 4 seconds of a at 10, 20 and 160 rows, 1 and 3 of b: 11 in all.
  const std::vector<CalibrationCost> costs = {cost("a", 0.25, 10), cost("a", 0.5, 20), cost("a", 1, 160), cost("b", 0.25, 1), cost("b", 0.75, 2)};
  CHECK(fit_to_time(costs, 11) == std::vector<bool>{true, true, true, true, true});
  // Without 20 rows the nearest are a factor of two away: 2 s for 1. Without 160 they would be three of them, at an end twice as much: 4 s for 6. Without 10, 1 s for 2.
  CHECK(fit_to_time(costs, 10.9) == std::vector<bool>{true, false, true, true, true});
  CHECK(fit_to_time(costs, 1) == std::vector<bool>{true, false, true, true, true});  // 9 seconds: two of each line, however little time
  // 40 rows of a were measured before: first 20 rows go (2 s for 1), then 160, two factors of two beyond 40 (4 s for 4), which leaves 5 s.
  CHECK(fit_to_time(costs, 5, {{"a", {40}}}) == std::vector<bool>{true, false, false, true, true});
  CHECK(fit_to_time(costs, 0, {{"a", {5, 300}}, {"b", {1, 2, 3, 4, 5}}}) == std::vector<bool>{false, false, false, false, false});
}

TEST_CASE("rows that others have too tell nothing, and go first") {
  // 0.4 s at 40 rows twice, 4 s at 80: one of the twins goes before the longest.
  const std::vector<CalibrationCost> costs = {cost("a", 0.1, 40), cost("a", 0.1, 40), cost("a", 1, 80)};
  const std::vector<bool> stays = fit_to_time(costs, 4.7);
  CHECK(stays[0] != stays[1]);
  CHECK(stays[2]);
}

TEST_CASE("short workloads are given more passes than they need") {
  CHECK(cost("a", 1e-3).least() == Approx(4e-3));
  CHECK(cost("a", 1e-3).planned() == Approx(kLeastSeconds));
  CHECK(cost("a", 1).planned() == Approx(4));
}

TEST_CASE("a slower machine makes every guess longer, and nothing else does") {
  const Workload w = fathom::testing::product_workload(64, 64, 64, 3);
  Machine m = fathom::testing::toy_machine();
  const CalibrationCost fast = calibration_cost(w, m, 1e-3, 1, 0);
  for (Peak& peak : m.peaks)
    for (auto& [threads, rate] : peak.rate) rate.value /= 2;
  const CalibrationCost slow = calibration_cost(w, m, 2e-3, 1, 0);
  CHECK(slow.pass == Approx(2 * fast.pass));
  CHECK(slow.once == Approx(fast.once));
  // One of the three uses bracketed: two thirds of the references' time are saved. 1.5 x 1 ms + 3 references, 1.5 x 1 ms + 1.
  const CalibrationCost few = calibration_cost(w, m, 2e-3, 1, 1);
  const double reference = (slow.pass - 1.5 * 2e-3) / 3;
  CHECK(reference > 0);
  CHECK(few.pass == Approx(slow.pass - 2 * reference));
}

TEST_CASE("what surrounds a product of few rows reads memory, and computes nothing") {
  Machine m = fathom::testing::toy_machine();
  const auto around = [&](std::int64_t rows) { return calibration_cost(fathom::testing::product_workload(rows, 64, 64, 1), m, 0, 1, 0).pass; };
  const double few = around(16), many = around(17);
  CHECK(few == around(1));
  CHECK(many == around(4096));
  for (Peak& peak : m.peaks)
    for (auto& [threads, rate] : peak.rate) rate.value /= 2;
  CHECK(around(16) == few);
  CHECK(around(17) == Approx(2 * many));
  for (auto& [threads, rate] : m.levels.back().rate[static_cast<int>(Access::kRead)]) rate.value /= 2;
  CHECK(around(16) == Approx(2 * few));
}
