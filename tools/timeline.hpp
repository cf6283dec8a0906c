// The timeline of passes that ran one after another, as Chrome and Perfetto read it: one track predicted, one measured.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/backend.hpp"
#include "lib/predict/prediction.hpp"

namespace fathom {

// Of one op of a pass, from the pass's begin.
struct Span {
  double start = 0, seconds = 0;
};

// A pass over a list: the prefill of a generation, one of its decode steps, or the only one.
struct TracedPass {
  std::string name;                          // "token 2"; empty: the only pass
  std::shared_ptr<const Workload> workload;
  StepPrediction prediction;
  std::vector<Span> spans;                   // per instance of the workload

  double predicted_s() const { return prediction.seconds; }
  double measured_s() const { return spans.empty() ? 0.0 : spans.back().start + spans.back().seconds; }
};

// One pass, op by op. Throws Stopped when the user interrupted it.
std::vector<Span> run_and_time(Execution& execution);

// Trace Event Format: complete events, times in microseconds. Passes follow one another on both tracks without a gap.
std::string chrome_trace(const std::vector<TracedPass>& passes, const std::string& model);

}  // namespace fathom
