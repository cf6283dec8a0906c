// Sums over an op list, as build() would make it or counted without making it.
#pragma once

#include <array>
#include <vector>

#include "lib/cost_rules.hpp"
#include "models/pairs.hpp"

namespace fathom {

struct ListTotals {
  Cost total;                                // declared
  std::array<Flops, kPartCount> flops_by_part{};
  std::array<Flops, 4> flops_by_pass{};      // by Pass
  ExpectedCost expected;                     // only where asked for
  Flops part(Part part) const { return flops_by_part[static_cast<size_t>(part)]; }
  // No experts that more rows would wake and, with expectations, no random rows: every sum is a + b x batch from this batch on, and the expectation is the declared cost.
  bool affine_in_batch = false;
  Flops pass(Pass pass) const { return flops_by_pass[static_cast<size_t>(pass)]; }
};

// One block's part of the expected total: ops without anything random, then the others as functions of the rows.
struct BlockExpectation {
  struct Random {
    ExpectedUnits units;
    double rows = 0, sequences = 0;   // at the batch that was counted; both are numbers per sequence times the batch, and so are these
    double pairs = -1, keys = 0;      // where they depend on which rows are chosen
    bool rest = false;                // of the rows that a router did not choose
    bool by_rows = true;              // nothing but the rows matters: `units` says it all
    // For another number of cached keys.
    bool attention = false;           // the only op whose expectation that changes
    ExpectedCost cost;                // of any other, at the batch that was counted
    ChosenCore chosen;                // pairs >= 0, one query per sequence
    double share = 1;                 // of the past, in `units.past`
  };
  double uses = 0;
  std::array<u128, 5> fixed{};        // FLOPs, recomputed FLOPs, elements, bytes read, bytes written
  std::vector<Random> random;
};

// The expectation of a list without anything random.
inline ExpectedCost declared_as_expected(const Cost& total) {
  return {0, total.flops.to_double(), total.flops_recompute.to_double(), total.elements_total().to_double(), total.read.to_double(), total.written.to_double()};
}

}  // namespace fathom
