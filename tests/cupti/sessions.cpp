// The sessions on fake function tables: order of calls, every code at every call, late and lost buffers, and refusal after a failure.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>

#include "tests/cupti/fake_cupti.hpp"

#if FATHOM_CUPTI_HEADERS

using namespace fathom::cuda;

namespace {

// Runs two ops under a session, as the profiler does. True: finish() succeeded.
bool whole_run(ActivitySession& session, Activity& activity) {
  if (!session.open()) return false;
  for (const std::uint64_t op : {5u, 6u})
    if (!session.push(op, 1) || !session.pop()) return false;
  return session.finish(activity);
}

void deliver_two_ops(FakeCupti& fake) {
  BufferMaker ops;
  ops.launch(2, 5, 1, 2'000'000).kernel(2, 2'001'000, 2'003'000).launch(3, 6, 1, 2'010'000).kernel(3, 2'011'000, 2'012'000);
  fake.deliver(FakeCupti::self_test().bytes());
  fake.deliver(ops.bytes());
}

}  // namespace

TEST_CASE("activity: the order of calls") {
  FakeCupti fake;
  fake.on_flush = deliver_two_ops;
  ActivitySession session(fake.api, fake.device, {});
  Activity activity;
  REQUIRE(whole_run(session, activity));
  CHECK(session.state() == SessionState::kFinished);
  // Nothing of CUPTI before the driver and the device are known to be there.
  CHECK(fake.calls[0] == "cudaDriverGetVersion");
  CHECK(fake.calls[1] == "cudaGetDeviceCount");
  CHECK(fake.calls[2] == "cuptiGetVersion");
  CHECK(fake.before("cuptiSubscribe_v2", "cuptiActivitySetAttribute"));
  CHECK(fake.before("cuptiActivitySetAttribute", "cuptiActivityRegisterCallbacks"));
  CHECK(fake.before("cuptiActivityRegisterCallbacks", "cuptiActivityEnable"));
  CHECK(fake.before("cuptiActivityEnable", "launch"));
  CHECK(fake.before("launch", "cudaDeviceSynchronize"));
  CHECK(fake.before("cudaDeviceSynchronize", "cuptiActivityFlushAll"));
  CHECK(fake.before("cuptiActivityFlushAll", "cuptiActivityGetNumDroppedRecords"));
  CHECK(fake.before("cuptiActivityGetNumDroppedRecords", "cuptiActivityDisable"));
  CHECK(fake.calls.back() == "cuptiUnsubscribe");
  CHECK(fake.count("cuptiActivityFlushAll") == 2);
  CHECK(fake.count("cuptiActivityEnable") == 7);
  CHECK(fake.count("cuptiActivityDisable") == 7);
  CHECK(fake.count("cuptiEnableCallback") == 2);
  // Every op was pushed on both stacks; the self-test is not part of the result.
  using P = std::pair<int, std::uint64_t>;
  CHECK(fake.external == std::vector<P>{{4, 0}, {3, kSelfTestOp}, {3, kOutsideOp}, {4, 1}, {3, 5}, {4, 1}, {3, 6}});
  CHECK(activity.kernels == 2);
  CHECK(activity.attributed == 2);
  CHECK(activity.passes.at(0).ops.empty());
  CHECK(activity.passes.at(1).ops.at(5).kernel_seconds == Approx(2e-6));
  CHECK(activity.passes.at(1).ops.at(6).kernel_seconds == Approx(1e-6));
  CHECK(activity.complete());
}

TEST_CASE("activity: every code at every call ends the session with words and a rung") {
  const std::vector<std::string> calls = {"cuptiGetVersion", "cuptiSubscribe_v2", "cuptiEnableDomain", "cuptiEnableCallback", "cuptiActivitySetAttribute",
                                          "cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiActivityPushExternalCorrelationId",
                                          "cuptiActivityPopExternalCorrelationId", "cuptiActivityFlushAll", "cuptiActivityGetNumDroppedRecords"};
  const std::vector<int> codes = {1, 2, 7, 8, 12, 15, 21, 26, 27, 33, 35, 36, 38, 39, 40, 41, 42, 43, 44, 45, 46, 999};
  for (const std::string& call : calls)
    for (const int code : codes) {
      INFO(call << " gives " << code);
      FakeCupti fake;
      fake.on_flush = deliver_two_ops;
      fake.fails[call] = code;
      ActivitySession session(fake.api, fake.device, {});
      Activity activity;
      REQUIRE_FALSE(whole_run(session, activity));
      CHECK(session.state() == SessionState::kFailed);
      CHECK(session.finding().code == code);
      CHECK(session.finding().rung == Rung::kEvents);
      CHECK(!session.finding().message.empty());
      // What was taken is given back, and nothing more is done.
      CHECK(fake.count("cuptiUnsubscribe") == (call == "cuptiSubscribe_v2" || call == "cuptiGetVersion" ? 0 : 1));
      const std::size_t before = fake.calls.size();
      const std::string reason = session.finding().message;
      CHECK_FALSE(session.open());
      CHECK_FALSE(session.push(1, 1));
      CHECK_FALSE(session.pop());
      CHECK_FALSE(session.finish(activity));
      CHECK(fake.calls.size() == before);
      CHECK(session.finding().message == reason);
    }
}

TEST_CASE("activity: no driver, old driver, no device: CUPTI is never touched") {
  struct Case {
    const char* call;
    int code, driver, devices;
    const char* message;
  };
  const Case cases[] = {{"", 0, 0, 1, "no NVIDIA driver found"},
                        {"", 0, 12080, 1, "driver supports CUDA 12.8, fathom needs 13.0 (r580 or newer)"},
                        {"cudaGetDeviceCount", 35, 13000, 1, "driver supports CUDA 13.0, fathom needs 13.0 (r580 or newer)"},
                        {"cudaGetDeviceCount", 34, 13000, 1, "the CUDA stub library was loaded"},
                        {"cudaGetDeviceCount", 100, 13000, 1, "no GPU visible (CUDA_VISIBLE_DEVICES='3')"},
                        {"", 0, 13000, 0, "no GPU visible (CUDA_VISIBLE_DEVICES='3')"}};
  for (const Case& each : cases) {
    INFO(each.message);
    FakeCupti fake;
    fake.driver = each.driver;
    fake.devices = each.devices;
    if (*each.call) fake.fails[each.call] = each.code;
    ProfilerFacts facts;
    facts.visible_devices = "3";
    ActivitySession session(fake.api, fake.device, facts);
    CHECK_FALSE(session.open());
    CHECK(session.finding().message == each.message);
    CHECK(session.finding().rung == Rung::kHost);
    CHECK(std::none_of(fake.calls.begin(), fake.calls.end(), [](const std::string& call) { return call.starts_with("cupti"); }));
    CounterSession counters(fake.api, fake.device, facts, MetricSet::kStandard, 8);
    CHECK_FALSE(counters.open());
    CHECK(counters.finding().message == each.message);
  }
}

TEST_CASE("activity: who holds CUPTI is named") {
  FakeCupti fake;
  fake.holder = "CUPTI for Nsight Systems";
  fake.fails["cuptiSubscribe_v2"] = 39;
  ActivitySession session(fake.api, fake.device, {});
  CHECK_FALSE(session.open());
  CHECK(session.finding().message == "CUPTI is in use by CUPTI for Nsight Systems; times by CUDA events still work");
}

TEST_CASE("activity: library versions") {
  FakeCupti old;
  old.version = CUPTI_API_VERSION - 1;
  ActivitySession refused(old.api, old.device, {});
  CHECK_FALSE(refused.open());
  CHECK(refused.finding().message.find("is older than") != std::string::npos);
  FakeCupti newer;
  newer.version = 140000;
  newer.on_flush = deliver_two_ops;
  ActivitySession session(newer.api, newer.device, {});
  Activity activity;
  CHECK(whole_run(session, activity));
  REQUIRE(session.notes().size() == 1);
  CHECK(session.notes()[0].find("another major version") != std::string::npos);
}

TEST_CASE("activity: one session per process") {
  FakeCupti fake;
  fake.on_flush = deliver_two_ops;
  ActivitySession first(fake.api, fake.device, {});
  Activity activity;
  REQUIRE(whole_run(first, activity));
  ActivitySession second(fake.api, fake.device, {});
  CHECK_FALSE(second.open());
  CHECK(second.finding().internal);
  CHECK(second.finding().message == "a process can hold one activity session, and this one had its own");
}

TEST_CASE("activity: an empty profile is an error, and so is one that matches nothing") {
  FakeCupti silent;
  ActivitySession none(silent.api, silent.device, {});
  Activity activity;
  CHECK_FALSE(whole_run(none, activity));
  CHECK(none.finding().message == explain_no_records().message);

  FakeCupti strangers;
  strangers.on_flush = [](FakeCupti& fake) {
    BufferMaker m;
    m.kernel(50, 1000, 2000).kernel(51, 3000, 4000);
    fake.deliver(m.bytes());
  };
  ActivitySession unmatched(strangers.api, strangers.device, {});
  CHECK_FALSE(whole_run(unmatched, activity));
  CHECK(unmatched.finding().message == explain_no_match(2).message);
  CHECK(unmatched.finding().internal);

  FakeCupti twice;   // a test kernel that left two records means that records are not what they seem
  twice.on_flush = [](FakeCupti& fake) {
    fake.deliver(FakeCupti::self_test().bytes());
    fake.deliver(FakeCupti::self_test().bytes());
  };
  ActivitySession doubled(twice.api, twice.device, {});
  CHECK_FALSE(whole_run(doubled, activity));
}

TEST_CASE("activity: dropped records and zero stamps reach the result") {
  FakeCupti fake;
  fake.dropped = 17;
  fake.on_flush = [](FakeCupti& f) {
    BufferMaker m;
    m.launch(2, 5, 1, 2'000'000).kernel(2, 0, 0);
    f.deliver(m.bytes());   // before the self-test: order means nothing
    f.deliver(FakeCupti::self_test().bytes());
  };
  ActivitySession session(fake.api, fake.device, {});
  Activity activity;
  REQUIRE(whole_run(session, activity));
  CHECK(activity.dropped == 17);
  CHECK(activity.no_stamp == 1);
  CHECK(activity.passes.at(1).ops.at(5).without_time == 1);
  CHECK_FALSE(activity.complete());
}

TEST_CASE("activity: past the limit of buffers records are lost and counted, never refused") {
  FakeCupti fake;
  fake.on_flush = [](FakeCupti& f) {
    f.deliver(FakeCupti::self_test().bytes());
    BufferMaker m;
    m.launch(2, 5, 1, 2'000'000).kernel(2, 2'001'000, 2'002'000);
    f.deliver(m.bytes());
    for (int i = 0; i < 3; ++i) f.deliver(m.bytes());
  };
  ActivityOptions options;
  options.buffer_bytes = 4096;
  options.most_buffers = 2;
  ActivitySession session(fake.api, fake.device, {}, options);
  Activity activity;
  REQUIRE(whole_run(session, activity));
  CHECK(activity.kernels == 1);
  CHECK(activity.dropped > 0);
  CHECK_FALSE(activity.complete());
}

TEST_CASE("activity: what the tracer reports") {
  const auto report = [](FakeCupti& fake, CUpti_CallbackId what, CUptiResult code) {
    CUpti_StateData data = {};
    data.notification.result = code;
    data.notification.message = "device buffers ran out";
    fake.callback(fake.callback_user, CUPTI_CB_DOMAIN_STATE, what, &data);
  };
  FakeCupti warned;
  warned.on_flush = [&](FakeCupti& fake) {
    deliver_two_ops(fake);
    report(fake, CUPTI_CBID_STATE_WARNING, CUPTI_ERROR_MAX_LIMIT_REACHED);
  };
  ActivitySession first(warned.api, warned.device, {});
  Activity activity;
  CHECK(whole_run(first, activity));
  REQUIRE(first.notes().size() == 1);
  CHECK(first.notes()[0] == "the tracer warns: device buffers ran out (CUPTI_ERROR_MAX_LIMIT_REACHED)");
  for (const CUpti_CallbackId what : {CUPTI_CBID_STATE_FATAL_ERROR, CUPTI_CBID_STATE_ERROR}) {
    FakeCupti failed;
    failed.on_flush = [&](FakeCupti& fake) {
      deliver_two_ops(fake);
      report(fake, what, CUPTI_ERROR_UNKNOWN);
    };
    ActivitySession session(failed.api, failed.device, {});
    CHECK_FALSE(whole_run(session, activity));
    CHECK(session.finding().message == "the tracer failed: device buffers ran out (CUPTI_ERROR_UNKNOWN); times by CUDA events still work");
  }
}

TEST_CASE("activity: nodes captured in an op and their clones belong to it") {
  FakeCupti fake;
  const auto node = [](std::uintptr_t id) { return reinterpret_cast<CUgraphNode>(id); };
  const auto event = [&](CUpti_CallbackId what, std::uintptr_t id, std::uintptr_t original) {
    CUpti_GraphData graph = {};
    graph.node = node(id);
    graph.originalNode = node(original);
    CUpti_ResourceData data = {};
    data.resourceDescriptor = &graph;
    fake.callback(fake.callback_user, CUPTI_CB_DOMAIN_RESOURCE, what, &data);
  };
  fake.on_flush = [](FakeCupti& f) {
    f.deliver(FakeCupti::self_test().bytes());
    BufferMaker m;
    m.launch(9, 99, 4, 3'000'000).kernel(9, 3'001'000, 3'002'000, "a", 201).kernel(9, 3'002'000, 3'005'000, "b", 202).kernel(9, 3'005'000, 3'006'000, "c", 203);
    f.deliver(m.bytes());
  };
  ActivitySession session(fake.api, fake.device, {});
  REQUIRE(session.open());
  REQUIRE(session.push(20, 1));
  event(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, 101, 0);
  REQUIRE(session.pop());
  event(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, 103, 0);   // outside every op
  REQUIRE(session.push(21, 1));
  event(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, 102, 0);
  REQUIRE(session.pop());
  event(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, 201, 101);  // instantiation
  event(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, 202, 102);
  event(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, 203, 103);
  Activity activity;
  REQUIRE(session.finish(activity));
  CHECK(activity.passes.at(4).ops.at(20).kernel_seconds == Approx(1e-6));
  CHECK(activity.passes.at(4).ops.at(21).kernel_seconds == Approx(3e-6));
  CHECK(activity.by_graph_node == 2);
  CHECK(activity.unattributed.kernels == 1);
}

TEST_CASE("activity: what is launched between ops is set apart, and what carries no id at all is a loss") {
  FakeCupti fake;
  fake.on_flush = [](FakeCupti& f) {
    f.deliver(FakeCupti::self_test().bytes());
    BufferMaker m;
    // Set-up has the id at the bottom of the stack and no pass; one kernel lost its ids; one belongs to op 5.
    m.external(2, kExternalOp, kOutsideOp).api(2, 1'500'000, 1'500'500).kernel(2, 1'501'000, 1'509'000).kernel(2, 1'510'000, 1'511'000);
    m.kernel(3, 1'600'000, 1'601'000);
    m.launch(4, 5, 1, 2'000'000).kernel(4, 2'001'000, 2'003'000);
    f.deliver(m.bytes());
  };
  ActivitySession session(fake.api, fake.device, {});
  Activity activity;
  REQUIRE(whole_run(session, activity));
  CHECK(activity.outside == 2);
  CHECK(activity.kernels == 2);
  CHECK(activity.attributed == 1);
  CHECK(activity.unattributed.kernels == 1);
  CHECK(activity.passes.at(0).ops.empty());
  CHECK(activity.passes.at(1).ops.at(5).kernel_seconds == Approx(2e-6));
  CHECK(trouble(activity) == std::vector<std::string>{"1 of 2 kernels belong to no op"});
}

TEST_CASE("activity: calls out of order are refused") {
  FakeCupti fake;
  ActivitySession session(fake.api, fake.device, {});
  CHECK_FALSE(session.push(1, 1));   // before open
  CHECK(session.finding().internal);
  CHECK_FALSE(session.open());
  CHECK(fake.calls.empty());
  FakeCupti other;
  ActivitySession nested(other.api, other.device, {});
  REQUIRE(nested.open());
  REQUIRE(nested.push(1, 1));
  CHECK_FALSE(nested.push(2, 1));
  CHECK(nested.state() == SessionState::kFailed);
}
#else
TEST_CASE("sessions on fake function tables") { std::cout << "skipped: the CUPTI headers of CUDA 13 were not found when this was built\n"; }
#endif
