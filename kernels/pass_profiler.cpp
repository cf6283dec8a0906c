#include "kernels/pass_profiler.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "kernels/watched.hpp"
#include "lib/error.hpp"
#include "lib/measure.hpp"

namespace fathom {
namespace {

double median(std::vector<double> values) {
  Samples samples;
  samples.values = std::move(values);
  return samples.median();
}

// The library gives NaN for what it could not evaluate; no such value reaches a report.
bool usable(double value) { return std::isfinite(value) && value >= 0; }

// FLOP by counters, 2 per multiply-add; negative where the chip counts neither.
double flops_of(const cuda::CounterValues& values, int flops_per_math_op) {
  using enum cuda::Counter;
  double sum = 0;
  bool any = false, broken = false;  // a part that is missing makes the sum a wrong one
  const auto add = [&](cuda::Counter counter, double factor) {
    const auto found = values.find(counter);
    if (found == values.end() || factor == 0) return;
    broken = broken || !usable(found->second);
    sum += factor * found->second;
    any = true;
  };
  add(kTensorBf16, flops_per_math_op);
  add(kTensorTf32, flops_per_math_op);
  add(kFfma, 2), add(kFadd, 1), add(kFmul, 1);
  add(kFfma2, 4), add(kFadd2, 2), add(kFmul2, 2);  // packed: two lanes per instruction
  return any && !broken ? sum : -1;
}

// Whether the list's largest product is one of f32 operands: those run on the fp32 units (or as tf32), not through bf16 tensor ops.
bool multiplies_f32(const Workload& workload) {
  double largest = -1;
  bool f32 = false;
  for (const Op& op : workload.ops()) {
    const auto* gemm = std::get_if<Gemm>(&op.spec);
    const double flops = gemm ? declared_cost(op.spec).flops.to_double() : -1;
    if (flops <= largest) continue;
    largest = flops;
    f32 = gemm->act == DType::kF32;
  }
  return f32;
}

double value_of(const cuda::CounterValues& values, cuda::Counter counter) {
  const auto found = values.find(counter);
  return found == values.end() || !usable(found->second) ? -1 : found->second;
}

// Correlation ids around what a pass queues. A launched graph has one that is no op's: its kernels are joined by node.
class Marks : public PassWatcher {
 public:
  Marks(std::function<void(std::size_t)> push, std::function<void()> pop) : push_(std::move(push)), pop_(std::move(pop)) {}
  void begin_op(int instance) override { push_(static_cast<std::size_t>(instance)); }
  void end_op(int) override { pop_(); }
  void begin_launch() override { push_(PassProfiler::kLaunch); }
  void end_launch() override { pop_(); }

 private:
  std::function<void(std::size_t)> push_;
  std::function<void()> pop_;
};

void add_to(double& sum, double value) {
  if (value >= 0) sum = std::max(sum, 0.0) + value;
}

}  // namespace

std::string PassProfiler::range_name(const std::string& path, std::size_t instance) { return path + "#" + std::to_string(instance); }

std::int64_t PassProfiler::instance_of_range(const std::string& name) {
  const std::size_t at = name.rfind('#');
  if (at == std::string::npos) return -1;
  std::int64_t value = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at + 1, end, value);
  return error == std::errc() && stop == end ? value : -1;
}

void PassProfiler::begin(ProfilePass pass) {
  if (state_ != State::kNew) throw_internal("a profiler is begun once");
  state_ = State::kBegun;
  pass_ = pass;
  if (pass == ProfilePass::kActivity) open_activity();
}

void PassProfiler::record(Execution& execution, int passes) {
  if (state_ != State::kBegun) throw_internal("a profiler records between begin and finish");
  Recorded recorded;
  const Workload& workload = execution.workload();
  recorded.profile.workload = workload.fingerprint();
  recorded.profile.ops = PerOp<OpProfile>(workload);
  for (const Instance& instance : workload.instances()) recorded.ops.push_back(instance.op);
  if (pass_ == ProfilePass::kActivity)
    record_activity(execution, recorded, std::max(1, passes));
  else
    record_counters(execution, recorded);
  count(execution, recorded);
  recorded_.push_back(std::move(recorded));
}

void PassProfiler::record_activity(Execution& execution, Recorded& recorded, int passes) {
  const std::size_t index = recorded_.size();
  std::vector<std::string> paths;
  for (const Instance& instance : execution.workload().instances()) paths.push_back(execution.workload().path(instance));
  for (int pass = 0; pass <= passes; ++pass) {
    wait();
    const double begin = now();
    const std::uint64_t pass_id = id_of(index, static_cast<std::size_t>(pass));
    if (auto* watched = dynamic_cast<WatchedExecution*>(&execution)) {
      Marks marks([&](std::size_t i) { push(id_of(index, i), pass_id, i < paths.size() ? paths[i].c_str() : "graph"); }, [&] { pop(); });
      watched->run_watched(marks);
    } else {
      execution.begin_pass();
      for (std::size_t i = 0; i < recorded.ops.size(); ++i) {
        running(execution, i);
        push(id_of(index, i), pass_id, paths[i].c_str());
        execution.run_instance(static_cast<int>(i));
        pop();
      }
    }
    wait();
    if (pass > 0) recorded.step_seconds.push_back(now() - begin);
  }
  recorded.profile.passes = passes;
  recorded.profile.step_seconds = median(recorded.step_seconds);
}

void PassProfiler::record_counters(Execution& execution, Recorded& recorded) {
  execution.run();  // everything loaded and warmed before the counters are armed
  wait();
  const bool f32 = multiplies_f32(execution.workload());
  open_counters(f32 ? cuda::MetricSet::kFp32 : cuda::MetricSet::kStandard, recorded.ops.size());
  std::vector<std::string> names;
  const std::vector<Instance> instances = execution.workload().instances();
  for (std::size_t i = 0; i < instances.size(); ++i) names.push_back(range_name(execution.workload().path(instances[i]), i));
  Profile& profile = recorded.profile;
  do {
    start_counter_pass();
    execution.begin_pass();
    for (std::size_t i = 0; i < recorded.ops.size(); ++i) {
      running(execution, i);
      push_range(names[i].c_str());
      execution.run_instance(static_cast<int>(i));
      pop_range();
    }
    wait();
    ++profile.counter_passes;
  } while (stop_counter_pass());
  const std::map<std::string, cuda::CounterValues> ranges = finish_counters();
  profile.chip = chip();
  profile.passes = 1;

  // One operation or one multiply-add per math op: the largest bf16 product tells, and only then are tensor operations FLOP.
  double largest = 0;
  for (const auto& [name, values] : ranges) {
    const std::int64_t i = instance_of_range(name);
    if (i < 0 || i >= static_cast<std::int64_t>(recorded.ops.size())) continue;
    const Op& op = execution.workload().ops()[static_cast<std::size_t>(recorded.ops[static_cast<std::size_t>(i)])];
    const double flops = cost_at(op.spec, execution.executed(static_cast<int>(i))).flops.to_double();
    if (!std::holds_alternative<Gemm>(op.spec) || flops <= largest) continue;
    const double counted = value_of(values, f32 ? cuda::Counter::kTensorTf32 : cuda::Counter::kTensorBf16);
    if (!(counted > 0)) continue;
    largest = flops;
    profile.flops_per_math_op = cuda::flops_per_math_op(counted, flops / 2);
  }
  std::int64_t strangers = 0, finite = 0;
  std::map<cuda::Counter, std::int64_t> unusable;
  for (const auto& [name, values] : ranges) {
    const std::int64_t i = instance_of_range(name);
    if (i < 0 || i >= static_cast<std::int64_t>(recorded.ops.size())) {
      ++strangers;
      continue;
    }
    for (const auto& [counter, value] : values) usable(value) ? ++finite : ++unusable[counter];
    OpProfile& op = profile.ops[recorded.ops[static_cast<std::size_t>(i)]];
    const double time = value_of(values, cuda::Counter::kTime);
    add_to(op.counter_seconds, time < 0 ? -1 : time * 1e-9);
    add_to(op.dram_read, value_of(values, cuda::Counter::kDramRead));
    add_to(op.dram_written, value_of(values, cuda::Counter::kDramWritten));
    add_to(op.l2_bytes, value_of(values, cuda::Counter::kL2));
    add_to(op.cycles, value_of(values, cuda::Counter::kCycles));
    add_to(op.flops, flops_of(values, profile.flops_per_math_op));
  }
  if (!recorded.ops.empty() && finite == 0) throw Error(ErrorKind::kEnvironment, "the range profiler returned no value of any counter; kernel times still work");
  for (const auto& [counter, count] : unusable)
    profile.notes.push_back("no value of counter '" + std::string(cuda::counter_meaning(counter)) + "' in " + std::to_string(count) + " of " + std::to_string(ranges.size()) + " ranges");
  if (strangers > 0) profile.notes.push_back(std::to_string(strangers) + " counter ranges belong to no op");
  if (ranges.size() - static_cast<std::size_t>(strangers) != recorded.ops.size())
    profile.notes.push_back(std::to_string(recorded.ops.size()) + " ops ran, but counters were returned for " + std::to_string(ranges.size() - static_cast<std::size_t>(strangers)));
  if (largest > 0 && profile.flops_per_math_op == 0)
    profile.notes.push_back("the largest product counts neither one nor two operations per multiply-add: tensor operations are not shown as FLOP");
  for (const cuda::Counter counter : cuda::missing_on(profile.chip, f32 ? cuda::MetricSet::kFp32 : cuda::MetricSet::kStandard))
    if (counter == cuda::Counter::kDramRead || counter == cuda::Counter::kDramWritten || counter == cuda::Counter::kL2 || counter == cuda::Counter::kTensorBf16)
      profile.notes.push_back(std::string(cuda::counter_meaning(counter)) + " are not counted on chip " + profile.chip);
  for (std::string& note : take_notes()) profile.notes.push_back(std::move(note));
}

void PassProfiler::count(const Execution& execution, Recorded& recorded) {
  for (std::size_t i = 0; i < recorded.ops.size(); ++i) {
    const Op& op = execution.workload().ops()[static_cast<std::size_t>(recorded.ops[i])];
    const Cost cost = cost_at(op.spec, execution.executed(static_cast<int>(i)));
    OpProfile& row = recorded.profile.ops[recorded.ops[i]];
    row.counted_flops += (cost.flops + cost.flops_recompute).to_double();
    row.counted_read += cost.read.to_double();
    row.counted_written += cost.written.to_double();
  }
}

void PassProfiler::add_activity(const cuda::Activity& activity) {
  for (std::size_t w = 0; w < recorded_.size(); ++w) {
    Profile& profile = recorded_[w].profile;
    std::vector<double> busy, span;
    // Per op and pass: sums over its instances, so that the median is of whole passes.
    std::map<int, std::vector<double>> seconds;
    std::map<int, std::int64_t> kernels, copies;
    std::map<int, double> bytes;
    for (int pass = 1; pass <= profile.passes; ++pass) {
      const auto found = activity.passes.find(id_of(w, static_cast<std::size_t>(pass)));
      if (found == activity.passes.end()) continue;
      busy.push_back(found->second.busy_seconds);
      span.push_back(found->second.span_seconds);
      std::map<int, double> sum;
      for (const auto& [id, op] : found->second.ops) {
        const std::size_t instance = static_cast<std::size_t>(id & 0xffffffffu);
        if (id >> 32 != w || instance >= recorded_[w].ops.size()) continue;
        const int at = recorded_[w].ops[instance];
        sum[at] += op.kernel_seconds;
        kernels[at] += op.kernels;
        copies[at] += op.copies;
        bytes[at] += static_cast<double>(op.copy_bytes);
        profile.ops[at].without_time += op.without_time;
        profile.kernels += op.kernels;
        profile.attributed += op.kernels;
      }
      for (const auto& [at, total] : sum) seconds[at].push_back(total);
    }
    for (auto& [at, list] : seconds) {
      OpProfile& op = profile.ops[at];
      op.kernels = (kernels[at] + profile.passes / 2) / profile.passes;
      op.copy_bytes = bytes[at] / profile.passes;
      if (op.without_time > 0)
        op.reason = std::to_string(op.without_time) + " of " + std::to_string(kernels[at] + copies[at]) + " kernels and copies carry no time";
      else
        op.kernel_seconds = median(std::move(list));
    }
    for (int at = 0; at < static_cast<int>(profile.ops.size()); ++at)
      if (profile.ops[at].kernels < 0) profile.ops[at].kernels = 0;  // traced, and launched nothing
    profile.busy_seconds = busy.empty() ? -1 : median(busy);
    profile.span_seconds = span.empty() ? -1 : median(span);
  }
}

std::vector<Profile> PassProfiler::finish() {
  if (state_ != State::kBegun) throw_internal("a profiler is finished once");
  state_ = State::kFinished;
  if (pass_ == ProfilePass::kActivity) {
    const cuda::Activity activity = finish_activity();
    add_activity(activity);
    std::vector<std::string> notes = cuda::trouble(activity);
    for (std::string& note : take_notes()) notes.push_back(std::move(note));
    if (!recorded_.empty()) recorded_.front().profile.notes.insert(recorded_.front().profile.notes.end(), notes.begin(), notes.end());
  }
  std::vector<Profile> profiles;
  for (Recorded& each : recorded_) profiles.push_back(std::move(each.profile));
  return profiles;
}

}  // namespace fathom
