// FLOP-counting conventions: what other people's formulas give for a network, and why that differs from `exact`.
//
// Each preset reproduces one public tool's or paper's number to the integer (or to its exact fraction). Presets are functions of
// the Network, not sums over the op list, because their tools are closed forms; the reasons for the difference sum exactly.
// Depth routing is known to `exact`, `full` and the `mod-*` presets only: the others count a routed block on all rows, and say so.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/count/ledger.hpp"
#include "models/count/rational.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

struct Convention {
  std::string_view name;
  std::string_view summary;   // who counts so
  std::string_view formula;   // forward FLOP per token
  std::string_view training;  // "3 x forward", or what else
  std::string_view source;    // paper or repository, and the state that was read
  bool ran = false;           // the tool's own function was run and gave the test values
  bool routed = false;        // knows depth routing
};

std::span<const Convention> conventions();
// Throws Error(kInput) with the nearest name. "torch", "maxtext", "llm-foundry" ... are names too.
const Convention& find_convention(std::string_view name);

struct ConventionCount {
  std::string unavailable;       // why the formula says nothing about this network; empty: it does
  Rational per_token;            // forward-equivalent FLOP per token, average over a sequence of the length asked for
  Rational exact;                // the same under `exact` (causal, logits at all positions, routers counted)
  std::vector<Reason> reasons;   // sum to per_token - exact
  Terms terms;                   // per_token by term
};
// `length` is S, the tokens of one sequence. Throws Error(kInput) on an invalid network or length.
ConventionCount count_convention(const Convention& convention, const Network& network, std::int64_t length);

// Training FLOP per token (forward and backward): 3 x forward, unless the tool has another rule. `full_recompute`: its
// figure with activation checkpointing, where it counts that.
Rational training_per_token(const Convention& convention, const Network& network, std::int64_t length, bool full_recompute = false);

// The FLOPs of a whole step: batch x length tokens of prefill or training, with every micro-step. Absent, with the reason in
// `unavailable`, for phases the formula does not cover (decode, a chunk after cached tokens).
std::optional<Rational> convention_step(const Convention& convention, const Network& network, const Scenario& scenario, std::string& unavailable);

// The same of the model alone, for MFU: nothing that a training step does again.
std::optional<Rational> convention_model_step(const Convention& convention, const Network& network, const Scenario& scenario, std::string& unavailable);

// What to tell whoever uses it ("full" pushes a causal kernel past 100 %); empty for most.
std::string_view convention_warning(const Convention& convention);

}  // namespace fathom
