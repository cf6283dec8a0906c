#include "kernels/cpu/probe_fma_loop.hpp"
#include "kernels/cpu/probe_loops.hpp"

#if defined(__AVX512F__)

namespace fathom::cpu {

void fma_loop_avx512(std::int64_t steps) {
  if (steps < 1) return;
  FATHOM_FMA_LOOP(steps, "vfmadd231ps", "zmm", "vpxord", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "16", "17", "xmm16", "xmm17");
}

void dot_loop_avx512(std::int64_t steps) {
  if (steps < 1) return;
  FATHOM_FMA_LOOP(steps, "vdpbf16ps", "zmm", "vpxord", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "16", "17", "xmm16", "xmm17");
}

}  // namespace fathom::cpu

#endif
