// Sums over an op list, as build() would make it or counted without making it.
#pragma once

#include <array>

#include "lib/cost.hpp"

namespace fathom {

struct ListTotals {
  Cost total;                                // declared
  std::array<Flops, kPartCount> flops_by_part{};
  std::array<Flops, 4> flops_by_pass{};      // by Pass
  ExpectedCost expected;                     // only where asked for
  Flops part(Part part) const { return flops_by_part[static_cast<size_t>(part)]; }
  Flops pass(Pass pass) const { return flops_by_pass[static_cast<size_t>(pass)]; }
};

}  // namespace fathom
