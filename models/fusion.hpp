// What declared fusions change about the bytes of an op list: intermediate tensors that need not pass through memory.
//
// Only forward ops are fused, and only where an op's output has no other reader is it never written: what the backward pass reads is kept.
#pragma once

#include "lib/workload.hpp"
#include "models/scenario.hpp"

namespace fathom {

// Notes on each op what is moved less (Op::fused) and, where q, k and v are taken as three products, more (Op::split).
void apply_fusions(const Fusions& fusions, WorkloadBuilder& list);

// Whether these fusions need the list itself: attention is a property of its op, the rest is found between ops.
bool needs_list(const Fusions& fusions);

}  // namespace fathom
