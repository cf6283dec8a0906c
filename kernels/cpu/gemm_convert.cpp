#include "kernels/cpu/gemm_convert.hpp"

#if FATHOM_CPU

namespace fathom::cpu {

void to_f32(const bf16* from, float* to, std::int64_t count, int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void to_bf16(const float* from, bf16* to, std::int64_t count, int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
  for (std::int64_t i = 0; i < count; ++i) to[i] = bf16(from[i]);
}

void preset_bias(float* y, const float* bias, std::int64_t rows, std::int64_t n, bool accumulate, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t row = 0; row < rows; ++row) {
    float* out = y + row * n;
    if (accumulate) {
      for (std::int64_t j = 0; j < n; ++j) out[j] += bias[j];
    } else {
      for (std::int64_t j = 0; j < n; ++j) out[j] = bias[j];
    }
  }
}

}  // namespace fathom::cpu

#endif
