// Row counts that are known only at run time, rounded up to few: a matrix product needs an algorithm per shape, chosen before anything is timed.
//
// Eight steps per octave: 1, 2, ... 16, 18, 20, ... 32, 36, ... so at most an eighth of the rows is padding. The last bucket is the declared
// count rounded up to whole row tiles, which is what the arena has room for.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/plan.hpp"

namespace fathom::cuda {

// The smallest bucket that holds `rows` of at most `declared`; 0 for no rows.
std::int64_t row_bucket(std::int64_t rows, std::int64_t declared);
// All buckets of a declared count, ascending, without 0.
std::vector<std::int64_t> row_buckets(std::int64_t declared);

}  // namespace fathom::cuda
