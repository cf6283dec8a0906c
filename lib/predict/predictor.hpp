// Predicting many op lists on one machine: the summary of predict(), with what does not change between lists done once.
//
// Kept: the machine's figures and models, tiles and residual corrections by shape (caches of fixed size), and reuse distances as sums over sizes for the structures
// met last (lib/predict/reuse_program.hpp). Results equal predict() with follow_placement = false within 1e-12; notes and the fingerprint are left out. Memory does
// not grow with the number of lists. One thread uses one StepPredictor.
#pragma once

#include <memory>

#include "lib/predict/prediction.hpp"

namespace fathom {

class StepPredictor {
 public:
  // `quantiles`: p50, p95 and p99 as well; else they equal `seconds`. Throws Error(kInput) as predict() does. `machine` must outlive this.
  StepPredictor(const Machine& machine, const PredictOptions& options, bool quantiles);
  ~StepPredictor();
  StepPredictor(const StepPredictor&) = delete;
  StepPredictor& operator=(const StepPredictor&) = delete;

  // Valid until the next call.
  const StepPrediction& predict(const Workload& workload);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
