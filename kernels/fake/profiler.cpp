#include "kernels/fake/profiler.hpp"

#include <fmt/format.h>

#include <charconv>

#include "kernels/fake/backend.hpp"
#include "lib/error.hpp"

namespace fathom {
namespace {

constexpr double kBusy = 0.9, kTracePerOp = 0.2e-6, kClock = 1.5e9, kPadding = 1.0625;

[[noreturn]] void refuse(const cuda::Finding& finding) { throw Error(ErrorKind::kEnvironment, finding.message, {}, finding.cure); }

cuda::ProfilerFacts facts() {
  cuda::ProfilerFacts f;
  f.driver_version = 13000;
  f.admin_only = 1;
  f.sys_admin = 0;
  f.holder = "another profiler";
  f.chip = "GH100";
  return f;
}

}  // namespace

FakeFaults parse_faults(const std::string& text) {
  FakeFaults faults;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t at = item.find('=');
    const std::string key = item.substr(0, at);
    std::int64_t value = 0;
    const char* last = item.data() + item.size();
    bool number = false;
    if (at != std::string::npos) {
      const auto [stop, error] = std::from_chars(item.data() + at + 1, last, value);
      number = error == std::errc() && stop == last && value >= 0;
    }
    if (number && key == "subscribe")
      faults.subscribe = static_cast<int>(value);
    else if (number && key == "activity")
      faults.activity = static_cast<int>(value);
    else if (number && key == "counters")
      faults.counters = static_cast<int>(value);
    else if (number && key == "stamps")
      faults.lose_stamps = value;
    else if (number && key == "drop")
      faults.drop = static_cast<std::uint64_t>(value);
    else if (number && key == "silent")
      faults.silent = value != 0;
    else
      throw_input(fmt::format("'{}' is no fault of the fake profiler", item), {}, "subscribe=CODE, activity=CODE, counters=CODE, stamps=N, drop=N, silent=1");
    begin = end + 1;
  }
  return faults;
}

void FakeProfiler::running(const Execution& execution, std::size_t instance) {
  const Instance at = execution.workload().instances()[instance];
  const OpSpec& spec = execution.workload().ops()[static_cast<std::size_t>(at.op)].spec;
  const Executed executed = execution.executed(static_cast<int>(instance));
  const Cost cost = cost_at(spec, executed);
  work_ = {};
  if (const auto* fake = dynamic_cast<const FakeExecution*>(&execution)) work_.seconds = fake->seconds(static_cast<int>(instance));
  work_.flops = (cost.flops + cost.flops_recompute).to_double();
  work_.read = cost.read.to_double();
  work_.written = cost.written.to_double();
  const bool attention = std::holds_alternative<Attention>(spec) || std::holds_alternative<AttentionBackward>(spec);
  work_.kernels = work_.read + work_.written <= 0 ? 0 : attention ? 2 : 1;
}

void FakeProfiler::open_activity() {
  if (faults_.subscribe) refuse(cuda::explain_cupti(faults_.subscribe, cuda::Stage::kSubscribe, "cuptiSubscribe_v2", facts()));
  if (faults_.activity) refuse(cuda::explain_cupti(faults_.activity, cuda::Stage::kActivity, "cuptiActivityEnable", facts()));
}

void FakeProfiler::push(std::uint64_t op, std::uint64_t pass, const char*) {
  op_ = op;
  pass_ = pass;
}

void FakeProfiler::pop() {
  cuda::PassActivity& pass = activity_.passes[pass_];
  cuda::OpActivity& op = pass.ops[op_];
  op.kernels += work_.kernels;
  activity_.kernels += work_.kernels;
  activity_.attributed += work_.kernels;
  now_ += work_.seconds + kTracePerOp;
  pass.span_seconds += work_.seconds + kTracePerOp;
  if (work_.kernels == 0) return;
  if (faults_.lose_stamps > 0 && (pass_ & 0xffffffffu) > 0) {
    --faults_.lose_stamps;
    ++op.without_time;
    ++activity_.no_stamp;
    return;
  }
  op.kernel_seconds += kBusy * work_.seconds;
  pass.busy_seconds += kBusy * work_.seconds;
  pass.sum_seconds += kBusy * work_.seconds;
}

cuda::Activity FakeProfiler::finish_activity() {
  if (faults_.silent) refuse(cuda::explain_no_records());
  activity_.dropped = faults_.drop;
  return std::move(activity_);
}

void FakeProfiler::open_counters(cuda::MetricSet set, std::size_t) {
  if (faults_.counters) refuse(cuda::explain_cupti(faults_.counters, cuda::Stage::kCounters, "cuptiRangeProfilerEnable", facts()));
  set_ = set;
  counter_passes_ = 0;
  ranges_.clear();
}

void FakeProfiler::push_range(const char* name) { range_ = name; }

void FakeProfiler::pop_range() {
  using enum cuda::Counter;
  cuda::CounterValues& values = ranges_[range_];
  values[kTime] = work_.seconds * 1e9;
  values[kDramRead] = 1.03 * work_.read;
  values[kDramWritten] = 1.01 * work_.written;
  values[kL2] = 1.5 * (1.03 * work_.read + 1.01 * work_.written);
  values[kCycles] = work_.seconds * kClock;
  values[kTensorBf16] = set_ == cuda::MetricSet::kFp32 ? 0 : kPadding * work_.flops / 2;  // one multiply-add per math op
  if (set_ == cuda::MetricSet::kFp32) values[kFfma] = kPadding * work_.flops / 2;
}

}  // namespace fathom
