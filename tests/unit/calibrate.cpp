#include <catch2/catch.hpp>
#include <cmath>

#include "lib/predict/calibrate.hpp"
#include "lib/predict/op_model.hpp"
#include "lib/predict/prediction.hpp"
#include "models/calibration.hpp"
#include "models/params.hpp"
#include "tests/unit/predict_sample.hpp"

using namespace fathom;
using fathom::testing::toy_machine;

namespace {

CalibrationPoint product_point(double rows, std::int64_t in, std::int64_t out, double measured) {
  Gemm g;
  g.rows = {static_cast<std::int64_t>(rows)};
  g.in = in;
  g.out = out;
  return {g, work_of(g, declared(g)), 0, 0, measured};
}

AddResidual residual(std::int64_t rows) {
  AddResidual r;
  r.rows = {rows};
  r.width = 256;
  return r;
}

}  // namespace

TEST_CASE("non-negative least squares on relative errors") {
  // y = 2 + 3 x, exactly.
  const auto c = relative_least_squares({{1, 1}, {1, 2}, {1, 10}}, {5, 8, 32});
  CHECK(c[0] == Approx(2));
  CHECK(c[1] == Approx(3));
  // y = x - 1 wants a negative constant; it is held at zero, and the slope is the relative best: sum(x/y) / sum((x/y)^2).
  const auto d = relative_least_squares({{1, 2}, {1, 4}}, {1, 3});
  CHECK(d[0] == Approx(0).margin(1e-9));
  CHECK(d[1] == Approx((2.0 + 4.0 / 3) / (4.0 + 16.0 / 9)));
}

TEST_CASE("a curve between its points, and beyond them") {
  GemmCurve c;
  c.rows = {16, 64};
  c.seconds = {1e-5, 4e-5};
  double octaves = -1;
  CHECK(curve_time(c, 32, &octaves) == Approx(2e-5));  // halfway in log rows: the geometric mean
  CHECK(octaves == 0);
  CHECK(curve_time(c, 256, &octaves) == Approx(16e-5));  // the last time per row
  CHECK(octaves == Approx(2));
  CHECK(curve_time(c, 4, &octaves) == Approx(1e-5));     // weights are read anyway
  CHECK(octaves == Approx(2));
}

TEST_CASE("a known machine is recovered from its own times") {
  Machine m = toy_machine();
  std::vector<CalibrationPoint> points;
  // Products at 80 GFLOP/s plus 5 us.
  for (const double rows : {24, 96, 384, 1536}) points.push_back(product_point(rows, 256, 512, 2.0 * rows * 256 * 512 / 80e9 + 5e-6));
  // Residuals: 3 us + 1.7 x their roofline work.
  const Ceilings c(m, 1);
  Residency cold;
  cold.reads[2] = cold.writes[2] = cold.weights[2] = 1;
  for (const std::int64_t rows : {64, 128, 512, 2048, 4096}) {
    const AddResidual spec = residual(rows);
    const OpWork work = work_of(spec, declared(spec));
    const Prediction r = predict_roofline(c, work, cold);
    points.push_back({spec, work, r.seconds - r.launch, r.launch, 3e-6 + 1.7 * (r.seconds - r.launch)});
  }
  fit_points(m, points, 1);
  check_machine(m);
  REQUIRE(m.gemm_curves.size() == 1);
  CHECK(m.gemm_curves[0].n == 512);
  CHECK(m.gemm_curves[0].k == 256);
  const auto model = make_op_model(PredictorKind::kCalibrated, c);  // of the machine as it is now
  const auto at = [&](const OpSpec& spec) {
    const Executed all = declared(spec);
    return model->predict(spec, all, work_of(spec, all), cold);
  };
  const Prediction p = at(residual(1000));
  const OpWork work = work_of(residual(1000), declared(residual(1000)));
  const double truth = 3e-6 + 1.7 * (predict_roofline(c, work, cold).seconds - 1e-6);
  CHECK(p.seconds == Approx(truth).epsilon(1e-6));
  CHECK(p.provenance == Provenance::kFitted);
  CHECK(p.lo < p.seconds);
  CHECK(p.hi > p.seconds);
  CHECK_FALSE(p.out_of_range);
  // A point of the curve itself.
  const Prediction g = at(product_point(384, 256, 512, 0).spec);
  CHECK(g.seconds == Approx(2.0 * 384 * 256 * 512 / 80e9 + 5e-6).epsilon(1e-9));
  CHECK(g.provenance == Provenance::kProbed);
  // Between points the curve is within a few per cent of the truth.
  CHECK(at(product_point(700, 256, 512, 0).spec).seconds == Approx(2.0 * 700 * 256 * 512 / 80e9 + 5e-6).epsilon(0.05));
  // Another shape borrows the efficiency and says so; a far one is out of range.
  const Prediction near = at(product_point(384, 300, 512, 0).spec);
  CHECK(near.provenance == Provenance::kFitted);
  CHECK_FALSE(near.out_of_range);
  CHECK(near.seconds == Approx(g.seconds * 300 / 256).epsilon(1e-6));
  const Prediction far = at(product_point(384, 4096, 512, 0).spec);
  CHECK(far.out_of_range);
  CHECK(far.provenance == Provenance::kExtrapolated);
  CHECK(far.hi / far.seconds > near.hi / near.seconds);
  // A class that nobody probed is answered by physics, marked.
  RmsNorm norm;
  norm.rows = {64};
  norm.width = 256;
  const Prediction n = at(norm);
  CHECK(n.out_of_range);
  CHECK(n.seconds == predict_roofline(c, work_of(norm, declared(norm)), cold).seconds);
}

TEST_CASE("a vague point is left out between certain ones, and kept beyond them") {
  // 80 GFLOP/s; the noisy points say a third of that. Between 24 and 384 rows others know better, at 3 and at 1536 nobody does.
  const auto time = [](double rows, double rate) { return 2.0 * rows * 512 * 512 / rate; };
  std::vector<CalibrationPoint> points;
  for (const double rows : {24.0, 96.0, 384.0}) points.push_back(product_point(rows, 512, 512, time(rows, 80e9)));
  for (const double rows : {3.0, 48.0, 1536.0}) {
    points.push_back(product_point(rows, 512, 512, time(rows, 27e9)));
    points.back().noise = 0.2;
  }
  Machine m = toy_machine();
  fit_points(m, points, 1);
  REQUIRE(m.gemm_curves.size() == 1);
  CHECK(m.gemm_curves[0].rows == std::vector<std::int64_t>{3, 24, 96, 384, 1536});
}

TEST_CASE("products of a training step have curves of their own, since their weights are not laid out") {
  // At 80 GFLOP/s where they are, at 40 where they are not; up to 8 rows by another path, which training has not.
  const auto time = [](double rows, double rate) { return 2.0 * rows * 512 * 512 / rate; };
  std::vector<CalibrationPoint> laid_out, plain;
  for (const double rows : {1.0, 2.0, 4.0}) laid_out.push_back(product_point(rows, 512, 512, time(rows, 20e9)));
  for (const double rows : {24.0, 96.0, 384.0}) laid_out.push_back(product_point(rows, 512, 512, time(rows, 80e9)));
  for (const double rows : {4.0, 24.0, 96.0, 384.0}) {
    plain.push_back(product_point(rows, 512, 512, time(rows, 40e9)));
    plain.back().plain_weights = true;
  }
  // The head's token table never is: its curve is one, and so are a weight gradient's.
  CalibrationPoint tied = product_point(96, 512, 512, 0), dw = tied;
  std::get<Gemm>(tied.spec).transposed = true;
  std::get<Gemm>(dw.spec).role = GemmRole::kWeightGradient;
  CHECK(gemm_variant(std::get<Gemm>(tied.spec), 96, 8, true) == "tied");
  CHECK(gemm_variant(std::get<Gemm>(dw.spec), 96, 8, true) == "dw");
  const auto predicted = [&](const std::vector<CalibrationPoint>& points, double rows, bool training) {
    Machine m = toy_machine();
    fit_points(m, points, 1, {{DType::kF32, 8}});
    check_machine(m);
    const Ceilings c(m, 1);
    StepContext context;
    context.plain_weights = training;
    const auto model = make_op_model(PredictorKind::kCalibrated, c, context);
    const OpSpec spec = product_point(rows, 512, 512, 0).spec;
    const Executed all = declared(spec);
    Residency cold;
    cold.reads[2] = cold.writes[2] = cold.weights[2] = 1;
    return model->predict(spec, all, work_of(spec, all), cold).seconds;
  };
  std::vector<CalibrationPoint> both = laid_out;
  both.insert(both.end(), plain.begin(), plain.end());
  for (const double rows : {24, 96, 384}) {
    CHECK(predicted(both, rows, false) == Approx(time(rows, 80e9)).epsilon(1e-3));
    CHECK(predicted(both, rows, true) == Approx(time(rows, 40e9)).epsilon(1e-3));
    CHECK(predicted(laid_out, rows, true) == Approx(time(rows, 80e9)).epsilon(1e-3));  // no training was measured: lent
  }
  CHECK(predicted(both, 4, false) == Approx(time(4, 20e9)).epsilon(1e-3));
  CHECK(predicted(both, 4, true) == Approx(time(4, 40e9)).epsilon(1e-3));
}

TEST_CASE("a product is slower where its weights come from further out, by what the calibration saw") {
  Machine m = toy_machine();
  // t = 1 us + bytes / 50 GB/s, and 1 / 200 GB/s more per byte from main memory. Rows up to 8 take this path, more rows another.
  std::vector<CalibrationPoint> points;
  const auto levels = static_cast<int>(m.levels.size());
  const auto point = [&](double rows, std::int64_t in, std::int64_t out, bool memory) {
    CalibrationPoint p = product_point(rows, in, out, 0);
    p.passing = all_from_memory(p.work, levels);
    if (!memory) p.passing.levels[static_cast<std::size_t>(levels - 1)] = 0;
    const double bytes = p.work.read + p.work.written;
    p.measured = 1e-6 + bytes / 50e9 + (memory ? bytes / 200e9 : 0);
    return p;
  };
  for (const std::int64_t width : {256, 384, 512, 768, 1024})
    for (const double rows : {1.0, 2.0, 5.0, 7.0})
      for (const bool memory : {false, true}) points.push_back(point(rows, width, width, memory));
  for (const double rows : {24, 96, 384}) points.push_back(product_point(rows, 512, 512, 2.0 * rows * 512 * 512 / 80e9 + 5e-6));
  fit_points(m, points, 1, {{DType::kF32, 8}});
  check_machine(m);
  CHECK(streamed_rows(m, DType::kF32, 1) == 8);
  CHECK(streamed_rows(m, DType::kBF16, 1) == 0);
  const Ceilings c(m, 1);
  const auto model = make_op_model(PredictorKind::kCalibrated, c);
  const auto at = [&](double rows, bool memory) {
    const OpSpec spec = product_point(rows, 512, 512, 0).spec;
    Residency where;
    const std::size_t level = static_cast<std::size_t>(levels - (memory ? 1 : 2));
    where.reads[level] = where.writes[level] = where.weights[level] = 1;
    const Executed all = declared(spec);
    return model->predict(spec, all, work_of(spec, all), where).seconds;
  };
  CHECK(at(5, true) == Approx(point(5, 512, 512, true).measured).epsilon(1e-3));
  CHECK(at(5, false) == Approx(point(5, 512, 512, false).measured).epsilon(1e-3));
  CHECK(at(3, true) == Approx(point(3, 512, 512, true).measured).epsilon(0.01));
  CHECK(at(8, true) == Approx(point(8, 512, 512, true).measured).epsilon(0.01));  // beyond the last point the slope goes on
  // Nine rows are another path: its curve begins at 24, whose time holds below.
  CHECK(at(9, true) == Approx(2.0 * 24 * 512 * 512 / 80e9 + 5e-6).epsilon(1e-3));
}

TEST_CASE("noisy points count less, and say nothing when they are too noisy") {
  Machine m = toy_machine();
  const Ceilings c(m, 1);
  Residency cold;
  cold.reads[2] = cold.writes[2] = cold.weights[2] = 1;
  std::vector<CalibrationPoint> points;
  for (const std::int64_t rows : {64, 128, 256, 512, 1024, 2048, 4096}) {
    const AddResidual spec = residual(rows);
    const OpWork work = work_of(spec, declared(spec));
    const Prediction r = predict_roofline(c, work, cold);
    const double roofline = r.seconds - r.launch;
    // Every second one is three times too long, and known to be worth nothing.
    const bool noisy = rows == 128 || rows == 512 || rows == 2048;
    points.push_back({spec, work, roofline, r.launch, (noisy ? 3 : 1) * (2e-6 + 1.5 * roofline), noisy ? 0.9 : 0.01, passing_of(work, cold)});
  }
  fit_points(m, points, 1);
  const auto model = make_op_model(PredictorKind::kCalibrated, c);
  const AddResidual spec = residual(512);
  const OpWork work = work_of(spec, declared(spec));
  CHECK(model->predict(spec, declared(spec), work, cold).seconds == Approx(2e-6 + 1.5 * (predict_roofline(c, work, cold).seconds - c.launch())).epsilon(1e-3));
}

TEST_CASE("far outside the calibrated range there is no upper end, and the lower one is the bound of the ceilings") {
  Machine m = toy_machine();
  std::vector<CalibrationPoint> points;
  for (const double rows : {24, 96, 384, 1536}) points.push_back(product_point(rows, 256, 512, 2.0 * rows * 256 * 512 / 80e9 + 5e-6));
  fit_points(m, points, 1);
  const Ceilings c(m, 1);
  const auto model = make_op_model(PredictorKind::kCalibrated, c);
  Residency cold;
  cold.reads[2] = cold.writes[2] = cold.weights[2] = 1;
  const OpSpec spec = product_point(1e9, 256, 512, 0).spec;  // 19 octaves beyond
  const OpWork work = work_of(spec, declared(spec));
  const Prediction p = model->predict(spec, declared(spec), work, cold);
  CHECK(p.out_of_range);
  CHECK(std::isinf(p.hi));
  CHECK(p.lo >= predict_light(c, work).seconds);
  CHECK(p.lo <= p.seconds);
  CHECK(std::isfinite(p.seconds));
}

TEST_CASE("decode is calibrated on weights that no cache holds, and once more from a cache") {
  int deep = 0, shallow = 0;
  for (const CalibrationCase& c : default_calibration_set(DType::kF32)) {
    INFO(c.label);
    const double bytes = 4 * to_double(count_parameters(c.network).total.value());
    if (c.scenario.phase != Phase::kDecode) {
      CHECK(c.network.layer_count() <= 2);
    } else if (c.label.ends_with("shallow")) {
      CHECK(c.network.layer_count() <= 2);
      ++shallow;
    } else {
      CHECK(bytes >= 60e6);  // the smallest: 10.5 MB of which 4.2 are the head, 100 MB hold ten: 10 x 6.3 + 4.2
      ++deep;
    }
  }
  CHECK(deep == 25);    // five shapes, five batches
  CHECK(shallow == 8);  // the widest does not fit a cache as it is
}

TEST_CASE("an uncalibrated machine refuses, with what to do") {
  const Machine m = toy_machine();
  const Ceilings c(m, 1);
  CHECK_THROWS_AS(make_op_model(PredictorKind::kCalibrated, c), Error);
}
