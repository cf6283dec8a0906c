// The counter session on fake function tables: host and target sequence, passes, failures at every call.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>

#include "tests/cupti/fake_cupti.hpp"

#if FATHOM_CUPTI_HEADERS

using namespace fathom::cuda;

namespace {

using Ranges = std::map<std::string, CounterValues>;

bool whole_run(CounterSession& session, Ranges& ranges) {
  if (!session.open()) return false;
  for (bool more = true; more;) {
    if (!session.start_pass()) return false;
    for (const char* name : {"layers.00/attn/qkv", "layers.00/mlp/up"})
      if (!session.push(name) || !session.pop()) return false;
    if (!session.stop_pass(more)) return false;
  }
  return session.finish(ranges);
}

}  // namespace

TEST_CASE("counters: the sequence of host and target, and values by range") {
  FakeCupti fake;
  CounterSession session(fake.api, fake.device, {}, MetricSet::kStandard, 2);
  Ranges ranges;
  REQUIRE(whole_run(session, ranges));
  CHECK(session.chip() == "GH100");
  CHECK(session.passes() == 1);
  CHECK(session.notes().empty());
  const std::vector<std::string> order = {"cuptiProfilerInitialize", "cuptiDeviceGetChipName", "cuptiProfilerDeviceSupported", "cuptiProfilerGetCounterAvailability",
                                          "cuptiProfilerHostInitialize", "cuptiProfilerHostGetMetricProperties", "cuptiProfilerHostConfigAddMetrics",
                                          "cuptiProfilerHostGetConfigImageSize", "cuptiProfilerHostGetConfigImage", "cuptiProfilerHostGetNumOfPasses",
                                          "cuptiRangeProfilerEnable", "cuptiRangeProfilerGetCounterDataSize", "cuptiRangeProfilerCounterDataImageInitialize",
                                          "cuptiRangeProfilerSetConfig", "cuptiRangeProfilerStart", "cuptiRangeProfilerPushRange", "cuptiRangeProfilerPopRange",
                                          "cuptiRangeProfilerStop", "cuptiRangeProfilerDecodeData", "cuptiRangeProfilerGetCounterDataInfo",
                                          "cuptiRangeProfilerCounterDataGetRangeInfo", "cuptiProfilerHostEvaluateToGpuValues", "cuptiRangeProfilerDisable",
                                          "cuptiProfilerHostDeinitialize", "cuptiProfilerDeInitialize"};
  for (size_t i = 1; i < order.size(); ++i) {
    INFO(order[i - 1] << " before " << order[i]);
    CHECK(fake.before(order[i - 1], order[i]));
  }
  CHECK(fake.calls[0] == "cudaDriverGetVersion");
  CHECK(fake.count("cuptiProfilerGetCounterAvailability") == 2);   // size, then image
  CHECK(fake.metrics == std::vector<std::string>{"gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum",
                                                 "sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__cycles_elapsed.max"});
  REQUIRE(ranges.size() == 2);
  CHECK(ranges.at("layers.00/attn/qkv").at(Counter::kTime) == 1000);
  CHECK(ranges.at("layers.00/attn/qkv").at(Counter::kDramWritten) == 1002);
  CHECK(ranges.at("layers.00/mlp/up").at(Counter::kCycles) == 2005);
}

TEST_CASE("counters: two passes run the work twice") {
  FakeCupti fake;
  fake.passes = 2;
  CounterSession session(fake.api, fake.device, {}, MetricSet::kPipe, 2);
  Ranges ranges;
  REQUIRE(whole_run(session, ranges));
  CHECK(fake.count("cuptiRangeProfilerStart") == 2);
  CHECK(fake.count("cuptiRangeProfilerPushRange") == 4);
  CHECK(ranges.size() == 2);
}

TEST_CASE("counters: every code at every call") {
  const std::vector<std::string> calls = {
      "cuptiGetVersion", "cuptiProfilerInitialize", "cuptiDeviceGetChipName", "cuptiProfilerDeviceSupported", "cuptiProfilerGetCounterAvailability", "cuptiProfilerHostInitialize",
      "cuptiProfilerHostGetMetricProperties", "cuptiProfilerHostConfigAddMetrics", "cuptiProfilerHostGetConfigImageSize", "cuptiProfilerHostGetConfigImage",
      "cuptiProfilerHostGetNumOfPasses", "cuptiRangeProfilerEnable", "cuptiRangeProfilerGetCounterDataSize", "cuptiRangeProfilerCounterDataImageInitialize",
      "cuptiRangeProfilerSetConfig", "cuptiRangeProfilerStart", "cuptiRangeProfilerPushRange", "cuptiRangeProfilerPopRange", "cuptiRangeProfilerStop",
      "cuptiRangeProfilerDecodeData", "cuptiRangeProfilerGetCounterDataInfo", "cuptiRangeProfilerCounterDataGetRangeInfo", "cuptiProfilerHostEvaluateToGpuValues"};
  for (const std::string& call : calls)
    for (const int code : {1, 2, 7, 8, 15, 26, 27, 33, 35, 36, 38, 39, 40, 41, 42, 43, 44, 45, 46, 999}) {
      INFO(call << " gives " << code);
      FakeCupti fake;
      fake.fails[call] = code;
      CounterSession session(fake.api, fake.device, {}, MetricSet::kStandard, 2);
      Ranges ranges;
      REQUIRE_FALSE(whole_run(session, ranges));
      CHECK(session.state() == SessionState::kFailed);
      CHECK(session.finding().code == code);
      CHECK(session.finding().rung == Rung::kActivity);
      CHECK(!session.finding().message.empty());
      // Everything that was opened is closed, once.
      CHECK(fake.count("cuptiRangeProfilerDisable") == (session.finding().code && fake.count("cuptiRangeProfilerEnable") && call != "cuptiRangeProfilerEnable" ? 1u : 0u));
      CHECK(fake.count("cuptiProfilerHostDeinitialize") == (fake.count("cuptiProfilerHostInitialize") && call != "cuptiProfilerHostInitialize" ? 1u : 0u));
      const std::size_t before = fake.calls.size();
      bool more = false;
      CHECK_FALSE(session.open());
      CHECK_FALSE(session.start_pass());
      CHECK_FALSE(session.push("x"));
      CHECK_FALSE(session.pop());
      CHECK_FALSE(session.stop_pass(more));
      CHECK_FALSE(session.finish(ranges));
      CHECK(fake.calls.size() == before);
    }
}

TEST_CASE("counters: refused permissions carry the facts") {
  FakeCupti fake;
  fake.fails["cuptiRangeProfilerEnable"] = 35;
  ProfilerFacts facts;
  facts.admin_only = 1;
  facts.sys_admin = 0;
  CounterSession session(fake.api, fake.device, facts, MetricSet::kStandard, 2);
  CHECK_FALSE(session.open());
  CHECK(session.finding().message == "GPU counters are restricted to administrators (RmProfilingAdminOnly: 1, CAP_SYS_ADMIN missing); kernel times still work");
}

TEST_CASE("counters: a device that cannot be profiled names what stands in the way") {
  FakeCupti fake;
  fake.supported = false;
  CounterSession session(fake.api, fake.device, {}, MetricSet::kStandard, 2);
  CHECK_FALSE(session.open());
  CHECK(session.finding().message == "counters are not possible here (virtual GPU (possible, but switched off), chip GH100); kernel times still work");
}

TEST_CASE("counters: an unknown chip is an error, never the first chip of a list") {
  FakeCupti fake;
  fake.chip = "GR100";
  CounterSession session(fake.api, fake.device, {}, MetricSet::kStandard, 2);
  CHECK_FALSE(session.open());
  CHECK(session.finding().message == "chip GR100 is not known to CUPTI 13.0.1; counters off");
  CHECK(fake.count("cuptiProfilerHostInitialize") == 0);
}

TEST_CASE("counters: a name that the library does not know is left out with a note") {
  FakeCupti fake;
  fake.fails["lts__t_bytes.sum"] = CUPTI_ERROR_INVALID_METRIC_NAME;
  CounterSession session(fake.api, fake.device, {}, MetricSet::kStandard, 2);
  Ranges ranges;
  REQUIRE(whole_run(session, ranges));
  CHECK(fake.metrics.size() == 5);
  REQUIRE(session.notes().size() == 1);
  CHECK(session.notes()[0] == "counter lts__t_bytes.sum is not known for chip GH100");
  CHECK_FALSE(ranges.begin()->second.contains(Counter::kL2));
}

TEST_CASE("counters: passes, drops and order of calls") {
  FakeCupti early;   // submitted after one pass although two were announced
  early.passes = 2;
  early.passes_submitted_after = 1;
  CounterSession first(early.api, early.device, {}, MetricSet::kPipe, 2);
  Ranges ranges;
  CHECK_FALSE(whole_run(first, ranges));
  CHECK(first.finding().message == "the range profiler ended after 1 passes instead of 2; kernel times still work");

  FakeCupti never;
  never.passes_submitted_after = 1 << 20;
  CounterSession endless(never.api, never.device, {}, MetricSet::kStandard, 2);
  CHECK_FALSE(whole_run(endless, ranges));
  CHECK(endless.finding().message == "the range profiler asked for more than 64 passes; kernel times still work");

  FakeCupti dropping;
  dropping.ranges_dropped = 3;
  CounterSession dropped(dropping.api, dropping.device, {}, MetricSet::kStandard, 2);
  CHECK_FALSE(whole_run(dropped, ranges));
  CHECK(dropped.finding().message == "3 ranges of counters were dropped; kernel times still work");

  FakeCupti other;   // two passes where the table says one: said, and done
  other.passes = 2;
  CounterSession more_passes(other.api, other.device, {}, MetricSet::kStandard, 2);
  ranges.clear();
  REQUIRE(whole_run(more_passes, ranges));
  REQUIRE(more_passes.notes().size() == 1);
  CHECK(more_passes.notes()[0] == "the counters take 2 passes on this GH100, 1 by the table");

  FakeCupti fake;
  CounterSession session(fake.api, fake.device, {}, MetricSet::kStandard, 2);
  REQUIRE(session.open());
  CHECK_FALSE(session.push("x"));   // outside a pass
  CHECK(session.finding().internal);
}

TEST_CASE("the real library's symbols fill the table, without a driver") {
  CuptiApi api;
  std::string message;
  if (!load_cupti(cupti_library_names(), api, message)) {
    WARN("skipped: " + message);
    return;
  }
  std::uint32_t version = 0;
  CHECK(api.cuptiGetVersion(&version) == CUPTI_SUCCESS);
  CHECK(version >= 130000);
  CHECK_FALSE(load_cupti({"libno-such-cupti.so.13"}, api, message));
  CHECK(message.find("libno-such-cupti.so.13") != std::string::npos);
  CHECK_FALSE(load_cupti({"libm.so.6"}, api, message));
  CHECK(message == "it has no cuptiGetVersion, so it is older than CUDA 13.0");
}
#else
TEST_CASE("counters on fake function tables") { std::cout << "skipped: the CUPTI headers of CUDA 13 were not found when this was built\n"; }
#endif
