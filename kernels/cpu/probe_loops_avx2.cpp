#include "kernels/cpu/probe_loops.hpp"

#if defined(__AVX2__)

namespace fathom::cpu {

// Zeros times zeros: the rate does not depend on the values, and nothing can overflow or go denormal.
void fma_loop_avx2(std::int64_t steps) {
  if (steps < 1) return;
  asm volatile(
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n"
      "vxorps %%ymm\\r, %%ymm\\r, %%ymm\\r\n"
      ".endr\n"
      "1:\n"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm\\r\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(steps)
      :
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15");
}

}  // namespace fathom::cpu

#endif
