// The loop of multiply-adds on registers alone, for vectors of one width. A macro, because inline assembly takes literals only.
//
// Zeros times zeros: the rate does not depend on the values, and nothing can overflow or go denormal.
#pragma once

// `steps` times one OP ("vfmadd231ps", "vdpbf16ps") into each of `accumulators`, from registers X and Y. REG: "ymm" or "zmm"; CLEAR: the exclusive or
// of that width; ALL: every register used, lists as "0,1,2"; further arguments: clobbered registers beyond the first sixteen.
#define FATHOM_FMA_LOOP(steps, OP, REG, CLEAR, ALL, ACCUMULATORS, X, Y, ...)                                                                     \
  asm volatile(                                                                                                                              \
      ".irp r," ALL "\n" CLEAR " %%" REG "\\r, %%" REG "\\r, %%" REG "\\r\n"                                                                   \
      ".endr\n"                                                                                                                              \
      "1:\n"                                                                                                                                 \
      ".irp r," ACCUMULATORS "\n"                                                                                                            \
      OP " %%" REG X ", %%" REG Y ", %%" REG "\\r\n"                                                                                 \
      ".endr\n"                                                                                                                              \
      "dec %0\n"                                                                                                                             \
      "jnz 1b\n"                                                                                                                             \
      "vzeroupper\n"                                                                                                                         \
      : "+r"(steps)                                                                                                                          \
      :                                                                                                                                      \
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",   \
        "xmm15" __VA_OPT__(, ) __VA_ARGS__)
