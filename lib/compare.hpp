// Predicted against measured: per op, per step, and for a routed network against its dense twin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/measure.hpp"
#include "lib/predict/prediction.hpp"

namespace fathom {

enum class Verdict : std::uint8_t { kWithin, kFast, kSlow, kFasterThanLight, kNoisy, kTooShort, kOutOfRange, kSkipped };
std::string_view verdict_name(Verdict verdict);  // "within", "fast" (measured below the interval), "slow", "faster-than-light", ...

struct CompareOptions {
  double tolerance = 0.10;      // only where a prediction has no interval
  double noise_target = 0.08;   // class target; an op is noisy iff its A/A spread exceeds half of it
  double step_target = 0.05;
  // Measured below light by less than this share is noise of the clock, not a broken law (added to the A/A spread).
  double light_slack = 0.0;
};

struct OpComparison {
  double predicted = 0, lo = 0, hi = 0;   // seconds, all uses of a pass
  double light = 0;
  double measured = 0;          // normalised, all uses
  double measured_raw = 0;      // raw median x uses
  double ratio = 0;             // measured / predicted; 0 where not measured
  double error = 0;             // (predicted - measured) / measured
  bool hit = false;             // measured lies in the interval
  double noise = 0;
  Verdict verdict = Verdict::kSkipped;
  std::string reason;           // of skipped, too-short, noisy, out-of-range
};

// One step against one kind of measured time.
struct StepComparison {
  double predicted = 0, lo = 0, hi = 0, light = 0;
  double measured = 0;
  double ratio = 0, error = 0;
  bool hit = false;
  double noise = 0;
  Verdict verdict = Verdict::kSkipped;
  std::string reason;
};

struct Comparison {
  std::string workload;
  PerOp<OpComparison> ops;
  StepComparison raw;           // end-to-end pass against the prediction of an end-to-end pass
  StepComparison normalised;    // sum of bracketed ops against the prediction with references between the ops
  int graded = 0, dropped = 0;  // ops with an error; ops without (noisy, too-short, skipped)
  double mape = 0, median_error = 0;      // over graded ops: mean and median of |error|
  double weighted_error = 0;    // sum |predicted - measured| / sum measured, graded ops
  double hit_share = 0;
};

// `bracketed` is predicted with bytes_between_ops set, `raw` without; both by the same predictor. `light` bounds both.
// Throws Error(kInternal) when the parts belong to different workloads.
Comparison compare(const Workload& workload, const StepPrediction& bracketed, const StepPrediction& raw, const StepPrediction& light,
                   const Measurement& measurement, const CompareOptions& options = {});

// The pair's ratios, three times over: FLOPs, predicted time, measured time; and the fraction of the FLOP saving that became time.
struct PairComparison {
  double flops_ratio = 1;
  PairRatio predicted, measured_raw, measured;   // measured: normalised
  double noise = 0;             // of the measured ratio: both A/A spreads in quadrature
};
PairComparison compare_pair(const Workload& routed, const Comparison& routed_result, const Workload& dense, const Comparison& dense_result);

}  // namespace fathom
