// From the sessions to figures per op: the CUDA profiler over a fake CUPTI, and the fake backend's profiler, which shares all but the hooks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/cuda_host/profiler.hpp"
#include "kernels/fake/backend.hpp"
#include "kernels/fake/profiler.hpp"
#include "lib/error.hpp"
#include "tests/cupti/fake_cupti.hpp"
#include "tests/tiny_models.hpp"

using namespace fathom;

namespace {

Workload small(DType dtype = DType::kBF16) {
  testing::Tiny tiny;
  tiny.every = 2;
  Scenario scenario;
  scenario.phase = Phase::kPrefill;
  scenario.length = 16;
  scenario.dtype = scenario.kv_dtype = scenario.grad_dtype = dtype;
  return build(testing::network(tiny), scenario);
}

std::unique_ptr<Execution> bound(const Workload& workload, double seconds) {
  auto execution = FakeBackend().bind(workload, {});
  dynamic_cast<FakeExecution&>(*execution).set_times(std::vector<double>(workload.instances().size(), seconds));
  return execution;
}

}  // namespace

TEST_CASE("range names carry the instance") {
  CHECK(PassProfiler::range_name("layers.07/mlp/up", 153) == "layers.07/mlp/up#153");
  CHECK(PassProfiler::instance_of_range("layers.07/mlp/up#153") == 153);
  CHECK(PassProfiler::instance_of_range("a#b#12") == 12);
  for (const char* strange : {"", "x", "x#", "x#1y", "x#y1", "#-"}) CHECK(PassProfiler::instance_of_range(strange) == -1);
}

TEST_CASE("the fake profiler's figures follow from counts and clock") {
  const Workload workload = small();
  const auto execution = bound(workload, 1e-5);
  FakeProfiler activity{FakeFaults{}};
  activity.begin(ProfilePass::kActivity);
  activity.record(*execution, 3);
  const std::vector<Profile> traced = activity.finish();
  REQUIRE(traced.size() == 1);
  CHECK(traced[0].workload == workload.fingerprint());
  CHECK(traced[0].passes == 3);
  const double instances = static_cast<double>(workload.instances().size());
  CHECK(traced[0].step_seconds == Approx(instances * 1.02e-5));   // 10 us and 0.2 us of tracing each
  std::int64_t kernels = 0;
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i) {
    const OpProfile& op = traced[0].ops[i];
    INFO(workload.path(i));
    const bool attention = std::holds_alternative<Attention>(workload.ops()[static_cast<size_t>(i)].spec);
    REQUIRE(op.kernels == (attention ? 2 : 1) * workload.uses(i));
    CHECK(op.kernel_seconds == Approx(0.9e-5 * static_cast<double>(workload.uses(i))));
    CHECK(op.reason.empty());
    CHECK(op.dram_read < 0);   // not counted in this pass: absent, not zero
    kernels += op.kernels;
  }
  CHECK(traced[0].kernels == 3 * kernels);

  FakeProfiler counters{FakeFaults{}};
  counters.begin(ProfilePass::kCounters);
  counters.record(*execution, 1);
  const Profile counted = counters.finish().at(0);
  CHECK(counted.chip == "GH100");
  CHECK(counted.counter_passes == 1);
  CHECK(counted.flops_per_math_op == 2);
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i) {
    const OpProfile& op = counted.ops[i];
    const Cost cost = declared_cost(workload.ops()[static_cast<size_t>(i)].spec) * static_cast<u128>(workload.uses(i));
    INFO(workload.path(i));
    CHECK(op.counted_read == Approx(cost.read.to_double()));
    CHECK(op.dram_read == Approx(1.03 * cost.read.to_double()));
    CHECK(op.dram_written == Approx(1.01 * cost.written.to_double()));
    CHECK(op.flops == Approx(1.0625 * cost.flops.to_double()));
    CHECK(op.cycles == Approx(1.5e9 * 1e-5 * static_cast<double>(workload.uses(i))));
    CHECK(op.kernels < 0);
  }
}

TEST_CASE("f32 runs count fp32 instructions, in the passes of that set") {
  const Workload workload = small(DType::kF32);
  const auto execution = bound(workload, 1e-5);
  FakeProfiler counters{FakeFaults{}};
  counters.begin(ProfilePass::kCounters);
  counters.record(*execution, 1);
  const Profile counted = counters.finish().at(0);
  CHECK(counted.counter_passes == 3);
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i)
    CHECK(counted.ops[i].flops == Approx(1.0625 * (declared_cost(workload.ops()[static_cast<size_t>(i)].spec) * static_cast<u128>(workload.uses(i))).flops.to_double()));
}

TEST_CASE("kernels without time leave no number") {
  const Workload workload = small();
  const auto execution = bound(workload, 1e-5);
  FakeProfiler profiler{parse_faults("stamps=1,drop=7")};
  profiler.begin(ProfilePass::kActivity);
  profiler.record(*execution, 2);
  const Profile profile = profiler.finish().at(0);
  CHECK(profile.ops[0].kernel_seconds < 0);
  CHECK(profile.ops[0].reason == "1 of 2 kernels and copies carry no time");
  CHECK(profile.ops[1].kernel_seconds > 0);
  REQUIRE(profile.notes.size() == 2);
  CHECK(profile.notes[1] == "7 activity records were dropped: the profile is incomplete");
}

TEST_CASE("faults are parsed, and refuse as CUPTI does") {
  CHECK(parse_faults("subscribe=39,counters=35,silent=1").subscribe == 39);
  for (const char* bad : {"x=1", "counters", "counters=", "counters=-1", "counters=3x", ","}) CHECK_THROWS_AS(parse_faults(bad), Error);
  FakeProfiler held{parse_faults("subscribe=39")};
  CHECK_THROWS_WITH(held.begin(ProfilePass::kActivity), Catch::StartsWith("CUPTI is in use by another profiler; times by CUDA events still work"));
  FakeProfiler once{FakeFaults{}};
  once.begin(ProfilePass::kActivity);
  CHECK_THROWS_AS(once.begin(ProfilePass::kActivity), Error);
  (void)once.finish();
  CHECK_THROWS_AS(once.finish(), Error);
}

#if FATHOM_CUPTI_HEADERS
#include "kernels/cuda/cupti_table.hpp"

namespace {

// Each op that was pushed left one kernel of (instance + 1) ns.
void deliver_pushed(cuda::FakeCupti& f) {
  cuda::BufferMaker m;
  std::uint32_t correlation = 0;
  std::uint64_t at = 5'000'000;
  std::erase(f.external, std::pair<int, std::uint64_t>{cuda::kExternalOp, cuda::kOutsideOp});
  for (size_t i = 0; i + 1 < f.external.size(); i += 2) {
    const std::uint64_t pass = f.external[i].second, op = f.external[i + 1].second;
    ++correlation;
    m.launch(correlation, op, pass, at).kernel(correlation, at + 1000, at + 1001 + (op & 0xffff));
    at += 100'000;
  }
  f.deliver(m.bytes());
}

// A device whose passes run behind the caller: eagerly first, then as one graph that was captured op by op.
class WatchedFake : public FakeExecution, public WatchedExecution {
 public:
  using FakeExecution::FakeExecution;
  void run_watched(PassWatcher& watcher) override {
    if (++passes_ <= 2)  // eager, then capture
      for (int i = 0; i < static_cast<int>(workload().instances().size()); ++i) watcher.begin_op(i), watcher.end_op(i);
    if (passes_ == 1) return;
    watcher.begin_launch();
    watcher.end_launch();
  }

 private:
  int passes_ = 0;
};

}  // namespace

TEST_CASE("the CUDA profiler marks whole passes where they can be watched, and the launches of graphs") {
  cuda::FakeCupti fake;
  fake.on_flush = [](cuda::FakeCupti& f) { f.deliver(cuda::FakeCupti::self_test().bytes()); };
  const Workload workload = small();
  WatchedFake execution(std::make_shared<const Workload>(workload), 0);
  cuda::CudaProfiler profiler(cuda::profiler_table(fake.device, &fake.api), "");
  profiler.begin(ProfilePass::kActivity);
  profiler.record(execution, 3);
  const Profile profile = profiler.finish().at(0);
  const auto n = static_cast<std::uint64_t>(workload.instances().size());
  // Set-up, the eager pass 0, the captured ops of pass 1 and its launch, then launches alone.
  using P = std::pair<int, std::uint64_t>;
  std::vector<P> expected = {{4, 0}, {3, cuda::kSelfTestOp}, {3, cuda::kOutsideOp}};
  for (const std::uint64_t pass : {0, 1})
    for (std::uint64_t i = 0; i < n; ++i) expected.insert(expected.end(), {{4, pass}, {3, i}});
  for (const std::uint64_t pass : {1, 2, 3}) expected.insert(expected.end(), {{4, pass}, {3, PassProfiler::kLaunch}});
  CHECK(fake.external == expected);
  CHECK(fake.count("cudaDeviceSynchronize") == 2 * 4 + 1);   // around passes, never between ops
  CHECK(profile.passes == 3);
}

TEST_CASE("the CUDA profiler over a fake CUPTI: two workloads, activity") {
  cuda::FakeCupti fake;
  fake.on_flush = deliver_pushed;
  const Workload first = small(), second = small(DType::kF32);
  const auto a = bound(first, 1e-6), b = bound(second, 1e-6);
  cuda::CudaProfiler profiler(cuda::profiler_table(fake.device, &fake.api), "0");
  profiler.begin(ProfilePass::kActivity);
  profiler.record(*a, 2);
  profiler.record(*b, 2);
  const std::vector<Profile> profiles = profiler.finish();
  REQUIRE(profiles.size() == 2);
  for (size_t w = 0; w < 2; ++w) {
    const Workload& workload = w == 0 ? first : second;
    REQUIRE(profiles[w].workload == workload.fingerprint());
    std::vector<double> expected(workload.ops().size());
    const auto instances = workload.instances();
    for (size_t i = 0; i < instances.size(); ++i) expected[static_cast<size_t>(instances[i].op)] += 1e-9 * static_cast<double>(i + 1);
    for (int op = 0; op < static_cast<int>(expected.size()); ++op) {
      CHECK(profiles[w].ops[op].kernels == workload.uses(op));
      CHECK(profiles[w].ops[op].kernel_seconds == Approx(expected[static_cast<size_t>(op)]));
    }
    CHECK(profiles[w].kernels == 2 * static_cast<std::int64_t>(instances.size()));
    CHECK(profiles[w].notes.empty());
  }
}

TEST_CASE("the CUDA profiler over a fake CUPTI: counters") {
  cuda::FakeCupti fake;
  const Workload workload = small();
  const auto execution = bound(workload, 1e-6);
  cuda::CudaProfiler profiler(cuda::profiler_table(fake.device, &fake.api), "");
  profiler.begin(ProfilePass::kCounters);
  profiler.record(*execution, 1);
  const Profile profile = profiler.finish().at(0);
  CHECK(profile.chip == "GH100");
  for (const std::string& note : profile.notes) CHECK(note.find("no value") == std::string::npos);
  // Range r of the fake reads 1000 (r + 1) + m for metric m: time is m = 0, DRAM reads m = 1, L2 m = 3.
  std::vector<double> expected(workload.ops().size());
  const auto instances = workload.instances();
  for (size_t i = 0; i < instances.size(); ++i) expected[static_cast<size_t>(instances[i].op)] += 1000.0 * static_cast<double>(i + 1);
  for (int op = 0; op < static_cast<int>(expected.size()); ++op) {
    const double uses = static_cast<double>(workload.uses(op));
    CHECK(profile.ops[op].dram_read == Approx(expected[static_cast<size_t>(op)] + uses));
    CHECK(profile.ops[op].l2_bytes == Approx(expected[static_cast<size_t>(op)] + 3 * uses));
    CHECK(profile.ops[op].counter_seconds == Approx(1e-9 * expected[static_cast<size_t>(op)]));
  }
  CHECK(fake.count("cuptiRangeProfilerPushRange") == instances.size());
}

TEST_CASE("the CUDA profiler: counters without a value are said and leave no number") {
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  cuda::FakeCupti fake;
  // Of the metrics (time, DRAM read, DRAM written, L2, tensor ops, cycles): L2 is NaN everywhere, DRAM reads are infinite in the first range,
  // tensor ops are negative in the second.
  fake.value = [=](std::size_t range, std::size_t metric) { return metric == 3 ? nan : metric == 1 && range == 0 ? infinite : metric == 4 && range == 1 ? -5.0 : 100.0; };
  const Workload workload = small();
  const auto execution = bound(workload, 1e-6);
  const auto instances = workload.instances();
  REQUIRE(workload.uses(instances[0].op) == 1);
  cuda::CudaProfiler profiler(cuda::profiler_table(fake.device, &fake.api), "");
  profiler.begin(ProfilePass::kCounters);
  profiler.record(*execution, 1);
  const Profile profile = profiler.finish().at(0);
  for (int op = 0; op < static_cast<int>(workload.ops().size()); ++op) {
    CHECK(profile.ops[op].l2_bytes < 0);
    CHECK(profile.ops[op].counter_seconds == Approx(1e-7 * static_cast<double>(workload.uses(op))));
  }
  CHECK(profile.ops[instances[0].op].dram_read < 0);
  const std::string all = std::to_string(instances.size());
  const auto said = [&](const std::string& text) { return std::find(profile.notes.begin(), profile.notes.end(), text) != profile.notes.end(); };
  CHECK(said("no value of counter 'L2 bytes' in " + all + " of " + all + " ranges"));
  CHECK(said("no value of counter 'DRAM bytes read' in 1 of " + all + " ranges"));
  CHECK(said("no value of counter 'bf16 tensor ops' in 1 of " + all + " ranges"));

  cuda::FakeCupti blank;
  blank.value = [=](std::size_t, std::size_t) { return nan; };
  const auto again = bound(workload, 1e-6);
  cuda::CudaProfiler nothing(cuda::profiler_table(blank.device, &blank.api), "");
  nothing.begin(ProfilePass::kCounters);
  CHECK_THROWS_WITH(nothing.record(*again, 1), Catch::StartsWith("the range profiler returned no value of any counter; kernel times still work"));
}

TEST_CASE("the CUDA profiler: what CUPTI says becomes an error with its cure") {
  cuda::FakeCupti fake;
  fake.fails["cuptiRangeProfilerEnable"] = 26;
  const Workload workload = small();
  const auto execution = bound(workload, 1e-6);
  cuda::CudaProfiler profiler(cuda::profiler_table(fake.device, &fake.api), "");
  profiler.begin(ProfilePass::kCounters);
  try {
    profiler.record(*execution, 1);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kEnvironment);
    CHECK(error.message() == "another profiler or DCGM holds the GPU counters; kernel times still work");
    CHECK(error.hint() == "dcgmi profile --pause; before Hopper one process holds the counters of the whole machine");
  }
  cuda::FakeCupti blind;
  blind.driver = 0;
  cuda::CudaProfiler none(cuda::profiler_table(blind.device, &blind.api), "");
  CHECK_THROWS_WITH(none.begin(ProfilePass::kActivity), Catch::StartsWith("no NVIDIA driver found"));
}

TEST_CASE("the table refuses use before anything is open") {
  cuda::FakeCupti fake;
  const cuda::ProfilerTable& table = cuda::profiler_table(fake.device, &fake.api);
  cuda::ProfilerMessage message;
  bool more = false;
  const cuda::ProfilerSink sink;
  CHECK_FALSE(table.push(1, 1, &message));
  CHECK(std::string(message.message) == "the profiler was used before it was opened");
  CHECK(message.internal == 1);
  CHECK_FALSE(table.pop(&message));
  CHECK_FALSE(table.start_pass(&message));
  CHECK_FALSE(table.push_range("x", &message));
  CHECK_FALSE(table.pop_range(&message));
  CHECK_FALSE(table.stop_pass(&more, &message));
  CHECK_FALSE(table.finish_activity(&sink, &message));
  CHECK_FALSE(table.finish_counters(&sink, &message));
  CHECK(std::string(table.chip()).empty());
  table.range_begin("an op");   // no tool is attached: nothing happens
  table.range_end();
  CHECK(fake.calls.empty());
}
#endif
