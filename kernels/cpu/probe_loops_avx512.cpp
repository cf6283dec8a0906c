#include "kernels/cpu/probe_loops.hpp"

#if defined(__AVX512F__)

namespace fathom::cpu {

void fma_loop_avx512(std::int64_t steps) {
  if (steps < 1) return;
  asm volatile(
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\n"
      "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n"
      ".endr\n"
      "1:\n"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
      "vfmadd231ps %%zmm16, %%zmm17, %%zmm\\r\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(steps)
      :
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15", "xmm16", "xmm17");
}

}  // namespace fathom::cpu

#endif
