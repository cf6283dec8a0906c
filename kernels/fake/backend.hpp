// The fake backend: the shape of an execution without its arithmetic, on a virtual clock, so that the whole output of every command can
// be compared with a stored one on any machine.
//
// Rows of routed blocks are the expectation rounded half up, so a run still reports executed numbers that differ from the declared ones.
#pragma once

#include <map>

#include "lib/backend.hpp"

namespace fathom {

class FakeExecution : public Execution {
 public:
  FakeExecution(std::shared_ptr<const Workload> workload, std::int64_t bytes);

  // Seconds that each instance of workload().instances() takes from now on; throws an internal Error on another number of them.
  // Before it is called every instance takes kDefaultSeconds.
  void set_times(std::vector<double> seconds_per_instance);
  // Seconds that run_reference takes: one value for every class.
  void set_reference_time(double seconds) { reference_seconds_ = seconds; }
  // The virtual clock, in seconds since bind().
  double virtual_now() const { return now_; }
  double seconds(int instance) const { return seconds_.at(static_cast<size_t>(instance)); }

  const Workload& workload() const override { return *workload_; }
  void run() override;
  void begin_pass() override {}
  void run_instance(int instance) override;
  Executed executed(int instance) const override { return executed_.at(static_cast<size_t>(instance)); }
  Flops executed_flops(int instance) const override;
  std::vector<float> read(const TensorInstance& instance) const override;  // what was written, else zeros
  void write(const TensorInstance& instance, std::span<const float> values) override;
  void reset() override { written_.clear(); }
  std::int64_t allocated_bytes() const override { return bytes_; }
  std::string implementation(int) const override { return "fake"; }
  void run_reference(int) override { now_ += reference_seconds_; }
  int reference_class(int) const override { return 0; }
  std::vector<std::string> reference_classes() const override { return {"virtual"}; }

  static constexpr double kDefaultSeconds = 1e-6;

 private:
  std::shared_ptr<const Workload> workload_;
  std::int64_t bytes_ = 0;
  std::vector<Instance> instances_;
  std::vector<Executed> executed_;
  std::vector<double> seconds_;
  std::map<TensorInstance, std::vector<float>> written_;
  double reference_seconds_ = 1e-3;
  double now_ = 0;
};

class FakeBackend : public Backend {
 public:
  std::string_view name() const override { return "fake"; }
  std::string description() const override { return "computes nothing and takes the time it is told; for tests of reports and commands"; }
  Support available() const override { return {}; }
  Support supports(const OpSpec&) const override { return {}; }
  BackendMemory memory(const Workload& workload, const BindOptions&) const override { return {plan_memory(workload), 0}; }
  std::unique_ptr<Execution> bind(const Workload& workload, const BindOptions& options) const override;
  std::unique_ptr<Profiler> profiler() const override;  // without faults (kernels/fake/profiler.hpp)
  std::string_view timer() const override { return "events"; }  // plays a device
};

// The size that a routed op executes on the fake backend.
Executed rounded_expectation(const OpSpec& spec);

}  // namespace fathom
