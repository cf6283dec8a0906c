#include "kernels/cpu/probe_fma_loop.hpp"
#include "kernels/cpu/probe_loops.hpp"

#if defined(__AVX2__)

namespace fathom::cpu {

void fma_loop_avx2(std::int64_t steps) {
  if (steps < 1) return;
  FATHOM_FMA_LOOP(steps, "vfmadd231ps", "ymm", "vxorps", "0,1,2,3,4,5,6,7,8,9,10,11,12,13", "0,1,2,3,4,5,6,7,8,9,10,11", "12", "13");
}

}  // namespace fathom::cpu

#endif
