// The wrappers of device code against their meaning: fragments as matrices, shuffles as index sums, functions as the C library computes them in f64.
//
// Written from the tables of the PTX ISA (fragments of mma.m16n8k16 for bf16, ldmatrix m8n8.x4, cp.async with a source size), over whole matrices and
// not lane by lane as the emulator does it. Layouts and integers are compared exactly; sums within 1e-5 of the magnitudes that enter, because how
// tensor cores order and round them is not told; functions within 4e-6 relative, which the fast exponentials need.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda_host/device.hpp"
#include "lib/backend.hpp"

namespace fathom::cuda {

// One entry per wrapper, `cases` warps each on values drawn from `seed`. Throws Error(kEnvironment) where the device refuses to run one.
std::vector<SelfTest> conform(const std::shared_ptr<OpenDevice>& device, std::int64_t cases = 64, std::uint64_t seed = 1);

}  // namespace fathom::cuda
