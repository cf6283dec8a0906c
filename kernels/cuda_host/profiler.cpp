#include "kernels/cuda_host/profiler.hpp"

#include "lib/error.hpp"
#include "lib/measure.hpp"

namespace fathom::cuda {

void CudaProfiler::must(bool done) const {
  if (done) return;
  throw Error(message_.internal ? ErrorKind::kInternal : ErrorKind::kEnvironment, message_.message, {}, message_.cure);
}

void CudaProfiler::open_activity() {
  const ProfilerRequest request = {visible_devices_.c_str()};
  must(table_.open_activity(&request, &message_));
}

RangeObserver::RangeObserver(const Workload& workload, const ProfilerTable& table) : table_(table) {
  for (const Instance& instance : workload.instances()) paths_.push_back(workload.path(instance));
}
void RangeObserver::begin_op(int instance) { table_.range_begin(paths_[static_cast<std::size_t>(instance)].c_str()); }
void RangeObserver::end_op(int) { table_.range_end(); }

void CudaProfiler::push(std::uint64_t op, std::uint64_t pass, const char*) { must(table_.push(op, pass, &message_)); }
void CudaProfiler::pop() { must(table_.pop(&message_)); }

Activity CudaProfiler::finish_activity() {
  struct Gathered {
    Activity activity;
    std::vector<std::string>* notes;
  } gathered = {{}, &notes_};
  ProfilerSink sink;
  sink.user = &gathered;
  sink.op = [](void* user, const TracedOp* row) {
    OpActivity& op = static_cast<Gathered*>(user)->activity.passes[row->pass].ops[row->op];
    op.kernels = row->kernels, op.copies = row->copies, op.without_time = row->without_time;
    op.kernel_seconds = row->kernel_seconds, op.copy_seconds = row->copy_seconds, op.copy_bytes = row->copy_bytes;
  };
  sink.pass = [](void* user, const TracedPass* row) {
    PassActivity& pass = static_cast<Gathered*>(user)->activity.passes[row->pass];
    pass.busy_seconds = row->busy_seconds, pass.span_seconds = row->span_seconds, pass.sum_seconds = row->sum_seconds;
  };
  sink.totals = [](void* user, const TracedTotals* row) {
    Activity& a = static_cast<Gathered*>(user)->activity;
    a.kernels = row->kernels, a.copies = row->copies, a.attributed = row->attributed, a.unattributed.kernels = row->unattributed, a.outside = row->outside, a.by_graph_node = row->by_graph_node;
    a.no_stamp = row->no_stamp, a.reversed = row->reversed, a.before_launch = row->before_launch, a.failed_calls = row->failed_calls;
    a.broken_buffers = row->broken_buffers, a.cut_tails = row->cut_tails, a.dropped = row->dropped;
  };
  sink.overhead = [](void* user, const TracedOverhead* row) { static_cast<Gathered*>(user)->activity.overheads[row->kind] = {row->count, row->seconds}; };
  sink.note = [](void* user, const char* text) { static_cast<Gathered*>(user)->notes->emplace_back(text); };
  must(table_.finish_activity(&sink, &message_));
  return std::move(gathered.activity);
}

void CudaProfiler::open_counters(MetricSet set, std::size_t most_ranges) {
  const ProfilerRequest request = {visible_devices_.c_str()};
  must(table_.open_counters(&request, static_cast<std::uint8_t>(set), most_ranges, &message_));
}

void CudaProfiler::start_counter_pass() { must(table_.start_pass(&message_)); }
void CudaProfiler::push_range(const char* name) { must(table_.push_range(name, &message_)); }
void CudaProfiler::pop_range() { must(table_.pop_range(&message_)); }

bool CudaProfiler::stop_counter_pass() {
  bool more = false;
  must(table_.stop_pass(&more, &message_));
  return more;
}

std::map<std::string, CounterValues> CudaProfiler::finish_counters() {
  struct Gathered {
    std::map<std::string, CounterValues> ranges;
    std::vector<std::string>* notes;
  } gathered = {{}, &notes_};
  ProfilerSink sink;
  sink.user = &gathered;
  sink.range = [](void* user, const char* name, const std::uint8_t* counters, const double* values, std::size_t count) {
    CounterValues& row = static_cast<Gathered*>(user)->ranges[name];
    for (std::size_t i = 0; i < count; ++i)
      if (counters[i] < kCounterCount) row[static_cast<Counter>(counters[i])] = values[i];
  };
  sink.note = [](void* user, const char* text) { static_cast<Gathered*>(user)->notes->emplace_back(text); };
  must(table_.finish_counters(&sink, &message_));
  return std::move(gathered.ranges);
}

void CudaProfiler::wait() { must(table_.wait(&message_)); }
double CudaProfiler::now() { return system_clock().now(); }

}  // namespace fathom::cuda
