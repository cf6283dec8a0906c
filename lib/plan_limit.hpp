// How long a program may be for a memory plan: placing is quadratic in what is alive at one time.
#pragma once

#include <cstdint>

#include "lib/workload.hpp"

namespace fathom {

inline constexpr std::int64_t kMostPlannedOps = 250'000;  // a few seconds; 4000 layers of a training step

// Ops of the whole program, every layer's counted.
inline std::int64_t program_ops(const Workload& workload) {
  std::int64_t ops = 0;
  for (const Step& step : workload.program()) ops += workload.blocks()[static_cast<std::size_t>(step.block)].op_count;
  return ops;
}

}  // namespace fathom
