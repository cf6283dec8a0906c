// Every op of every step, in program order: Workload::instances() without the list.
#pragma once

#include "lib/workload.hpp"

namespace fathom {

// Calls visit(step, op).
template <class Visit>
void each_op_run(const Workload& w, const Visit& visit) {
  for (const Step& step : w.program()) {
    const Block& block = w.blocks()[static_cast<size_t>(step.block)];
    for (int i = block.first_op; i < block.first_op + block.op_count; ++i) visit(step, w.ops()[static_cast<size_t>(i)]);
  }
}

}  // namespace fathom
