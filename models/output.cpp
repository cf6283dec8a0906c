#include "models/output.hpp"

namespace fathom {

ListTotals Output::totals() const {
  ListTotals result;
  for (const BlockSums& block : blocks_) {
    const u128 uses = static_cast<u128>(block.uses);
    result.total += block.fixed * uses;
    if (expectations_) {
      result.total += block.random * uses;
      const Cost& fixed = block.fixed;
      ExpectedCost expected = block.expected;
      expected += ExpectedCost{0, fixed.flops.to_double(), fixed.flops_recompute.to_double(), fixed.elements_total().to_double(),
                               fixed.read.to_double(), fixed.written.to_double()};
      result.expected += expected * static_cast<double>(block.uses);
    }
    for (size_t i = 0; i < block.parts.size(); ++i)
      if (block.parts[i] > 0) result.flops_by_part[i] += Flops(checked_mul(block.parts[i], uses));
    for (size_t i = 0; i < block.passes.size(); ++i)
      if (block.passes[i] > 0) result.flops_by_pass[i] += Flops(checked_mul(block.passes[i], uses));
  }
  return result;
}

}  // namespace fathom
