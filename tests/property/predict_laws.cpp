// Laws that hold for any product and any figure of the machine.
#include <catch2/catch.hpp>

#include <cmath>
#include <random>

#include "lib/predict/prediction.hpp"
#include "tests/unit/predict_sample.hpp"

using namespace fathom;
using fathom::testing::product_workload;
using fathom::testing::toy_machine;

namespace {

double seconds(const Workload& w, const Machine& m, PredictorKind kind = PredictorKind::kRoofline) {
  PredictOptions options;
  options.predictor = kind;
  return predict(w, m, options).seconds;
}

struct Shape {
  std::int64_t rows, in, out;
  int layers;
};

std::vector<Shape> random_shapes(int count) {
  std::mt19937_64 random(7);
  const auto size = [&](double low, double high) { return static_cast<std::int64_t>(std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random))); };
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) shapes.push_back({size(1, 4096), size(8, 4096), size(8, 4096), static_cast<int>(size(1, 5))});
  return shapes;
}

}  // namespace

TEST_CASE("light never exceeds roofline; parts sum to the total") {
  for (const Shape& s : random_shapes(200)) {
    const Workload w = product_workload(s.rows, s.in, s.out, s.layers);
    PredictOptions options;
    const StepPrediction p = predict(w, toy_machine(), options);
    CHECK(seconds(w, toy_machine(), PredictorKind::kLight) <= p.seconds * (1 + 1e-12));
    CHECK(p.compute + p.memory + p.launch == Approx(p.seconds).epsilon(1e-12));
    CHECK(p.sum_of_ops(w) == Approx(p.seconds).epsilon(1e-12));
  }
}

TEST_CASE("more work is never faster") {
  for (const Shape& s : random_shapes(60)) {
    const double t = seconds(product_workload(s.rows, s.in, s.out, 1), toy_machine());
    // Residency is smooth but not monotone in size alone, so each comparison doubles the dimension.
    CHECK(seconds(product_workload(2 * s.rows, s.in, s.out, 1), toy_machine()) >= t);
    CHECK(seconds(product_workload(s.rows, 2 * s.in, s.out, 1), toy_machine()) >= t);
    CHECK(seconds(product_workload(s.rows, s.in, 2 * s.out, 1), toy_machine()) >= t);
  }
  CHECK(seconds(product_workload(1, 512, 512, 1), toy_machine()) < 0.5 * seconds(product_workload(2048, 512, 512, 1), toy_machine()));
}

TEST_CASE("every figure of the machine matters, and a better one never hurts") {
  const auto doubled = [](int which) {
    Machine m = toy_machine();
    if (which == 0)
      for (auto& [threads, f] : m.peaks[0].rate) f.value *= 2, m.peaks[0].best[threads].value *= 2;
    else if (which <= 3)
      for (PerThreads& rates : m.levels[static_cast<size_t>(which - 1)].rate)
        for (auto& [threads, f] : rates) f.value *= 2;
    else if (which == 4)
      m.levels[1].capacity->value *= 2;
    else
      for (auto& [threads, f] : m.launch) f.value /= 2;
    return m;
  };
  for (int which = 0; which < 6; ++which) {
    int faster = 0;
    for (const Shape& s : random_shapes(600)) {
      const Workload w = product_workload(s.rows, s.in, s.out, s.layers);
      const double before = seconds(w, toy_machine()), after = seconds(w, doubled(which));
      CHECK(after <= before * (1 + 1e-12));
      faster += after < before * (1 - 1e-9);
    }
    INFO("figure " << which);
    CHECK(faster > 0);
  }
}

TEST_CASE("expectation lies between the extremes, and p = 1 is dense") {
  for (const Shape& s : random_shapes(20)) {
    const std::int64_t rows = std::min<std::int64_t>(s.rows, 64);
    PredictOptions options;
    options.follow_placement = false;
    const auto at = [&](Fraction p) { return predict(product_workload(rows, s.in, s.out, s.layers, p), toy_machine(), options); };
    const double dense = at({1, 1}).seconds;
    double last = 0;
    for (const Fraction p : {Fraction{1, 16}, Fraction{1, 4}, Fraction{3, 4}}) {
      const StepPrediction step = at(p);
      CHECK(step.seconds >= last);
      CHECK(step.seconds <= dense * (1 + 1e-12));
      CHECK(step.p50 <= step.p95);
      CHECK(step.p95 <= step.p99);
      last = step.seconds;
    }
  }
}
