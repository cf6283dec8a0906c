// Counts every allocation of this test program, of the libraries it uses too: the claim under test is that steady-state steps make none.
#pragma once

#include <cstdint>

namespace fathom::testing {

// Allocations since the program started, all threads; -1 where they cannot be counted (sanitizers bring their own allocator, other C libraries).
std::int64_t allocations();

}  // namespace fathom::testing
