// Training on a text: `fathom run MODEL --phase train --corpus FILE`. Bytes are tokens.
//
// What is shown is whether the executed steps learn: the loss against the entropy of single bytes, the loss on the end of the text, which is
// never trained on, how the predictor agrees with the selection it learns from (accuracy says little where most tokens are skipped, so balanced
// accuracy stands beside it), and the share of tokens that each routed block took.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/backend.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

struct TextTraining {
  Network network;
  Scenario scenario;             // a training step: batch windows of `length` tokens
  std::string text;
  std::int64_t steps = 200;
  double learning_rate = 3e-3;
  double held_out = 0.1;         // share of the text, from its end
  std::uint64_t seed = 1;
  int threads = 0;
  std::function<bool(std::int64_t step)> progress;  // false: stop
};

// How thresholding a predictor's logit at zero agrees with "was selected", over held-out tokens.
struct PredictorScore {
  int layer = 0;
  std::int64_t true_positive = 0, false_positive = 0, true_negative = 0, false_negative = 0;
  double accuracy() const;
  double balanced_accuracy() const;  // mean of the hit rates of both classes
  double share() const;              // of tokens that were selected: always-skip has accuracy 1 - share
};

struct TextReport {
  std::vector<double> losses;       // nats per byte and step, cross-entropy alone
  double byte_entropy = 0;          // of single bytes of the text, nats
  double held_out_loss = 0;         // after the last step, over the held-out windows
  std::vector<PredictorScore> predictors;
  std::vector<Participation> participation;
  bool stopped = false;
  // Mean loss of the last `count` steps.
  double late_loss(std::int64_t count) const;
};

// Throws Error(kInput) when the text is shorter than two windows, the model's vocabulary is smaller than 256, or the scenario is no training.
TextReport train_on_text(const Backend& backend, const TextTraining& training);

double byte_entropy(const std::string& text);

}  // namespace fathom
