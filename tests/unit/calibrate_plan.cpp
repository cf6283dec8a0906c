// Which calibration workloads stay when time is short: sums by hand.
#include "tools/calibrate_plan.hpp"

#include <catch2/catch.hpp>

#include "tests/unit/predict_sample.hpp"

using namespace fathom;
using Catch::Detail::Approx;

namespace {

CalibrationCost cost(const char* line, double pass) {
  CalibrationCost c;
  c.line = line;
  c.pass = pass;
  c.passes = 4;
  return c;
}

}  // namespace

TEST_CASE("what does not fit the time is left out, the longest first, two of a kind stay") {
  // Four passes each: 4, 2 and 1 seconds of a, 3 and 1 of b: 11 in all.
  const std::vector<CalibrationCost> costs = {cost("a", 1), cost("a", 0.5), cost("a", 0.25), cost("b", 0.75), cost("b", 0.25)};
  CHECK(fit_to_time(costs, 11) == std::vector<bool>{true, true, true, true, true});
  CHECK(fit_to_time(costs, 10.9) == std::vector<bool>{false, true, true, true, true});
  CHECK(fit_to_time(costs, 1) == std::vector<bool>{false, true, true, true, true});  // 7 seconds: two of each line, however little time
  // One of a was measured before: of those here one is enough.
  CHECK(fit_to_time(costs, 5, {{"a", 1}}) == std::vector<bool>{false, false, true, true, true});
  CHECK(fit_to_time(costs, 0, {{"a", 2}, {"b", 5}}) == std::vector<bool>{false, false, false, false, false});
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
  // One of the three uses bracketed: two thirds of the references' time are saved. 1.5 x (1 ms + 3 references), 1.5 x (1 ms + 1).
  const CalibrationCost few = calibration_cost(w, m, 2e-3, 1, 1);
  const double reference = (slow.pass - 1.5 * 2e-3) / 3;
  CHECK(few.pass == Approx(slow.pass - 2 * reference));
}
