// How a bound workload is timed: raw end-to-end passes, and every op in place between two runs of a same-class reference.
//
//
// A shared machine drifts by tens of per cent within seconds. A raw median measures that drift; the ratio of an op to a reference
// kernel of its own class that ran just before and just after, on operands that are in their caches again, does not. So an op's time is median(t / r) times the nominal
// reference time (p25 of all reference samples of that class), and raw figures stand beside it. Several workloads are measured
// together, their passes interleaved, so that a pair is compared under the same weather.
//
// The fraction of a ceiling is taken in the same weather too: where a backend can probe the ceiling of a class, the probe runs now and then
// right before a reference, r x rate is the work that the ceiling would have done meanwhile, and t / r times it that of an op.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/backend.hpp"

namespace fathom {

// Seconds since some fixed moment. The fake backend's clock advances by predicted times, so its results are exact.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() = 0;
};
// The system's monotonic clock.
Clock& system_clock();

// Facts about the machine around a measurement, by name: probes ("state_flops"), "foreign_cpu", "steal". Implemented where the
// operating system may be asked (kernels/cpu, tools).
class MachineObserver {
 public:
  virtual ~MachineObserver() = default;
  // Figures since the previous call (foreign CPU use, steal) or now (probes).
  virtual std::map<std::string, double> observe() = 0;
};

struct MeasureProgress {
  double seconds = 0;   // elapsed
  double share = 0;     // 0 to 1 of the estimated whole
  int round = 0;
  std::string stage;    // "warm-up", "end to end", "op by op"
  std::vector<double> so_far;  // per execution: median of its end-to-end passes up to now, seconds; empty before the first
};

struct MeasureOptions {
  double seconds = 20;           // budget for everything, met to half a round; the first rounds run whatever it says
  int min_rounds = 5;            // of raw passes, and of bracketed passes
  int max_rounds = 200;
  int warmup = 1;                // passes that are discarded
  double target_spread = 0.01;   // stop when the A/A spread of every step is below this (and min_rounds are done)
  bool bracketed = true;         // false: only raw end-to-end passes
  double raw_share = 0.3;        // of the budget for end-to-end passes; 0: none
  double too_short = 20e-6;      // below: batched where legitimate, else marked
  double batch_target = 40e-6;
  // Of an op that many layers share, this many uses one after the other are bracketed in a pass, each pass the next ones, while the others just run: 0 for all of them. Layers
  // that are alike cost alike, and references take longer than most ops of a decode step.
  std::int64_t bracketed_uses = 0;
  std::int64_t batch_bytes = 32 << 10;  // an op may be repeated in place iff idempotent and its operands stay in the innermost cache anyway
  // Reference class -> nominal seconds to normalise by, instead of the p25 of this measurement (Machine::references).
  // "NAME_apart" beside "NAME": of cores with last caches of their own, where the reference itself takes longer.
  std::map<std::string, double> nominal;
  std::function<void(const MeasureProgress&)> progress;  // may be empty
  std::function<bool()> interrupted;                     // true: stop after the current pass
};

struct Samples {
  std::vector<double> values;    // in the order taken
  double quantile(double q) const;   // linear between order statistics; 0 when empty
  double median() const { return quantile(0.5); }
  double mean() const;
  double min() const;
  bool empty() const { return values.empty(); }
};

// 90 % quantile of |median(A) / median(B) - 1| over 64 seeded random halves: what two honest runs of the same thing differ by.
double halves_spread(std::span<const double> values, std::uint64_t seed = 1);

// kDisturbed: the references beside the op were held up more than the op itself (another program took the cores between them), so that
// scaling by them would claim a time that no sample came near; the op's own median stands, and it is not graded.
enum class MeasureStatus : std::uint8_t { kOk, kTooShort, kDisturbed, kNotRun };
std::string_view status_name(MeasureStatus status);

// One op, per use (mean over its uses in a pass where several layers share it).
struct OpMeasurement {
  MeasureStatus status = MeasureStatus::kNotRun;
  std::string reason;              // of the status
  std::string reference;           // class name
  std::string implementation;
  int batch = 1;                   // calls per sample
  Samples raw;                     // seconds per call, every use of every round
  Samples ratio;                   // t / r, aligned with raw; r is the mean of the references before and after
  Samples ceiling;                 // FLOPs that the probed ceiling of its class would have done in t; empty where there is no such probe
  double raw_median = 0, raw_p95 = 0, raw_min = 0;
  double seconds = 0;              // normalised, per use: median(t / r) x nominal (mean instead of median where rows vary)
  double total = 0;                // normalised, all uses of one pass
  double noise = 0;                // A/A spread of `seconds`
  double rows_executed = 0;        // mean per use
  double executed_flops = 0;       // mean per use, tile padding included
  double ceiling_flops = 0;        // median of `ceiling` (mean where rows vary): useful FLOPs over it are the fraction of the ceiling; 0: none
  std::int64_t uses = 0;
  std::vector<double> round_total; // normalised sum of its uses, per round
};

struct StepMeasurement {
  Samples raw;                     // end-to-end passes, unbracketed
  double raw_median = 0, p50 = 0, p95 = 0, p99 = 0, raw_min = 0;   // of raw
  double raw_noise = 0;            // A/A spread of the raw passes
  double normalised = 0;           // sum of normalised ops
  double normalised_noise = 0;     // A/A spread of the per-round normalised sums
  int rounds = 0;                  // bracketed passes
};

struct ReferenceMeasurement {
  std::string name;
  double nominal = 0;              // what times are normalised by, seconds: p25 of all samples, or MeasureOptions::nominal
  double p25 = 0;                  // of the samples of this measurement
  double median = 0, p95 = 0;
  double noise = 0;                // A/A of consecutive reference runs: 90 % quantile of |r2 / r1 - 1|
  int samples = 0;
};

struct Measurement {
  std::string workload;            // fingerprint
  PerOp<OpMeasurement> ops;
  StepMeasurement step;
  std::map<std::string, double> class_noise;   // reference class -> A/A spread of the sum of its ops
  std::vector<ReferenceMeasurement> references;
  std::map<std::string, double> ceiling_rate;  // reference class -> median of the probed ceiling during the bracketed passes, FLOP/s
  std::map<std::string, double> state_before, state_after;
  Placement placement = Placement::kUnknown;   // of most rounds; figures are of those alone
  double placement_share = 1;                  // of the rounds that it was
  double seconds_spent = 0;
  bool interrupted = false;
  std::string stopped_by;          // "spread", "time", "rounds", "interrupt"
};

// Measures all executions together, their passes interleaved. Reference classes with the same name are taken to be the same work.
// Throws what the executions throw. `observer` may be null.
std::vector<Measurement> measure(std::span<Execution* const> executions, const MeasureOptions& options, Clock& clock = system_clock(),
                                 MachineObserver* observer = nullptr);

}  // namespace fathom
