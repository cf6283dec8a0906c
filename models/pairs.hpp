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

}  // namespace fathom
