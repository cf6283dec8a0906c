// How many (query, key) pairs a mask makes visible, and how many distinct keys are read.
#pragma once

#include <cstdint>

#include "lib/op.hpp"

namespace fathom {

// Visible pairs of one sequence: `queries` new tokens after `past` cached ones. Exact integers.
u128 visible_pairs(const Mask& mask, std::int64_t queries, std::int64_t past);
// Distinct keys that those queries read.
std::int64_t visible_keys(const Mask& mask, std::int64_t queries, std::int64_t past);

// Of the visible pairs, those whose key is new too.
u128 new_pairs(const Mask& mask, std::int64_t queries, std::int64_t past);

// Attention of rows that a router chose, where it depends on which ones: what the expectation follows from.
struct ChosenCore {
  Mask mask;
  std::int64_t length = 1;       // candidates per sequence
  std::int64_t queries = 1;      // declared rows of them
  double probability = -1;       // of each candidate, independently; below 0: a uniformly random subset of that size
  double share = 1;              // of the past that the cache holds
  double sequences = 1;
  bool apart = false;            // chosen queries see the keys of all tokens
};
struct ExpectedReach {
  double pairs = -1, keys = 0;
};
// Expected pairs and keys of all sequences after `past` earlier tokens each.
ExpectedReach expected_reach(const ChosenCore& core, std::int64_t past);

}  // namespace fathom
