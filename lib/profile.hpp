// What a profiler saw of each op: kernels and their time (activity), bytes and operations by hardware counters (counters).
//
// Time, activity and counters are three kinds of run that never share a process: the time run knows no profiler, the activity run pays for
// tracing, the counter run repeats its work. tools/ joins them by workload and op. A figure that was not obtained is negative and never zero.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/workload.hpp"

namespace fathom {

class Execution;

enum class ProfilePass : std::uint8_t { kActivity, kCounters };

// One op, all its uses in one pass of the list.
struct OpProfile {
  // activity
  std::int64_t kernels = -1;         // launched in one pass
  double kernel_seconds = -1;        // median over passes of the sum of its kernels
  double copy_bytes = -1;            // copies and fills inside the op
  std::int64_t without_time = 0;     // kernels and copies, over all passes, that carry no usable time
  // counters
  double counter_seconds = -1;       // under the counters; not comparable with predictions
  double dram_read = -1, dram_written = -1, l2_bytes = -1;
  double flops = -1;                 // tensor operations and fp32 instructions as FLOP, 2 per multiply-add
  double cycles = -1;                // SM cycles elapsed
  // what the counted rows that really ran need: the other side of the comparison
  double counted_flops = 0, counted_read = 0, counted_written = 0;
  std::string reason;                // why a figure is missing; may be empty
};

struct Profile {
  PerOp<OpProfile> ops;
  std::string workload;              // fingerprint
  int passes = 0;                    // recorded passes of the list
  // activity; medians over passes
  double step_seconds = -1;          // a traced pass by the host clock, from the first launch to the end of the last kernel
  double busy_seconds = -1;          // union of all intervals on the device
  double span_seconds = -1;          // first kernel's start to last kernel's end
  std::int64_t kernels = 0, attributed = 0;  // over all recorded passes
  // counters
  std::string chip;
  int flops_per_math_op = 0;         // 1 or 2, calibrated on this workload's largest product; 0: could not be told
  int counter_passes = 0;            // runs of the work that the counters needed
  std::vector<std::string> notes;
};

// One per process and kind of pass. Throws Error(kEnvironment) with message and cure where it is not possible, and refuses further use then.
class Profiler {
 public:
  virtual ~Profiler() = default;
  // Before anything is bound: tracing must be on before the device's context exists.
  virtual void begin(ProfilePass pass) = 0;
  // Runs the list `passes` times (activity; the first of them on top as warm-up) or as often as the counters need, op by op.
  virtual void record(Execution& execution, int passes) = 0;
  // One profile per record(), in order. Nothing can be recorded afterwards.
  virtual std::vector<Profile> finish() = 0;
};

}  // namespace fathom
