// Phase generate: a prefill of the prompt and one decode step per further token; counted, predicted and run.
#pragma once

#include "kernels/generate.hpp"
#include "tools/timed.hpp"

namespace fathom {

// The prefill (deciding token by token, as what follows does) and the decode step that sees `context` keys.
Scenario generation_prefill(const Scenario& scenario);
Scenario generation_decode(const Scenario& scenario, std::int64_t context);

// Why --ops is idle then.
inline constexpr const char* kNoOpsOfGeneration = "a generation has no single list of ops";
// Its two lists on a backend, the decode steps planned for the longest context; routed blocks take the wanted share of random tokens.
struct BoundGeneration {
  std::unique_ptr<ProgramExecution> prefill, decode;
};
// Throws Error(kInput) for a backend that cannot generate.
BoundGeneration bind_generation(const Configuration& configuration, const TimedFlags& flags);

// How many tokens, and how they are chosen.
GenerateOptions generate_options(const Configuration& configuration, const TimedFlags& flags);

// What the thresholds were set on (calibrate_generation), where there are any: whether the rate that a run then shows is that of other tokens. Empty where there are none.
std::string thresholds_note(const BoundGeneration& bound, const Configuration& configuration, const TimedFlags& flags);

// Exact sums over the prefill and tokens - 1 decode steps (the prefill's logits give the first token).
Result count_generation(const Configuration& configuration);
// The decode step that sees most: the cache and the memory of a generation are its.
Scenario generation_end(const Scenario& scenario);

// Predicted: seconds to the first token, of each decode step at 0, 25, 50, 75 and 100 % of the output (none where one token is all), and of the whole.
struct GenerationPrediction {
  double first = 0, total = 0;
  std::vector<double> steps;
  StepPrediction middle;  // of the step at 50 %: its percentiles
  double per_token = 0;   // mean over the tokens after the first
};
GenerationPrediction predict_generation(const Network& network, const Scenario& scenario, const Machine& machine, const PredictOptions& options);
// The same into a result: time to first token, per token, percentiles and the total.
void predict_generation(Result& result, const Configuration& configuration, const Machine& machine, const TimedFlags& flags);
// The same, measured token by token: the median of several generations of the same tokens (--rounds, --time).
void run_generation(Result& result, const Configuration& configuration, const TimedFlags& flags, bool quiet);

}  // namespace fathom
