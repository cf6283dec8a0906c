// One list on the CPU backend and on the reference (against_reference.hpp says how they are compared).
#pragma once

#include "kernels/cpu/backend.hpp"
#include "tests/kernels/against_reference.hpp"

namespace fathom::testing {

inline void compare_with_reference(const Network& net, const Scenario& s, double op_tolerance, double list_tolerance) {
  compare_backend(cpu::CpuBackend(), net, s, op_tolerance, list_tolerance);
}

}  // namespace fathom::testing
