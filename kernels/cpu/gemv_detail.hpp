// Entry points of gemv's instruction-set twins. Not for users.
#pragma once

#include "kernels/cpu/gemv.hpp"

namespace fathom::cpu::detail {
void gemv_base(const Gemv& call, int threads);
void gemv_avx2(const Gemv& call, int threads);
void gemv_avx512(const Gemv& call, int threads);
void gemv_avx512_bf16(const Gemv& call, int threads);  // where vdpbf16ps is twice as fast as f32 multiply-adds
}  // namespace fathom::cpu::detail
