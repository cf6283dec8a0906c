#include "lib/compare.hpp"

#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "tests/unit/predict_sample.hpp"
#include "tests/unit/scripted_execution.hpp"

using namespace fathom;
using namespace fathom::testing;

TEST_CASE("verdicts") {
  World world;
  std::vector<int> log;
  const Workload w = product_workload(1000, 500, 200, 1);  // roofline 2.001 ms, light 1.818 ms on the toy machine's one thread
  WorldClock clock(world);
  PredictOptions roofline, bound;
  roofline.threads = bound.threads = 1;
  bound.predictor = PredictorKind::kLight;
  const StepPrediction p = predict(w, toy_machine(), roofline), light = predict(w, toy_machine(), bound);
  const auto result = [&](double seconds) {
    ScriptedExecution x(w, world, seconds, log, 0);
    Execution* const subjects[] = {&x};
    return compare(w, p, p, light, measure(subjects, {}, clock)[0]);
  };
  const Comparison within = result(2.1e-3);
  CHECK(within.ops[0].verdict == Verdict::kWithin);
  CHECK(within.ops[0].error == Approx((2.001 - 2.1) / 2.1).epsilon(1e-6));
  CHECK(within.graded == 1);
  CHECK(within.mape == Approx((2.1 - 2.001) / 2.1).epsilon(1e-6));
  CHECK(within.raw.verdict == Verdict::kWithin);
  CHECK(result(3e-3).ops[0].verdict == Verdict::kSlow);
  CHECK(result(1.85e-3).ops[0].verdict == Verdict::kWithin);
  const Comparison broken = result(1.7e-3);
  CHECK(broken.ops[0].verdict == Verdict::kFasterThanLight);
  CHECK(broken.normalised.verdict == Verdict::kFasterThanLight);
  CHECK(broken.ops[0].measured == Approx(1.7e-3));  // shown, not clipped
  CHECK_THROWS_AS(compare(product_workload(4, 4, 4, 1), p, p, light, Measurement{}), Error);
}

TEST_CASE("a pair's ratios") {
  World world;
  std::vector<int> log;
  const Workload dense = product_workload(1000, 500, 200, 1), routed = product_workload(500, 500, 200, 1);
  ScriptedExecution x(dense, world, 2e-3, log, 0), y(routed, world, 1.25e-3, log, 1);
  Execution* const subjects[] = {&x, &y};
  WorldClock clock(world);
  const auto m = measure(subjects, {}, clock);
  PredictOptions o, l;
  o.threads = l.threads = 1;
  l.predictor = PredictorKind::kLight;
  std::vector<Comparison> c;
  const Workload* both[] = {&dense, &routed};
  for (int i = 0; i < 2; ++i) {
    const StepPrediction p = predict(*both[i], toy_machine(), o), b = predict(*both[i], toy_machine(), l);
    c.push_back(compare(*both[i], p, p, b, m[static_cast<size_t>(i)]));
  }
  const PairComparison pair = compare_pair(routed, c[1], dense, c[0]);
  CHECK(pair.flops_ratio == Approx(0.5));
  CHECK(pair.measured.time_ratio == Approx(0.625));
  CHECK(pair.measured.realised == Approx(0.75));  // 37.5 % of the time for 50 % of the FLOPs
  CHECK(pair.predicted.time_ratio == Approx(1.001 / 2.001));
}
