// The clock of the benchmarks.
#pragma once

#include <chrono>

namespace fathom::testing {

// On a clock that never goes back; only differences mean something.
inline double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace fathom::testing
