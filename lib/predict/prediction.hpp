// What a prediction is: seconds, an interval, what binds, and how far to trust it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/backend.hpp"
#include "lib/machine.hpp"
#include "lib/workload.hpp"

namespace fathom {

// light: a lower bound. roofline: what the ceilings allow. calibrated: the best estimate, with an interval.
enum class PredictorKind : std::uint8_t { kLight, kRoofline, kCalibrated };
std::string_view predictor_name(PredictorKind predictor);
PredictorKind parse_predictor(std::string_view text);

enum class Binding : std::uint8_t { kNothing, kCompute, kElements, kL1, kL2, kL3, kDram, kLaunch };
std::string_view binding_name(Binding binding);  // "compute", "elements" (exp, selection), "L2", "DRAM", "launch"; "nothing" runs in no time

// One op once. compute, memory and launch are the terms before they are combined (compute and memory overlap):
// roofline: seconds = launch + max(compute, memory). exposed_*() are shares that sum to seconds exactly as printed in reports.
struct Prediction {
  double seconds = 0;
  double lo = 0, hi = 0;        // interval; equal to seconds where the predictor gives none (light, roofline)
  double compute = 0;           // arithmetic units, or element work such as exp and selection
  double memory = 0;            // the slowest level
  double launch = 0;
  Binding binding = Binding::kNothing;
  Provenance provenance = Provenance::kDatasheet;
  bool out_of_range = false;    // calibrated: outside the calibrated hull; answered by physics only
  std::string note;             // why out of range, which axis, or what a class without measurements rests on; empty otherwise
};

// kAuto: decode steps are captured as graphs, prefill and training steps are launched op by op.
enum class LaunchMode : std::uint8_t { kAuto, kGraph, kEager };

struct PredictOptions {
  PredictorKind predictor = PredictorKind::kRoofline;
  int threads = 0;              // CPU: 0 = the machine's default
  // Distinct bytes touched between two ops by something else: the reference kernels of a bracketed measurement evict the inner caches.
  // 0 predicts an end-to-end pass.
  double bytes_between_ops = 0;
  bool follow_placement = true; // residency by the addresses of the memory plan; false: by tensor (sweeps: faster, no plan)
  // GPU: how kernels reach the device. A graph is one launch; eager steps follow two clocks, host and device. On a CPU a
  // step is the sum of its ops.
  LaunchMode launch = LaunchMode::kAuto;
  bool library_kernels = false; // GPU: attention backward as libraries do it; false: as our own kernels do
};

// Expected time of an op over all its uses in one pass, and its time per use.
struct OpPrediction {
  Prediction each;              // mean over its uses; expectation over the rows where they are random
  double total = 0, total_lo = 0, total_hi = 0;   // seconds of all uses in one pass
  std::int64_t uses = 0;
};

struct StepPrediction {
  PredictorKind predictor = PredictorKind::kRoofline;
  std::string workload;         // fingerprint
  std::string machine;          // name
  std::string machine_hash;
  int threads = 0;
  Placement placement = Placement::kUnknown;  // of the cores, as the machine has them (lib/predict/handover.hpp)
  PerOp<OpPrediction> ops;
  double seconds = 0;           // expectation; for light the bound of the whole step (may exceed the sum of the ops' bounds)
  double lo = 0, hi = 0;
  double overhead = 0;          // of launching the step, beyond its ops: part of seconds and of launch
  // Parts by what binds each op; they sum to `seconds` (light: to the sum of the ops' bounds).
  double compute = 0, memory = 0, launch = 0;
  double p50 = 0, p95 = 0, p99 = 0;   // of the step over random rows; all equal to seconds when nothing is random
  Provenance provenance = Provenance::kDatasheet;
  int out_of_range = 0;         // ops answered outside the calibrated range

  double sum_of_ops(const Workload& w) const;
};

// Pure: reads no clock. Throws Error(kInput) when the machine lacks a figure that an op needs, or an op has no model.
StepPrediction predict(const Workload& workload, const Machine& machine, const PredictOptions& options = {});

// A routed network against its dense twin. realised = (1 - time ratio) / (1 - FLOP ratio); a status where no FLOPs are saved.
struct PairRatio {
  double flops_ratio = 1;
  double time_ratio = 1;
  double realised = 0;          // valid iff status is empty
  std::string status;           // "no FLOPs saved"
};
PairRatio pair_ratio(double flops, double base_flops, double seconds, double base_seconds);

}  // namespace fathom
