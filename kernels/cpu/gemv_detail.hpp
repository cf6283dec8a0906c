// Entry points of gemv's instruction-set twins. Not for users.
#pragma once

#include "kernels/cpu/gemv.hpp"

namespace fathom::cpu::detail {
void gemv_base(const Gemv& call, int threads);
void gemv_avx2(const Gemv& call, int threads);
void gemv_avx512(const Gemv& call, int threads);
}  // namespace fathom::cpu::detail
