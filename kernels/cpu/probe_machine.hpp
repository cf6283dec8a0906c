// Turns this machine into a Machine: ceilings per type and thread count, memory levels, costs of small things.
//
// What is probed: register FMA rate (f32) and the AMX loop with tiles from L2 (bf16, the ceiling a product really has); read, copy, in-place and
// row-gather bandwidth at every level; where the last cache really ends (a virtual machine is told of far more than it gets); one exponential,
// one top-k candidate, an empty parallel region, a library call. Each figure names its probe, sample count and spread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "lib/machine.hpp"

namespace fathom::cpu {

struct MachineProbeOptions {
  int threads = 0;                                                  // most threads to probe; 0: all cores the process may use
  std::function<void(double share, std::string_view stage)> progress;  // may be empty
};

// Bytes of main memory that this process may use: what the system has, or the limit of its control group. 0 where neither is told.
std::int64_t main_memory_bytes();

// Takes 5 to 20 seconds and, for a moment, about 400 MB. The base of `fathom calibrate`. Throws Error(kEnvironment) when memory does not suffice.
Machine probe_machine(const MachineProbeOptions& options = {});

}  // namespace fathom::cpu
