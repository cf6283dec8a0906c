// The published closed form of activation memory, and why it differs from what an op list keeps.
//
// Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198), equation 1 without tensor parallelism: one layer keeps
// S B h (34 + 5 n S / h) bytes, for multi-head attention over the whole square, a plain MLP of width 4h, elements of 2 bytes, and three dropouts with masks of 1 byte.
#pragma once

#include <string>
#include <vector>

#include "models/count/ledger.hpp"
#include "models/scenario.hpp"

namespace fathom {

struct ActivationFormula {
  std::string unavailable;      // why the formula says nothing; empty: it does
  Rational published;           // bytes of one layer
  Rational counted;             // the same layer in the op list: MemoryParts::saved
  std::vector<Reason> reasons;  // in bytes; sum to counted - published
};
// Training steps without recomputation of networks with one kind of layer, without latents, experts or routes.
ActivationFormula activation_formula(const Network& network, const Scenario& scenario);

}  // namespace fathom
