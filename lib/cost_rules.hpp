// The cost rules by op type, without the variant: for counting op lists that are never made (models/output.hpp).
#pragma once

#include "lib/cost.hpp"

namespace fathom {

// Adds the declared cost of one op to a sum. `Op` is an alternative of OpSpec; instantiated for all of them in cost_rules.cpp.
template <class Op>
void add_declared(const Op& op, Cost& sum);

// cost_at() without telling the kinds of elements apart: a tenth of the size.
struct PlainCost {
  Flops flops, flops_recompute;
  Elements elements;
  Bytes read, written;
  Elements& operator[](ElementKind) { return elements; }
};
PlainCost plain_cost_at(const OpSpec& spec, const Executed& executed);

inline bool operator==(const ExpectedCost& a, const ExpectedCost& b) {
  return a.rows == b.rows && a.flops == b.flops && a.flops_recompute == b.flops_recompute && a.elements == b.elements && a.read == b.read && a.written == b.written;
}

// An op with random rows as a function of how many there are: every rule is affine in (rows, pairs, keys) once at least one row runs,
//   cost = none + slope x rows + fixed x [rows > 0] + pair x pairs + key x keys,
// with coefficients that do not depend on the number of rows or sequences. So one op serves every batch.
struct ExpectedUnits {
  ExpectedCost none, slope, fixed, pair, key;
  double probability = 1, each = 1;  // of Rows
  bool attention = false;            // pairs and keys follow from the number of rows; else they depend on which rows are chosen, and are given
  bool cached = false;
  double past = 0;                   // keys per sequence that were there before, in expectation
};
ExpectedUnits expected_units(const OpSpec& spec);
// The expectation over `count` rows of `sequences` sequences; pairs and keys where they do not follow from these (below 0: they do, or there are none).
ExpectedCost expected_at(const ExpectedUnits& units, double count, double sequences, double chosen_pairs = -1, double chosen_keys = 0);

}  // namespace fathom
