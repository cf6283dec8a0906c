// The loops behind probe_compute.hpp, one translation unit per instruction set. Each runs a fixed amount of work; the
// arithmetic is in asm so that no compiler hoists, folds or vectorises it.
#pragma once

#include <cstdint>

namespace fathom::cpu {

inline constexpr std::int64_t kFmaStepFlopsAvx2 = 12 * 8 * 2;     // twelve accumulators of eight lanes
inline constexpr std::int64_t kFmaStepFlopsAvx512 = 16 * 16 * 2;  // sixteen of sixteen
inline constexpr std::int64_t kDotStepFlops = 2 * kFmaStepFlopsAvx512;  // two products of bf16 per lane
inline constexpr std::int64_t kTileFlops = 2 * 16 * 16 * 32;      // one tdpbf16ps: 16 x 16 results, 32 terms each

void fma_loop_avx2(std::int64_t steps);
void fma_loop_avx512(std::int64_t steps);
// The same with vdpbf16ps, which the caller knows to be there: kDotStepFlops each.
void dot_loop_avx512(std::int64_t steps);
// Six tile multiplications per step.
void amx_register_loop(std::int64_t steps);
// Passes over `bytes` of tiles at `tiles` (64-byte aligned, a multiple of 4 KiB), four multiplications per 4 KiB.
void amx_tile_loop(const void* tiles, std::int64_t bytes, std::int64_t passes);

}  // namespace fathom::cpu
