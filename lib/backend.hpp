// How an op list is executed: the interface that the reference, CPU, CUDA and fake backends implement.
//
// bind() allocates the planned arena, fills weights and inputs deterministically and creates whatever is needed so that run() allocates nothing.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/fill.hpp"
#include "lib/plan.hpp"
#include "lib/profile.hpp"
#include "lib/workload.hpp"

namespace fathom {

// Whether and why not. `reason` is a full sentence fragment for messages: "unsupported: <reason>".
struct Support {
  bool ok = true;
  std::string reason;
};

// GPU: how a pass is launched. Captured graphs are replayed; what cannot be captured (an optimizer's step number) is launched op by op.
enum class GraphMode : std::uint8_t {
  kNone,     // op by op
  kWhole,    // one graph: products run at the declared rows, kernels read the real counts on the device
  kBuckets,  // a graph from selection to selection, one per bucket of rows: the host reads each count, and a block that nobody took is skipped
};

struct BindOptions {
  int threads = 0;                // 0: all cores the process may use
  std::uint64_t seed = 1;
  FillKind fill = FillKind::kTest;
  double learning_rate = 3e-4;    // optimizer constants (train)
  double clip = 1.0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double norm_epsilon = 1e-5;
  GraphMode graph = GraphMode::kNone;
  bool measured = false;          // reference work for bracketed samples will be wanted: its memory is asked for with the list's
  std::int64_t beside = 0;        // bytes that lists which are bound after this one will want: too much is refused before anything is allocated
  std::function<bool()> stop;     // asked before every op of the host backends; true: the op throws Stopped and the pass stays incomplete
};

// Thrown out of a pass that BindOptions::stop ended. Contents of the execution are then those of an incomplete pass.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped"; }
};

// Memory that a backend needs for a workload: the plan plus its own scratch (workspaces, packed weights beyond the plain size).
struct BackendMemory {
  MemoryPlan plan;
  std::int64_t scratch = 0;
  std::int64_t total() const { return plan.arena + scratch; }
};

// How often a routed block was taken. Predictions of threshold runs use the realised rate, never the declared capacity.
struct Participation {
  int layer = 0;
  float threshold = 0.0f;  // of the decision score
  double wanted = 0.0;     // the scenario's probability
  std::int64_t candidates = 0, taken = 0;
  double rate() const { return candidates > 0 ? static_cast<double>(taken) / static_cast<double>(candidates) : 0.0; }
};

enum class Placement : std::uint8_t { kUnknown, kTogether, kApart };

// One bound workload. Not thread safe; one at a time per process for timing.
class Execution {
 public:
  virtual ~Execution() = default;

  virtual const Workload& workload() const = 0;
  // The whole list, once, in program order. Allocates nothing after the first call.
  virtual void run() = 0;
  // What run() does before its first op (restores KV counts to the bound state, draws new tokens where asked). A pass op by op is
  // begin_pass() and then run_instance() of every instance once, in order.
  virtual void begin_pass() = 0;
  // One op of workload().instances(), in place, on whatever its operands hold.
  virtual void run_instance(int instance) = 0;
  // What the last run of this instance really processed.
  virtual Executed executed(int instance) const = 0;
  // Executed FLOPs including tile padding of the last run of this instance (>= the analytic count).
  virtual Flops executed_flops(int instance) const = 0;

  // Contents as f32 (integers converted), row-major, rows x cols of the tensor; for tests, traces and state hand-over.
  virtual std::vector<float> read(const TensorInstance& instance) const = 0;
  virtual void write(const TensorInstance& instance, std::span<const float> values) = 0;
  // Restores weights, optimizer state, KV cache and inputs to what bind() made.
  virtual void reset() = 0;

  virtual std::int64_t allocated_bytes() const = 0;
  // Which implementation runs this op ("brg:avx512_core_amx_bf16", "radix select, avx512"); recorded with measurements.
  virtual std::string implementation(int op) const = 0;

  // New random tokens in every later pass (decode steps differ, so that routed row counts vary as in real use).
  virtual void vary_tokens(bool) {}
  // Threshold routing: centres the decision of an untrained router so that routed rows are taken at the workload's probability.
  virtual void calibrate_participation() {}
  // One entry per routed block in program order, over the passes since bind(), calibration or the last reset.
  virtual std::vector<Participation> participation() const { return {}; }
  virtual void reset_participation() {}

  // Devices that run behind the caller keep time themselves: the host's clock would see the queue. measure() then takes an op's time as it is, in
  // place in a pass, instead of bracketing it.
  virtual bool keeps_time() const { return false; }
  // One whole pass, from its first op to its last, in the device's seconds.
  virtual double timed_run() { return 0; }
  // The same op by op: seconds of every instance.
  virtual void timed_pass(std::span<double> seconds) { static_cast<void>(seconds); }
  // Clocks, power and the like of the device now, by name.
  virtual std::map<std::string, double> device_state() { return {}; }

  // Do the cores that run the threads share their last cache, now? A guest's cores may be moved while it runs, and what one core takes from another's cache is then
  // several times as slow (lib/predict/handover.hpp). Takes some ten microseconds.
  virtual Placement placement() { return Placement::kUnknown; }

  // Same-class reference work for bracketed timing (NOTES: ABBA): runs a fixed kernel of the op's class lasting roughly `seconds`
  // and at most a few milliseconds. Classes: see reference_class.
  virtual void run_reference(int reference_class) = 0;
  // Brings the reference's operands back to where it finds them when it runs again and again: an op evicts as much of them as it moves itself, and a reference that
  // waited for its own operands would make the ops of large workloads look fast. Nothing for a reference that is meant to find its operands in memory.
  virtual void settle_reference(int) {}
  virtual int reference_class(int op) const = 0;
  virtual std::vector<std::string> reference_classes() const = 0;
  // FLOP/s of the ceiling that ops of this class are held against, probed now, in about 0.1 ms, on the execution's threads (f32: multiply-adds
  // in registers, bf16: the matrix units fed from L2). 0 where the class has none.
  virtual double probe_ceiling(int) { return 0; }
};

// One building block of a backend's kernels against what the kernels take it for.
struct SelfTest {
  std::string name;
  std::int64_t cases = 0, wrong = 0;
  double worst = 0;       // relative error; infinite where bits differ
  double tolerance = 0;   // 0: equal bits
  std::string first;      // the first one that is wrong: where, got, wanted
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;         // "cpu", "cuda", "reference", "fake"
  virtual std::string description() const = 0;       // one line for `fathom list backends`
  virtual Support available() const = 0;             // on this machine
  virtual Support supports(const OpSpec& spec) const = 0;
  virtual BackendMemory memory(const Workload& workload, const BindOptions& options) const = 0;
  // Throws Error(kEnvironment) with the number of bytes when memory does not suffice, before allocating;
  // Error(kInput) when an op is unsupported, naming the op and the reason.
  virtual std::unique_ptr<Execution> bind(const Workload& workload, const BindOptions& options) const = 0;
  // Reads kernel times and hardware counters; null where the backend has nothing to read. To be made and begun before available() is asked,
  // because that may already touch the device.
  virtual std::unique_ptr<Profiler> profiler() const { return nullptr; }
  // What a time run is timed by: "host" (its clock around synchronised work) or "events" (stamps on the device).
  virtual std::string_view timer() const { return "host"; }
  // Runs what its kernels are built of by itself; empty where nothing lies between them and the language.
  virtual std::vector<SelfTest> self_test() const { return {}; }
};

}  // namespace fathom
