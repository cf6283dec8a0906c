#include <catch2/catch.hpp>
#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "lib/measure.hpp"
#include "tests/unit/predict_sample.hpp"
#include "tests/unit/scripted_execution.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

// A device with a clock of its own: the host sees a queue that takes a millisecond more per pass.
class DeviceExecution : public ScriptedExecution {
 public:
  using ScriptedExecution::ScriptedExecution;
  bool keeps_time() const override { return true; }
  double timed_run() override {
    world().spend(1e-3);
    return 7e-4;
  }
  void timed_pass(std::span<double> seconds) override {
    world().spend(1e-3);
    for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = 1e-4 * static_cast<double>(i + 1);
  }
  std::map<std::string, double> device_state() override { return {{"gpu_clock_hz", 1.98e9}}; }
};

// A neighbour that takes the core from two references in three, a hundredfold, and leaves the op alone.
class PreemptedExecution : public ScriptedExecution {
 public:
  using ScriptedExecution::ScriptedExecution;
  void run_reference(int) override { world().spend(++references % 3 == 0 ? 1e-4 : 1e-2); }
};

// Every op evicts what the reference reads: the next run of it takes ten times as long, unless it is settled first.
class EvictingExecution : public ScriptedExecution {
 public:
  using ScriptedExecution::ScriptedExecution;
  void run_instance(int i) override {
    ScriptedExecution::run_instance(i);
    cold_ = true;
  }
  void settle_reference(int) override { run_reference(0); }
  void run_reference(int) override {
    world().spend(cold_ ? 1e-3 : 1e-4);
    cold_ = false;
  }

 private:
  bool cold_ = false;
};

// One execution of that kind, alone in a world of its own.
template <class Scripted>
struct Alone {
  Alone(const Workload& workload, double seconds) : w(workload), x(w, world, seconds, log, 0) {}
  Measurement measured(const MeasureOptions& options = {}) {
    Execution* const subjects[] = {&x};
    WorldClock clock(world);
    return measure(subjects, options, clock)[0];
  }

  World world;
  std::vector<int> log;
  const Workload w;
  Scripted x;
};

// Speeds 1 and 3, switching every 50 ms: a neighbour comes and goes.
double bimodal(double now) { return static_cast<long>(now * 20) % 2 == 0 ? 1.0 : 3.0; }
double rising(double now) { return 1 + now / 10; }

}  // namespace

TEST_CASE("a reference is timed on operands that are in their caches again, whatever the op before it moved") {
  Alone<EvictingExecution> alone(product_workload(64, 64, 64, 3), 5e-4);
  MeasureOptions options;
  options.seconds = 1;
  options.nominal["product"] = 1e-4;  // as on the machine that was calibrated
  const Measurement m = alone.measured(options);
  CHECK(m.references[0].median == Approx(1e-4));
  CHECK(m.ops[0].seconds == Approx(5e-4));
}

TEST_CASE("a steady machine is measured exactly") {
  Alone<ScriptedExecution> alone(product_workload(64, 64, 64, 3), 5e-4);
  MeasureOptions options;
  options.seconds = 1;
  const Measurement m = alone.measured(options);
  const OpMeasurement& o = m.ops[0];
  CHECK(o.status == MeasureStatus::kOk);
  CHECK(o.seconds == Approx(5e-4));
  CHECK(o.total == Approx(15e-4));
  CHECK(o.raw_median == Approx(5e-4));
  CHECK(m.step.normalised == Approx(15e-4));
  CHECK(m.step.raw_median == Approx(15e-4));
  CHECK(o.noise == Approx(0).margin(1e-9));
  CHECK(o.rows_executed == Approx(4));
  CHECK(o.executed_flops == Approx(64));
  CHECK(m.stopped_by == "spread");
  CHECK(m.references.size() == 1);
  CHECK(m.references[0].nominal == Approx(1e-4));
  // Consecutive ops of a class share the reference between them: 3 ops, 4 references per bracketed pass.
  const int bracketed = m.step.rounds + 1;
  CHECK(alone.x.references == 4 * bracketed);
  // Every pass, raw or bracketed or warm-up, begins once and runs each of the three instances once.
  CHECK(alone.x.runs == 3 * alone.x.passes);
}

TEST_CASE("progress by rounds: where their number is given, the last round is not announced before it is run") {
  Alone<ScriptedExecution> alone(product_workload(64, 64, 64, 3), 5e-4);
  MeasureOptions options;
  options.seconds = 0.01;  // long over while 40 rounds of both kinds run
  options.min_rounds = options.max_rounds = 40;
  std::vector<double> shares;
  options.progress = [&](const MeasureProgress& p) { shares.push_back(p.share); };
  CHECK(alone.measured(options).step.rounds == 40);
  REQUIRE(shares.size() > 80);
  CHECK(std::is_sorted(shares.begin(), shares.end()));
  CHECK(shares.back() < 1);
  CHECK(shares.back() > 0.9);
  // An op-by-op pass is 3 ops of .5 ms and 4 references of .1 ms, 1.9 ms; one from end to end is 1.5 ms. At round 9 of 40 op by op: about (60 + 17) / (60 + 76) ms.
  CHECK(shares[shares.size() - 31] == Approx(0.57).margin(0.1));
}

TEST_CASE("of an op that layers share, some uses are bracketed in a pass and stand for all") {
  // Three uses, one bracketed: two references around it, three runs all the same. Every round takes the next use, so three rounds see all of them.
  Alone<ScriptedExecution> alone(product_workload(64, 64, 64, 3), 5e-4);
  MeasureOptions options;
  options.raw_share = 0;
  options.min_rounds = options.max_rounds = 6;
  options.bracketed_uses = 1;
  const Measurement m = alone.measured(options);
  CHECK(m.step.rounds == 6);
  CHECK(alone.x.references == 2 * (6 + 1));
  CHECK(alone.x.runs == 3 * alone.x.passes);
  CHECK(m.ops[0].raw.values.size() == 6);
  CHECK(m.ops[0].total == Approx(15e-4));
  for (const double total : m.ops[0].round_total) CHECK(total == Approx(15e-4));
  CHECK(m.ops[0].rows_executed == Approx(4));
  // Two of three: the first two share a reference (3), the last and the first do not (4), the last two do (3); and so on.
  Alone<ScriptedExecution> two(product_workload(64, 64, 64, 3), 5e-4);
  options.bracketed_uses = 2;
  options.min_rounds = options.max_rounds = 3;
  two.measured(options);
  CHECK(two.x.references == 3 + (3 + 4 + 3));
}

TEST_CASE("a device that keeps time is believed, and nothing is bracketed") {
  Alone<DeviceExecution> alone(product_workload(64, 64, 64, 3), 5e-4);
  MeasureOptions options;
  options.seconds = 1;
  const Measurement m = alone.measured(options);
  CHECK(m.step.raw_median == Approx(7e-4));
  CHECK(m.ops[0].seconds == Approx(2e-4));  // the median of its three uses: 1, 2 and 3 x 1e-4
  CHECK(m.ops[0].total == Approx(6e-4));
  CHECK(m.step.normalised == Approx(6e-4));
  CHECK(m.ops[0].reference == "product");
  CHECK(m.ops[0].status == MeasureStatus::kOk);
  CHECK(alone.x.references == 0);
  CHECK(m.state_after.at("gpu_clock_hz") == 1.98e9);
  CHECK(m.stopped_by == "spread");
}

TEST_CASE("bracketing cancels a neighbour that raw times show") {
  Alone<ScriptedExecution> alone(product_workload(64, 64, 64, 4), 4e-4);
  alone.world.speed = bimodal;
  MeasureOptions options;
  options.seconds = 2;
  const Measurement m = alone.measured(options);
  // The nominal reference is the undisturbed one; the ratio holds except where the state flips inside a bracket.
  CHECK(m.references[0].nominal == Approx(1e-4));
  CHECK(m.ops[0].seconds == Approx(4e-4).epsilon(0.01));
  CHECK(m.ops[0].raw_p95 == Approx(12e-4).epsilon(0.01));
  CHECK(m.step.normalised == Approx(16e-4).epsilon(0.01));
}

TEST_CASE("references that were held up do not make an op faster than any of its samples") {
  Alone<PreemptedExecution> alone(product_workload(64, 64, 64, 3), 5e-4);
  const Measurement m = alone.measured();
  // Scaled: 5e-4 / (about 1e-2) x 1e-4 = 5 us, a hundredth of what every sample took.
  CHECK(m.references[0].p25 == Approx(1e-4));
  CHECK(m.ops[0].status == MeasureStatus::kDisturbed);
  CHECK(m.ops[0].seconds == Approx(5e-4));
  CHECK(m.ops[0].ceiling_flops == 0);
  CHECK(m.ops[0].reason.find("held up") != std::string::npos);
  CHECK(m.step.normalised == Approx(15e-4));
}

TEST_CASE("the fraction of a ceiling is taken in the state of the moment") {
  // 64 x 64 x 64: 524,288 FLOPs in 0.4 ms, while the ceiling of 2 GFLOP/s does 800,000; three times slower, both, half of the time.
  World world;
  world.speed = bimodal;
  std::vector<int> log;
  const Workload w = product_workload(64, 64, 64, 4);
  ScriptedExecution x(w, world, 4e-4, log, 0);
  x.ceiling = 2e9;
  Execution* const subjects[] = {&x};
  WorldClock clock(world);
  MeasureOptions options;
  options.seconds = 2;
  const Measurement m = measure(subjects, options, clock)[0];
  CHECK(m.ops[0].ceiling_flops == Approx(800000).epsilon(0.01));
  CHECK(m.ceiling_rate.at("product") <= 2e9);
  CHECK(m.ceiling_rate.at("product") >= 2e9 / 3 * (1 - 1e-9));
  // Probing takes at most a twentieth of the time: 50 us (150 us) per 1.25 ms (3.75 ms) and more.
  CHECK(x.probes > 10);
  CHECK(x.probes * 5e-5 < 0.05 * m.seconds_spent);
  // A backend without such a probe says nothing.
  ScriptedExecution y(w, world, 4e-4, log, 1);
  Execution* const others[] = {&y};
  const Measurement n = measure(others, options, clock)[0];
  CHECK(n.ops[0].ceiling_flops == 0);
  CHECK(n.ceiling_rate.empty());
}

TEST_CASE("workloads measured together see the same weather") {
  World world;
  world.speed = rising;
  std::vector<int> log;
  const Workload a = product_workload(64, 64, 64, 2), b = product_workload(32, 64, 64, 2);
  ScriptedExecution x(a, world, 6e-4, log, 0), y(b, world, 3e-4, log, 1);
  Execution* const subjects[] = {&x, &y};
  WorldClock clock(world);
  MeasureOptions options;
  options.seconds = 5;
  options.target_spread = 0;
  options.max_rounds = 1 << 20;
  const std::vector<Measurement> m = measure(subjects, options, clock);
  CHECK(m[1].step.normalised / m[0].step.normalised == Approx(0.5).epsilon(0.005));
  CHECK(m[1].step.raw_median / m[0].step.raw_median == Approx(0.5).epsilon(0.02));
  for (size_t i = 0; i + 1 < log.size(); ++i) CHECK(log[i] != log[i + 1]);  // ABAB
  CHECK(m[0].stopped_by == "time");
}

TEST_CASE("an op too short to time says so, and still gives its number") {
  World world;
  std::vector<int> log;
  const Workload w = product_workload(64, 512, 512, 1);  // a megabyte of weights: repeating it in place would find it in cache
  ScriptedExecution x(w, world, 5e-6, log, 0);
  Execution* const subjects[] = {&x};
  WorldClock clock(world);
  const Measurement m = measure(subjects, {}, clock)[0];
  CHECK(m.ops[0].status == MeasureStatus::kTooShort);
  CHECK(m.ops[0].batch == 1);
  CHECK(m.ops[0].seconds == Approx(5e-6));
  CHECK_FALSE(m.ops[0].reason.empty());
  // A product of a few kilobytes stays in the innermost cache either way: eight calls make 40 us.
  const Workload tiny = product_workload(8, 16, 16, 1);
  ScriptedExecution y(tiny, world, 5e-6, log, 0);
  Execution* const others[] = {&y};
  const Measurement n = measure(others, {}, clock)[0];
  CHECK(n.ops[0].batch >= 8);
  CHECK(n.ops[0].batch <= 9);
  CHECK(n.ops[0].status == MeasureStatus::kOk);
  CHECK(n.ops[0].seconds == Approx(5e-6));
}

TEST_CASE("an interrupt ends the measurement with what there is") {
  Alone<ScriptedExecution> alone(product_workload(64, 64, 64, 1), 1e-3);
  MeasureOptions options;
  options.interrupted = [&alone] { return alone.world.now > 4e-3; };
  const Measurement m = alone.measured(options);
  CHECK(m.interrupted);
  CHECK(m.stopped_by == "interrupt");
  CHECK(m.step.raw.values.size() >= 1);
  CHECK(m.ops[0].status == MeasureStatus::kNotRun);
}

TEST_CASE("a stop within a pass drops the round it was in") {
  // Four uses of 10 ms each: a pass end to end takes 40 ms, one op by op 40 ms and at most 8 references of 0.1 ms.
  Alone<ScriptedExecution> alone(product_workload(64, 64, 64, 4), 1e-2);
  MeasureOptions options;
  options.warmup = 1;
  options.min_rounds = options.max_rounds = 50;
  const Measurement whole = alone.measured(options);
  REQUIRE(whole.step.rounds == 50);
  const double all = alone.world.now;
  for (const double share : {0.01, 0.3, 0.56, 0.8, 0.99}) {
    Alone<ScriptedExecution> stopped(product_workload(64, 64, 64, 4), 1e-2);
    stopped.x.stop_at = share * all;
    const Measurement m = stopped.measured(options);
    CAPTURE(share);
    CHECK(m.interrupted);
    CHECK(m.stopped_by == "interrupt");
    CHECK(m.step.rounds < 50);
    const auto rounds = static_cast<size_t>(m.step.rounds);
    CHECK(m.ops[0].raw.values.size() == 4 * rounds);
    CHECK(m.ops[0].round_total.size() == rounds);
    if (rounds == 0) continue;
    CHECK(m.ops[0].rows_executed == 4);  // the mean per use of the rounds that count, as ScriptedExecution says
    CHECK(m.ops[0].seconds == Approx(1e-2));
  }
}

TEST_CASE("the spread of halves") {
  CHECK(halves_spread(std::vector<double>(20, 3.0)) == 0);
  std::vector<double> two;  // a coin: half the values are 1, half 2
  for (int i = 0; i < 40; ++i) two.push_back(i % 2 ? 1 : 2);
  CHECK(halves_spread(two) > 0.2);
  CHECK(halves_spread(std::vector<double>{1.0}) == 0);
  CHECK(Samples{{3, 1, 2}}.median() == 2);
  CHECK(Samples{{1, 2}}.quantile(0.25) == Approx(1.25));
  CHECK(Samples{}.median() == 0);
}

namespace {

// Cores that are moved: of every four rounds the third runs on cores with last caches of their own, where ops take three times as long.
class MovedExecution : public ScriptedExecution {
 public:
  MovedExecution(const Workload& w, World& world, std::vector<int>& log, int apart_of_four) : ScriptedExecution(w, world, 1e-4, log, 0), apart_of_four_(apart_of_four), world_here_(world) {}
  Placement placement() override {
    apart_ = asked_++ % 4 < apart_of_four_;
    return apart_ ? Placement::kApart : Placement::kTogether;
  }
  void run_instance(int i) override {
    ScriptedExecution::run_instance(i);
    if (apart_) world_here_.spend(2e-4);
  }

 private:
  int apart_of_four_;
  World& world_here_;
  int asked_ = 0;
  bool apart_ = false;
};

Measurement measured_on_moving_cores(const Workload& w, int apart_of_four, const std::map<std::string, double>& nominal = {}) {
  World world;
  WorldClock clock(world);
  std::vector<int> log;
  MovedExecution execution(w, world, log, apart_of_four);
  MeasureOptions options;
  options.raw_share = 0;
  options.min_rounds = options.max_rounds = 8;
  options.nominal = nominal;
  Execution* one = &execution;
  return measure({&one, 1}, options, clock).front();
}

}  // namespace

TEST_CASE("figures are of the rounds in which the cores lay as in most") {
  const Workload w = product_workload(64, 64, 64, 1);
  // One round of four apart (3e-4 s an op), three together (1e-4 s): six of eight rounds stand, and none of the others is in a mean or a sum.
  const Measurement together = measured_on_moving_cores(w, 1);
  CHECK(together.placement == Placement::kTogether);
  CHECK(together.placement_share == Approx(0.75));
  CHECK(together.step.rounds == 6);
  CHECK(together.ops[0].raw.mean() == Approx(1e-4));
  CHECK(together.ops[0].seconds == Approx(1e-4));
  CHECK(together.ops[0].rows_executed == Approx(4));
  CHECK(together.ops[0].round_total.size() == 6);
  // Three of four apart. References take 1e-4 s on both; the nominal time of this placement is twice that, so ops count twice.
  const Measurement apart = measured_on_moving_cores(w, 3, {{"product", 1e-4}, {"product_apart", 2e-4}});
  CHECK(apart.placement == Placement::kApart);
  CHECK(apart.placement_share == Approx(0.75));
  CHECK(apart.ops[0].raw.mean() == Approx(3e-4));
  CHECK(apart.ops[0].seconds == Approx(6e-4));
  // Nobody moved: everything stands.
  CHECK(measured_on_moving_cores(w, 0).placement_share == 1);
  CHECK(measured_on_moving_cores(w, 0).step.rounds == 8);
}
