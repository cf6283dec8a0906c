// Element passes around a library product: bf16 <-> f32 for CPUs whose bf16 products would be slower than f32 ones, and
// the bias that oneDNN's sgemm cannot add itself.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

void to_f32(const bf16* from, float* to, std::int64_t count, int threads);
// Rounds to nearest even.
void to_bf16(const float* from, bf16* to, std::int64_t count, int threads);
// y[rows, n] = bias[n] per row, or += with accumulate: the product is added on top of it.
void preset_bias(float* y, const float* bias, std::int64_t rows, std::int64_t n, bool accumulate, int threads);

}  // namespace fathom::cpu
