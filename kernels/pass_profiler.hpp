// Profiling of op lists, shared by the CUDA backend and the fake: which id every op gets, how passes are driven, and how what was traced or
// counted becomes figures per op. The hooks below are all that differs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/cupti_decode.hpp"
#include "kernels/cuda/cupti_metrics.hpp"
#include "lib/backend.hpp"
#include "lib/profile.hpp"

namespace fathom {

class PassProfiler : public Profiler {
 public:
  void begin(ProfilePass pass) override;
  void record(Execution& execution, int passes) override;
  std::vector<Profile> finish() override;

  // Ids that go to the tracer: workload in the upper half, instance or pass in the lower. Pass 0 is a warm-up.
  static std::uint64_t id_of(std::size_t workload, std::size_t lower) { return static_cast<std::uint64_t>(workload) << 32 | lower; }
  static constexpr std::size_t kLaunch = 0xffffffffu;  // in an instance's place: the launch of a captured graph
  // Names of counter ranges: the op's path for people and the instance for us, "layers.07/mlp/up#153".
  static std::string range_name(const std::string& path, std::size_t instance);
  // The instance of a range name; -1 where it is none of ours.
  static std::int64_t instance_of_range(const std::string& name);

 protected:
  // Throw Error(kEnvironment) when it cannot be done.
  virtual void open_activity() = 0;
  virtual void push(std::uint64_t op, std::uint64_t pass, const char* path) = 0;
  virtual void pop() = 0;
  virtual cuda::Activity finish_activity() = 0;
  virtual void open_counters(cuda::MetricSet set, std::size_t most_ranges) = 0;  // once per workload
  virtual void start_counter_pass() = 0;
  virtual void push_range(const char* name) = 0;
  virtual void pop_range() = 0;
  virtual bool stop_counter_pass() = 0;  // true: the same work must run again
  virtual std::map<std::string, cuda::CounterValues> finish_counters() = 0;
  virtual std::string chip() const = 0;
  virtual std::vector<std::string> take_notes() = 0;
  virtual void wait() = 0;               // until the device is idle
  virtual double now() = 0;              // host clock, seconds
  // Called before an instance is run: the fake learns what it pretends to trace.
  virtual void running(const Execution&, std::size_t /*instance*/) {}

 private:
  struct Recorded {
    Profile profile;
    std::vector<int> ops;                // op per instance
    std::vector<double> step_seconds;
  };
  void record_activity(Execution& execution, Recorded& recorded, int passes);
  void record_counters(Execution& execution, Recorded& recorded);
  void count(const Execution& execution, Recorded& recorded);
  void add_activity(const cuda::Activity& activity);

  enum class State : std::uint8_t { kNew, kBegun, kFinished };
  State state_ = State::kNew;
  ProfilePass pass_ = ProfilePass::kActivity;
  std::vector<Recorded> recorded_;
};

}  // namespace fathom
