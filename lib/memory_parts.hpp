// What a step holds in memory, by purpose: exact sizes, without the tiles and alignment of a plan.
//
// Weights, gradients, optimizer state and caches exist once. `saved` are the activations and indices that the forward pass leaves for the backward pass of
// one micro-step: tensors that a forward op writes and a backward or recomputation op reads. A recomputation policy shows here as what is no longer read.
#pragma once

#include "lib/workload.hpp"

namespace fathom {

struct MemoryParts {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;
  Bytes kv_cache;
  Bytes saved;
};

MemoryParts memory_parts(const Workload& workload);

}  // namespace fathom
