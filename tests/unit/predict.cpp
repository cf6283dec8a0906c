#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lib/predict/binomial.hpp"
#include "lib/predict/prediction.hpp"
#include "lib/predict/residency.hpp"
#include "lib/predict/roofline.hpp"
#include "lib/predict/work.hpp"
#include "tests/unit/predict_sample.hpp"

using namespace fathom;
using fathom::testing::product_workload;
using fathom::testing::toy_machine;

TEST_CASE("roofline of a compute-bound product, by hand") {
  // 1000 x 500 x 200: 2e8 FLOP at 100 GFLOP/s = 2 ms; bytes 4 (1000 x 500 + 500 x 200 + 1000 x 200) = 3.2 MB, at most 0.32 ms. 1 us per call.
  const Workload w = product_workload(1000, 500, 200, 1);
  PredictOptions options;
  options.threads = 1;
  StepPrediction p = predict(w, toy_machine(), options);
  CHECK(p.seconds == Approx(2e-3 + 1e-6).epsilon(1e-12));
  CHECK(p.ops[0].each.binding == Binding::kCompute);
  CHECK(p.compute + p.memory + p.launch == Approx(p.seconds).epsilon(1e-12));
  // Two threads: half the time, and a parallel region.
  options.threads = 2;
  CHECK(predict(w, toy_machine(), options).seconds == Approx(1e-3 + 3e-6).epsilon(1e-12));
  // light: at 110 GFLOP/s, without the call; all bytes fit in 1 + 8 MB.
  options.threads = 1;
  options.predictor = PredictorKind::kLight;
  CHECK(predict(w, toy_machine(), options).seconds == Approx(2e8 / 110e9).epsilon(1e-12));
}

TEST_CASE("a decode product streams its weights from main memory") {
  // One row, 4000 x 4000 weights: 64 MB per layer, three layers, so 192 MB pass between two uses and nothing stays in 9 MB of cache:
  // hit(128 MB / 8 MB) < 2e-5. 64.032 MB at 10 GB/s = 6.4 ms each.
  const Workload w = product_workload(1, 4000, 4000, 3);
  PredictOptions options;
  options.threads = 1;
  options.follow_placement = false;
  const StepPrediction p = predict(w, toy_machine(), options);
  CHECK(p.ops[0].each.binding == Binding::kDram);
  CHECK(p.seconds == Approx(3 * (64e6 / 10e9 + 1e-6)).epsilon(2e-3));
  // The same weights in one layer of 1 MB stay where they are: L3 at the latest, twice as fast as memory.
  const Workload hot = product_workload(1, 500, 500, 1);
  const StepPrediction q = predict(hot, toy_machine(), options);
  CHECK(q.ops[0].each.memory <= 1.01e6 / 20e9);
  CHECK(q.ops[0].each.memory >= 1.0e6 / 40e9);
}

TEST_CASE("exponentials and selections bound where bytes do not") {
  Activation gelu;
  gelu.rows = {1000};
  gelu.width = 1000;  // 1e6 exponentials at 1 ns = 1 ms on one thread; 8 MB at 10 GB/s = 0.8 ms
  const Machine toy = toy_machine();
  const Ceilings c(toy, 1), two(toy, 2);
  Residency cold;
  cold.reads[2] = cold.writes[2] = cold.weights[2] = 1;
  const OpWork work = work_of(gelu, declared(gelu));
  CHECK(predict_roofline(c, work, cold).seconds == Approx(1e-3 + 1e-6));
  CHECK(predict_roofline(c, work, cold).binding == Binding::kElements);
  CHECK(predict_roofline(two, work, cold).seconds == Approx(0.5e-3 + 3e-6));
  gelu.kind = ActivationKind::kRelu;  // no exponential: 8 MB at 10 GB/s
  CHECK(predict_roofline(c, work_of(gelu, declared(gelu)), cold).seconds == Approx(0.8e-3 + 1e-6));
  Select select;
  select.sequences = 1;
  select.length = 2048;
  select.selected = {256};
  // 2048 candidates at 20 ns on one thread, whatever the thread count: one sequence is one task.
  CHECK(predict_roofline(two, work_of(select, declared(select)), cold).compute == Approx(2048 * 20e-9));
}

TEST_CASE("an update in place is charged at its own rate, reads and writes blend") {
  Machine toy = toy_machine();
  toy.levels[2].rate[static_cast<int>(Access::kRead)][1].value = 12e9;
  toy.levels[2].rate[static_cast<int>(Access::kCopy)][1].value = 8e9;
  toy.levels[2].rate[static_cast<int>(Access::kUpdate)][1].value = 16e9;
  const Ceilings c(toy, 1);
  CHECK(c.rate(2, Access::kUpdate, 1e6, 1e6) == 16e9);
  CHECK(c.rate(2, Access::kCopy, 1e6, 1e6) == Approx(8e9));
  CHECK(c.rate(2, Access::kRead, 1e6, 0) == Approx(12e9));
  // 3 MB read, 1 MB written: 2 MB at 8 GB/s and 2 MB at 12 GB/s.
  CHECK(4e6 / c.rate(2, Access::kRead, 3e6, 1e6) == Approx(2e6 / 8e9 + 2e6 / 12e9));
}

TEST_CASE("missing figures are errors, never zero") {
  Machine m = toy_machine();
  m.peaks[0].dtype = DType::kI8;
  CHECK_THROWS_AS(predict(product_workload(4, 8, 8, 1), m), Error);
  // Without a bf16 unit, f32 arithmetic stands in (kernels widen).
  const Machine toy = toy_machine();
  const Ceilings c(toy, 1);
  CHECK(c.peak(DType::kBF16, false).value == 100e9);
}

TEST_CASE("binomial masses") {
  // Bin(2, 1/8): 49/64, 14/64, 1/64.
  const auto b = binomial(2, 0.125);
  CHECK(b[0] == Approx(49.0 / 64));
  CHECK(b[1] == Approx(14.0 / 64));
  CHECK(b[2] == Approx(1.0 / 64));
  for (const std::int64_t count : {1, 7, 64, 1000, 4096}) {
    double sum = 0, mean = 0;
    const auto mass = binomial(count, 0.3);
    for (size_t i = 0; i < mass.size(); ++i) {
      sum += mass[i];
      mean += mass[i] * static_cast<double>(i);
    }
    CHECK(std::abs(sum - 1) < 1e-12);
    CHECK(mean == Approx(0.3 * static_cast<double>(count)).epsilon(1e-10));
  }
  CHECK(binomial(3, 0)[0] == 1);
  CHECK(binomial(3, 1)[3] == 1);
}

TEST_CASE("executed routed blocks out of 16 at p = 1/8") {
  // Number executed ~ Binomial(16, 1 - (7/8)^B): B = 1 p50/p95/p99 = 2/4/5; B = 4 7/10/11; B = 16 14/16/16.
  for (const auto& [batch, quantiles] : {std::pair{1, std::array{2.0, 4.0, 5.0}}, {4, std::array{7.0, 10.0, 11.0}}, {16, std::array{14.0, 16.0, 16.0}}}) {
    const double p = 1 - std::pow(7.0 / 8, batch);
    const TimeDistribution d = sum_of_terms(0, {{{0, 1}, {1 - p, p}, 16}});
    CHECK(d.mean() == Approx(16 * p));
    CHECK(d.quantile(0.50) == Approx(quantiles[0]));
    CHECK(d.quantile(0.95) == Approx(quantiles[1]));
    CHECK(d.quantile(0.99) == Approx(quantiles[2]));
  }
}

TEST_CASE("decode: expectation over rows, not time at the mean") {
  // One routed product, B = 1, p = 1/8: it runs with probability 1/8 and costs t(1), else nothing.
  PredictOptions options;
  options.threads = 1;
  options.follow_placement = false;
  const double t1 = predict(product_workload(1, 1000, 1000, 4), toy_machine(), options).seconds / 4;
  const StepPrediction p = predict(product_workload(1, 1000, 1000, 4, {1, 8}), toy_machine(), options);
  CHECK(p.seconds == Approx(4 * t1 / 8).epsilon(1e-9));
  // Four layers: none runs with probability (7/8)^4 = 0.586, so the median is zero; at most one with 0.921; at most two with 0.993.
  CHECK(p.p50 == Approx(0).margin(1e-12));
  CHECK(p.p95 == Approx(2 * t1).epsilon(1e-9));
  CHECK(p.p99 == Approx(2 * t1).epsilon(1e-9));
  // p = 1 is the dense product.
  CHECK(predict(product_workload(1, 1000, 1000, 4, {1, 1}), toy_machine(), options).seconds == Approx(4 * t1));
}

TEST_CASE("stack distances") {
  ReuseTracker t;
  CHECK(std::isinf(t.touch(1, 10).bytes));
  CHECK(std::isinf(t.touch(2, 20).bytes));
  CHECK(t.touch(2, 20).bytes == 0);
  CHECK(std::isinf(t.touch(3, 30).bytes));
  CHECK(t.touch(1, 10).bytes == 50);  // 2 and 3, once each
  CHECK(t.touch(2, 20).bytes == 40);  // 3 and 1
  for (int i = 0; i < 5000; ++i) t.touch(4, 1);  // renumbers slots on the way
  const ReuseDistance third = t.touch(3, 30, 2);
  CHECK(third.bytes == 31);   // 1 (10), 2 (20), 4 (1)
  CHECK(third.copied == 31);  // by one thread each
  const ReuseDistance first = t.touch(1, 10);
  CHECK(first.bytes == 51);   // 2 (20), 4 (1), 3 (30)
  CHECK(first.copied == 81);  // 3 by two threads, in the cache of each
}

TEST_CASE("a cache of one thread holds what all touch once for each, a shared one once") {
  Machine m = toy_machine();
  const ReuseDistance distance{1e6, 2e6};
  m.levels[0].shared = true;
  const double shared = level_shares(m, 1, distance)[0];
  m.levels[0].shared = false;
  CHECK(level_shares(m, 1, distance)[0] == level_shares(m, 1, {2e6, 2e6})[0]);
  m.levels[0].shared = true;
  CHECK(shared == level_shares(m, 1, {1e6, 1e6})[0]);
}

TEST_CASE("level shares") {
  const Machine m = toy_machine();
  const LevelShares near = level_shares(m, 1, {1e5, 1e5}), far = level_shares(m, 1, {1e9, 1e9});
  CHECK(near[0] > 0.999);
  CHECK(far[2] > 0.999);
  CHECK(level_shares(m, 1, {1e6, 1e6})[0] == Approx(0.5));       // at the capacity half is served
  CHECK(level_shares(m, 2, {2e6, 2e6})[0] == Approx(0.5));       // a private cache per thread
  for (const double d : {0.0, 3e5, 2e6, 1e7, 1e12}) {
    double sum = 0;
    for (const double s : level_shares(m, 1, {d, d})) sum += s;
    CHECK(sum == Approx(1));
  }
  CHECK(level_shares(m, 1, {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()})[2] == 1);
}

TEST_CASE("realised fraction of a pair") {
  const PairRatio r = pair_ratio(60, 100, 7, 10);  // 40 % fewer FLOPs, 30 % less time
  CHECK(r.flops_ratio == Approx(0.6));
  CHECK(r.realised == Approx(0.75));
  CHECK(r.status.empty());
  CHECK_FALSE(pair_ratio(100, 100, 7, 10).status.empty());
  CHECK_FALSE(pair_ratio(1, 0, 7, 10).status.empty());
}

TEST_CASE("sizes at fewer rows") {
  Attention a;
  a.rows = {8, {1, 4}};
  a.sequences = 8;
  a.heads = a.kv_heads = 2;
  a.qk_dim = a.v_dim = 4;
  a.cached = true;
  a.past = 100;
  a.key_share = {1, 4};
  a.pairs = 8 * 101;
  a.keys = 8 * 101;
  const Executed three = sized(a, 3);  // three queries, each over 25 cached keys and itself
  CHECK(three.rows == 3);
  CHECK(three.pairs == 3 * 26);
  CHECK(three.keys == 3 * 26);
  CHECK(sized(a, 0).pairs == 0);
  CHECK(sized(a, 8).rows == 8);
}
