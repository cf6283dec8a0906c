// Predicting and measuring configurations: what predict, run and compare share.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/compare.hpp"
#include "lib/measure.hpp"
#include "lib/predict/prediction.hpp"
#include "tools/cli.hpp"
#include "tools/machines.hpp"

namespace fathom {

// Distinct bytes that the reference kernels touch between two ops of a bracketed pass.
inline constexpr double kReferenceBytes = 3e6;

struct TimedFlags {
  std::string backend = "cpu";
  std::string on;                // machine; empty: the backend's own
  std::string predictor;         // empty: calibrated where the machine is, else roofline
  std::string launch = "auto";   // GPU: auto, graph, buckets or eager
  std::string kernels = "own";   // GPU: own or library
  int threads = 0;
  std::uint64_t seed = 1;
  double temperature = 1;        // generate: of drawn tokens; 0: greedy
  double time = 0;               // seconds for all measurements together; 0: 10 for each configuration
  bool shared_time = false;      // `time` is a share of what the caller has for many: that one of them takes longer is no news
  std::int64_t rounds = 0;       // exact number of rounds; 0: by time and spread
};
void add_predict_flags(CLI::App& app, TimedFlags& flags);
void add_measure_flags(CLI::App& app, TimedFlags& flags);
void add_temperature_flag(CLI::App& app, TimedFlags& flags);

// One configuration on its way through count, predict, measure, compare.
struct Timed {
  Configuration configuration;
  std::shared_ptr<Workload> workload;
  StepPrediction raw, bracketed, light;
  // raw and bracketed for cores that lie the other way (Placement); no workload: there is no other way. measure_all exchanges the two where that is how they lay.
  StepPrediction raw_otherwise, bracketed_otherwise;
  std::unique_ptr<Execution> execution;
  std::int64_t allocated = 0;    // bytes that it had
  Measurement measurement;
  Comparison comparison;
  std::vector<RecordNote> notes; // on how it was measured
  RoutingRecord routing;         // of the first sequence, read in a pass of its own after the measurement
  int twin = -1;                 // index of its dense twin in the same call
};

// What --launch means for a measured pass.
GraphMode graph_mode(const std::string& launch, bool decode);
std::vector<Timed> make_timed(const std::vector<Configuration>& configurations);
// Predictor and launch mode of the flags, with their defaults for this machine.
PredictOptions predict_options(const Machine& machine, const TimedFlags& flags);
// Throws Error(kInput) for a type that no kernel computes in, or that a GPU's file has no peak for: nothing can be predicted in it.
void check_dtype(const Machine& machine, const Scenario& scenario);
// `to_measure`: also for the placement of the cores that the machine file does not say; which one it is shows when they are measured.
void predict_all(std::vector<Timed>& timed, const Machine& machine, const TimedFlags& flags, bool to_measure = false);
// The prediction for cores as they lay when it was measured becomes `raw` and `bracketed`. Both were made before.
void choose_placement(Timed& each);
// Binds and measures all configurations, twins interleaved. Refuses lengths past a learned position table.
// `machine`: whose reference times normalise bracketed figures, so that they stand in the state in which it was calibrated; null: those of the run.
void measure_all(std::vector<Timed>& timed, const TimedFlags& flags, const Machine* machine, bool quiet, Record& record);

// Binds one configuration as measure_all does; the routing of decode steps is centred, tokens vary from pass to pass only where asked. `graph`:
// launched as --launch says, else op by op, as a profiler needs it. `beside`: bytes that are bound after it, BindOptions.
std::unique_ptr<Execution> bind_timed(const Backend& runner, const Timed& timed, const TimedFlags& flags, bool vary_tokens, bool graph, std::int64_t beside = 0);
// A fake execution takes from now on what is predicted; others are left alone.
void follow_prediction(Execution& execution, const StepPrediction& prediction);

// CPU, threads, software and machine state of a measured record, with a note on what disturbed it.
void describe_environment(Record& record, std::span<const Timed* const> timed, const TimedFlags& flags);

// Adds predicted, measured and compared figures to a counted result.
void add_prediction(Result& result, const Timed& timed, const Machine& machine);
void add_measurement(Result& result, const Timed& timed);
// Useful FLOPs of each matrix op over those of the ceiling in the same time: the ceiling probed during the run, else the machine file's.
void add_fractions(Result& result, const Timed& timed, const Machine* machine, const TimedFlags& flags);
void add_comparison(Result& result, const Timed& timed);
void add_pair(Result& result, const Timed& timed, const Timed& twin, bool predicted, bool measured);

}  // namespace fathom
