// isoFLOP planning: what fits into a training budget, dense and with depth routing.
//
// A budget C buys steps = C / (3 x forward FLOPs of a sequence x batch), to the nearest step; training is 3 x forward. Equal FLOPs are not
// equal tokens, steps or parameters: the rows say all four. Beside the model's own MoD twin stands the deeper one that
// spends the dense model's forward FLOPs again (depth worked better than width in the paper).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/count/rational.hpp"
#include "models/network.hpp"
#include "models/plan/law.hpp"

namespace fathom {

struct PlanOptions {
  std::vector<double> budgets = {6e18, 2e19, 1e20};  // training FLOPs
  std::int64_t batch = 128;
  std::int64_t length = 2048;
  std::string convention = "exact";  // any that knows depth routing
  std::int64_t every = 2;
  Fraction capacity{1, 8};
  ScalingLaw law = find_law("chinchilla-3");
  // Seconds of one training step of this network (batch x length); absent: no times.
  std::function<std::optional<double>(const Network&)> step_time;
};

// The dense model the law asks for at a budget. Its forward FLOPs are read off the built-in ladder of dense shapes, log-log between neighbours.
struct PlanOptimum {
  double budget = 0;
  double params = 0;
  double tokens = 0;
  double forward = 0;         // FLOP per sequence
  bool extrapolated = false;  // outside the ladder
};

struct PlanRow {
  double budget = 0;
  std::string model;
  std::string variant;        // "dense", "MoD", "MoD deeper"
  std::int64_t layers = 0;
  u128 params = 0;
  Rational forward;           // FLOP per sequence
  std::int64_t steps = 0;
  double tokens = 0;
  double of_dense = 1;        // forward over the dense model's
  double of_optimum = 0;      // forward over the law's optimum
  std::optional<double> loss; // the law's, dense rows only
  std::optional<double> step_seconds;
  std::optional<double> wall_seconds;
};

struct Plan {
  std::vector<PlanOptimum> optima;
  std::vector<PlanRow> rows;
  std::vector<std::string> notes;
};

// `dense`: models without routes. Throws Error(kInput) on a budget that is no positive number or too small for one step, and on
// a convention that does not know depth routing.
Plan plan_isoflop(const std::vector<Network>& dense, const PlanOptions& options);

// The built-in dense shapes, smallest first.
std::vector<Network> dense_ladder();
// `network` with more layers, all of the last layer's kind. Throws Error(kInput) where layers differ or share weights.
Network with_layers(const Network& network, std::int64_t layers);
// The shallowest MoD model whose forward FLOPs reach the dense model's: 33 blocks for 18 at width 896.
Network deeper_twin(const Network& dense, const PlanOptions& options);

}  // namespace fathom
