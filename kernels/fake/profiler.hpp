// A profiler of a GPU that does not exist, for the fake backend: every figure follows from the counts and the virtual clock, and it can be told
// to fail as CUPTI fails, so that the ladder, the child processes and the reports are tested without a device.
//
// One kernel per op (two for attention, none for an op without rows) that fills 0.9 of the op's time; tracing adds 0.2 us per op; DRAM traffic
// is the counted bytes with 3 % more read and 1 % more written; L2 traffic 1.5 times that; products run with 1/16 of padding at 1.5 GHz.
#pragma once

#include <map>
#include <string>

#include "kernels/cuda/cupti_messages.hpp"
#include "kernels/pass_profiler.hpp"

namespace fathom {

// Where the fake fails, and with which CUPTI code; 0: nowhere.
struct FakeFaults {
  int subscribe = 0, activity = 0, counters = 0;
  std::int64_t lose_stamps = 0;   // so many kernels carry no time
  std::uint64_t drop = 0;         // so many records are lost
  bool silent = false;            // no record at all
};
// "subscribe=39", "counters=35,stamps=2", "drop=7", "silent=1". Throws Error(kInput) for anything else.
FakeFaults parse_faults(const std::string& text);

class FakeProfiler : public PassProfiler {
 public:
  explicit FakeProfiler(FakeFaults faults) : faults_(faults) {}

 protected:
  void open_activity() override;
  void push(std::uint64_t op, std::uint64_t pass, const char* path) override;
  void pop() override;
  cuda::Activity finish_activity() override;
  void open_counters(cuda::MetricSet set, std::size_t most_ranges) override;
  void start_counter_pass() override {}
  void push_range(const char* name) override;
  void pop_range() override;
  bool stop_counter_pass() override { return ++counter_passes_ < cuda::expected_passes(chip(), set_); }
  std::map<std::string, cuda::CounterValues> finish_counters() override { return std::move(ranges_); }
  std::string chip() const override { return "GH100"; }
  std::vector<std::string> take_notes() override { return {}; }
  void wait() override {}
  double now() override { return now_; }
  void running(const Execution& execution, std::size_t instance) override;

 private:
  struct Work {  // of the instance that is about to run
    double seconds = 0, flops = 0, read = 0, written = 0;
    int kernels = 0;
  };
  FakeFaults faults_;
  cuda::MetricSet set_ = cuda::MetricSet::kStandard;
  Work work_;
  std::uint64_t op_ = 0, pass_ = 0;
  std::string range_;
  double now_ = 0;
  int counter_passes_ = 0;
  cuda::Activity activity_;
  std::map<std::string, cuda::CounterValues> ranges_;
};

}  // namespace fathom
