// From workloads, predictions and measurements to the figures of a record.
#pragma once

#include <optional>

#include "lib/workload.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"
#include "reports/record.hpp"

namespace fathom {

// Identity, parameters, counts, memory; ops and parts. `workload` is the op list of (network, scenario).
Result counted_result(const std::string& label, const Network& network, const Scenario& scenario, const Workload& workload);

// Model and scenario of a configuration alone, by which it is named (reports/record_names.hpp).
Result named_result(const std::string& label, const Network& network, const Scenario& scenario);

// Bytes of the memory plan. Of a training step with gradient accumulation, whose list may be long, from two micro-steps: more need no more.
u128 planned_peak(const Network& network, const Scenario& scenario, const Workload& workload);

// The index of the configuration that is the dense twin of `index` (same shape and scenario, no routes), or -1.
struct TwinKey {
  const Network* network;
  const Scenario* scenario;
};
int find_twin(const std::vector<TwinKey>& all, size_t index);

// The scenario as the dense twin can follow it: names of ops to recompute that only routed blocks have are left out.
Scenario for_dense_twin(const Network& dense, const Scenario& scenario);

// Expected FLOPs where rows are random, else the exact count: what ratios compare.
double comparable_flops(const Workload& workload);

// The expectation of a step, or of several, and whether it is another figure than the declared one.
struct Expectations {
  ExpectedCost cost;
  bool routed = false;  // rows are random
  bool random = false;  // or distinct experts, or pairs that depend on the rows chosen
  Expectations& operator+=(const Expectations& other);
  // Also where only the positions of the routed tokens matter, as under a sliding window: the declared pairs are then the most that can be. The margin is that of sums of doubles.
  bool flops_differ(const Cost& declared) const { return routed || (random && cost.flops < declared.flops.to_double() * (1 - 1e-12)); }
};
Expectations expectations_of(const Workload& workload);

// "m x n x k", "32 x 128 x 2048": the shape column.
std::string shape_text(const OpSpec& spec);

}  // namespace fathom
