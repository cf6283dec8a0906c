// The cost rules by op type, without the variant: for counting op lists that are never made (models/output.hpp).
#pragma once

#include "lib/cost.hpp"

namespace fathom {

// Adds the declared cost of one op to a sum. `Op` is an alternative of OpSpec; instantiated for all of them in cost_rules.cpp.
template <class Op>
void add_declared(const Op& op, Cost& sum);

}  // namespace fathom
