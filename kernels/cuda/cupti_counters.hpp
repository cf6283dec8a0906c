// The counter session: hardware counters per op through the range profiler, host half and target half.
//
// Ranges are pushed by us around every op, and the whole list is run again for every pass (user range, user replay): so what runs must give
// the same work each time. Times of such a run are never compared with predictions; other contexts' traffic is counted in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/cupti_activity.hpp"
#include "kernels/cuda/cupti_metrics.hpp"

namespace fathom::cuda {

class CounterSession {
 public:
  // `set` with chip-dependent names; at most `most_ranges` ranges in one pass.
  CounterSession(CuptiApi& api, const DeviceCalls& device, ProfilerFacts facts, MetricSet set, std::size_t most_ranges);
  ~CounterSession();
  CounterSession(const CounterSession&) = delete;
  CounterSession& operator=(const CounterSession&) = delete;

  // All of these return false after a failure. open() needs no context, it makes the primary one current.
  bool open();
  bool start_pass();
  bool push(const char* range);
  bool pop();
  bool stop_pass(bool& more);    // more: the same work must run once again
  // Values by range name; ranges of the same name are refused by open()'s caller, not here.
  bool finish(std::map<std::string, CounterValues>& ranges);

  SessionState state() const { return state_; }
  const Finding& finding() const { return finding_; }
  const std::string& chip() const { return facts_.chip; }
  int passes() const { return passes_; }
  const std::vector<Metric>& metrics() const { return metrics_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  bool check(int code, const char* call);
  bool fail(Finding finding);
  bool refuse();
  bool open_device();
  bool open_host();
  bool open_target();
  void close();

  CuptiApi& api_;
  const DeviceCalls& device_;
  ProfilerFacts facts_;
  MetricSet set_;
  std::size_t most_ranges_;
  SessionState state_ = SessionState::kNew;
  Finding finding_;
  std::vector<std::string> notes_;
  std::vector<Metric> metrics_;
  std::vector<const char*> names_;
  std::vector<std::uint8_t> availability_, config_, data_;
  CUcontext context_ = nullptr;
  int cu_device_ = 0, ordinal_ = 0;
  int passes_ = 0, passes_run_ = 0;
  bool initialized_ = false, in_pass_ = false, in_range_ = false, all_submitted_ = false;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUpti_RangeProfiler_Object* target_ = nullptr;
};

}  // namespace fathom::cuda
