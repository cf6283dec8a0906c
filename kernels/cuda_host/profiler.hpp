// The profiler of the CUDA backend: drives op lists (kernels/pass_profiler.hpp) over the module's table (kernels/cuda/profiler_table.hpp).
#pragma once

#include "kernels/cuda/profiler_table.hpp"
#include "kernels/cuda_host/execution.hpp"
#include "kernels/pass_profiler.hpp"

namespace fathom::cuda {

// NVTX ranges with the paths of ops, in every run: without a vendor tool attached they cost a test per op.
class RangeObserver : public PassWatcher {
 public:
  RangeObserver(const Workload& workload, const ProfilerTable& table);
  void begin_op(int instance) override;
  void end_op(int instance) override;

 private:
  const ProfilerTable& table_;
  std::vector<std::string> paths_;
};

class CudaProfiler : public PassProfiler {
 public:
  // `table` must live as long; `visible_devices` is the user's CUDA_VISIBLE_DEVICES, for messages.
  CudaProfiler(const ProfilerTable& table, std::string visible_devices) : table_(table), visible_devices_(std::move(visible_devices)) {}

 protected:
  void open_activity() override;
  void push(std::uint64_t op, std::uint64_t pass, const char* path) override;
  void pop() override;
  Activity finish_activity() override;
  void open_counters(MetricSet set, std::size_t most_ranges) override;
  void start_counter_pass() override;
  void push_range(const char* name) override;
  void pop_range() override;
  bool stop_counter_pass() override;
  std::map<std::string, CounterValues> finish_counters() override;
  std::string chip() const override { return table_.chip(); }
  std::vector<std::string> take_notes() override { return std::exchange(notes_, {}); }
  void wait() override;
  double now() override;

 private:
  void must(bool done) const;  // throws Error(kEnvironment), or kInternal where the mistake is ours

  const ProfilerTable& table_;
  std::string visible_devices_;
  mutable ProfilerMessage message_;
  std::vector<std::string> notes_;
};

}  // namespace fathom::cuda
