// Executions whose times are scripted, on a machine that may drift: what measures and compares is tested without a real clock.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lib/measure.hpp"

namespace fathom::testing {

// A machine whose speed drifts: everything takes `speed(now)` times as long, ops and references alike. One virtual clock for all.
struct World {
  double now = 0;
  double (*speed)(double) = [](double) { return 1.0; };
  void spend(double seconds) { now += seconds * speed(now); }
};

class WorldClock : public Clock {
 public:
  explicit WorldClock(World& world) : world_(world) {}
  double now() override { return world_.now; }

 private:
  World& world_;
};

class ScriptedExecution : public Execution {
 public:
  ScriptedExecution(const Workload& w, World& world, double op_seconds, std::vector<int>& log, int id)
      : w_(w), world_(world), seconds_(op_seconds), log_(log), id_(id), count_(static_cast<int>(w.instances().size())) {}
  const Workload& workload() const override { return w_; }
  void run() override {
    log_.push_back(id_);
    begin_pass();
    for (int i = 0; i < count_; ++i) run_instance(i);
  }
  void begin_pass() override { ++passes; }
  void run_instance(int) override {
    if (stop_at > 0 && world_.now >= stop_at) throw Stopped();
    ++runs;
    world_.spend(seconds_);
  }
  Executed executed(int) const override { return {4, 0, 0, 0}; }
  Flops executed_flops(int) const override { return Flops(64); }
  std::vector<float> read(const TensorInstance&) const override { return {}; }
  void write(const TensorInstance&, std::span<const float>) override {}
  void reset() override {}
  std::int64_t allocated_bytes() const override { return 0; }
  std::string implementation(int) const override { return "scripted"; }
  void run_reference(int) override {
    ++references;
    world_.spend(1e-4);
  }
  int reference_class(int) const override { return 0; }
  std::vector<std::string> reference_classes() const override { return {"product"}; }

  // A ceiling that slows with the machine as everything else does; probing it takes 50 us.
  double probe_ceiling(int) override {
    if (ceiling <= 0) return 0;
    ++probes;
    const double rate = ceiling / world_.speed(world_.now);
    world_.spend(5e-5);
    return rate;
  }

  int passes = 0, runs = 0, references = 0, probes = 0;
  double ceiling = 0;
  double stop_at = 0;  // seconds; 0: never
  World& world() { return world_; }

 private:
  const Workload& w_;
  World& world_;
  double seconds_;
  std::vector<int>& log_;
  int id_;
  int count_;
};

}  // namespace fathom::testing
