// Network + Scenario -> op list (Workload). The only place where ops are decided; everything else reads the list.
//
// Layers of one kind share one block of ops. Training is the same list continued: the forward emission records, for every op, how
// its gradient is formed, and the backward block is that record played in reverse (models/tape.hpp).
#pragma once

#include "lib/workload.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"
#include "models/totals.hpp"

namespace fathom {

// The op list of one step: a prefill, a decode step (one new token per sequence) or a training step. Phase generate is a
// prefill followed by decode steps and has no single list: callers build both. Throws Error(kInput) on a network or scenario that contradicts
// itself, or that asks for something the op list cannot express (with what and why).
Workload build(const Network& network, const Scenario& scenario);

// The same list without names and fingerprint in the memory of `memory`, where it is valid until the next one is made there: for predicting many configurations
// one after the other.
const Workload& build_in_place(const Network& network, const Scenario& scenario, WorkloadBuilder& memory);

// The sums of that list without making it: no tensors, names or operands (for sweeps). `expectations` also sums the expected costs.
ListTotals count_totals(const Network& network, const Scenario& scenario, bool expectations = false);
// The same with expectations, and what they are made of by block: for other batches of the same scenario where only rows are random (else `blocks` is empty), and
// with `by_rows` for other contexts of a decode step (then always there; *by_rows says whether for other batches as well).
ListTotals count_totals(const Network& network, const Scenario& scenario, std::vector<BlockExpectation>& blocks, bool* by_rows = nullptr);

}  // namespace fathom
