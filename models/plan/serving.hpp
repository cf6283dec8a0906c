// Does it fit, and how many sequences at once: memory before time.
//
// A step needs weights, gradients, optimizer state, activations (liveness plan) and KV cache, a library workspace and the device context. What does
// not fit has no time: the largest item and the smallest change that fits are named instead.
//   concurrency = floor((capacity x limit - weights - runtime) / KV per sequence)
// KV per sequence is by layer: page rounding, windows, and routed blocks by their policy (selected rows only, or all).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/machine.hpp"
#include "lib/plan.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

inline constexpr double kMemoryLimit = 0.9;        // of the capacity, as servers reserve by default
inline constexpr double kWorkspaceBytes = 32 << 20;  // product library, one stream
inline constexpr double kContextBytes = 512e6;     // driver context and kernels on a GPU; estimated

struct MemoryItem {
  std::string name;
  double bytes = 0;
};

struct MemoryFit {
  std::vector<MemoryItem> items;  // largest first
  double total = 0;
  double capacity = 0;            // bytes that may be used: capacity x limit; 0: unknown
  bool fits = true;               // true where the capacity is unknown
  std::string change;             // the smallest change that fits; empty when it fits, or nothing helps

  // "does not fit: 912 GB of 127 GB; largest: weights, 810 GB; ..."
  std::string text() const;
};

// `plan` is the memory plan of build(network, scenario).
MemoryFit memory_fit(const Network& network, const Scenario& scenario, const MemoryPlan& plan, const Machine& machine, double limit = kMemoryLimit);

// KV bytes of one sequence of `context` tokens. 0 for a network without attention.
double kv_sequence_bytes(const Network& network, const Scenario& scenario, std::int64_t context);

// Sequences that fit at the scenario's context besides weights and the step's own activations, which grow with the batch: the largest batch whose
// step fits. 0 when not even one does. Throws Error(kInput) when the machine does not say how much memory it has.
std::int64_t concurrency(const Network& network, const Scenario& scenario, const MemoryPlan& plan, const Machine& machine, double limit = kMemoryLimit);

}  // namespace fathom
