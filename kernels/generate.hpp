// Generation: a prefill, the hand-over of its KV caches, and decode steps with real tokens; on any backend.
//
// Prefill and decode are two bound workloads of one network. What makes them one model is handed over: the caches with their ragged
// lengths, the thresholds of routed blocks, the positions and the tokens. Prefill must decide token by token (threshold or predictor), or
// what follows would not be what the same model says token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/program.hpp"

namespace fathom {

// The first of the largest logits; -1 where one is not a number.
std::int64_t greedy_token(std::span<const float> logits);

// A token drawn from softmax(logits / temperature), the same for the same (seed, draw); -1 where a logit is not a number or the largest is
// not finite. temperature > 0. By rejection: a token taken at
// random stays with probability exp((logit - largest) / temperature), which needs the largest logit and few exponentials where many tokens are likely.
std::int64_t sampled_token(std::span<const float> logits, double temperature, std::uint64_t seed, std::uint64_t draw);

struct GenerateOptions {
  std::int64_t tokens = 1;  // per sequence, the first of them from the prefill
  // The next token from one row of logits; `draw` numbers the choices of a run (step x sequences + sequence). Negative: not a number.
  std::function<std::int64_t(std::span<const float> logits, std::uint64_t draw)> pick = [](std::span<const float> logits, std::uint64_t) {
    return greedy_token(logits);
  };
  // How a pass is executed; a trace reads along.
  std::function<void(ProgramExecution&)> pass = [](ProgramExecution& execution) { execution.run(); };
  // After every token with the number made so far; false ends the run with what there is.
  std::function<bool(std::int64_t tokens)> progress;
};

struct GeneratedStep {
  double seconds = 0;                // step and choice of its tokens
  std::int64_t context = 0;          // keys visible to the new token in an unrouted block, itself included
  std::vector<std::int64_t> rows;    // executed, per routed block in program order
};

struct Generation {
  std::vector<std::vector<std::int32_t>> tokens;  // [sequence][token]
  double first_token_s = 0;                       // prefill and choice of the first token
  double hand_over_s = 0;                         // copy of the caches, which a server does not need: not part of any latency
  std::vector<std::int64_t> prefill_rows;         // executed, per routed block
  std::vector<GeneratedStep> steps;               // one per token after the first
};

// Copies the caches with their lengths, positions and thresholds: `to` then continues after `past` tokens per sequence. Both are workloads of
// one network with equal batches; capacities may differ as long as the lists fit. `to` keeps its cache over runs from then on. Throws Error(kInput) where they do not match.
void hand_over(const ProgramExecution& from, ProgramExecution& to, std::int64_t past);

// Sets the thresholds of `prefill`, which generate() hands over, so that the generated tokens take routed blocks at about the rate that was asked for. What the router of an
// untrained model says depends on the sequence more than on the token, so other prompts tell little: the run itself is made up to `passes` times, of at most kCalibratedSteps steps and with
// draws of their own (greedy tokens know no draws: they are the run's own). After each a block's threshold is put where the wanted share of its scores lay above it, which leads to other states and tokens; what came nearest stays, and
// does not change over a run: routing remains causal. A single sequence may still be far off: its tokens are no independent draws.
inline constexpr std::int64_t kCalibratedSteps = 64;
void calibrate_generation(ProgramExecution& prefill, ProgramExecution& decode, const GenerateOptions& options, int passes = 6);

// Runs `prefill` on its bound tokens and then options.tokens - 1 steps of `decode`, which must be planned for that context.
// Throws Error(kInput) where the two do not fit together, where the prefill routes by top-k, and on logits that are not numbers.
Generation generate(ProgramExecution& prefill, ProgramExecution& decode, const GenerateOptions& options);

}  // namespace fathom
