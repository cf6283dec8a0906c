// RMSNorm and LayerNorm over rows, forward and backward, f32 or bf16 storage with f32 arithmetic.
//   RMSNorm:   y = x / sqrt(mean(x^2) + epsilon) * gain
//   LayerNorm: y = (x - mean) / sqrt(var + epsilon) * gain + bias, var the biased variance
// All matrices are dense [rows][width]; x, y, gain, bias, dy, dx share `type`. Results do not depend on `threads`.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

struct Norm {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  float epsilon = 1e-5f;
};

// gain null: 1. inverse: [rows] saved 1/rms, may be null. indices: when not null, row i reads x[indices[i]] (gather fused with the norm).
void rmsnorm(const Norm& norm, const void* x, const void* gain, void* y, float* inverse, int threads, const std::int32_t* indices = nullptr);

// mean, inverse: [rows] saved mean and 1/standard deviation, may be null. gain, bias null: 1, 0.
void layernorm(const Norm& norm, const void* x, const void* gain, const void* bias, void* y, float* mean, float* inverse, int threads,
               const std::int32_t* indices = nullptr);

// Where gradients go. dx: written, or added to when accumulate_dx; null: not wanted. dgain, dbias: [width] in grad_type, added to
// when accumulate_parameters; null: not wanted.
struct NormGradients {
  void* dx = nullptr;
  bool accumulate_dx = false;
  void* dgain = nullptr;
  void* dbias = nullptr;
  DType grad_type = DType::kF32;
  bool accumulate_parameters = false;
};

// Floats of workspace the backward functions need: partial sums of dgain (and dbias), one per fixed group of rows.
std::int64_t norm_workspace_floats(std::int64_t rows, std::int64_t width, bool has_bias);

// inverse (and mean): as saved by the forward pass.
void rmsnorm_backward(const Norm& norm, const void* x, const void* gain, const float* inverse, const void* dy, const NormGradients& out,
                      float* workspace, int threads);
void layernorm_backward(const Norm& norm, const void* x, const void* gain, const float* mean, const float* inverse, const void* dy,
                        const NormGradients& out, float* workspace, int threads);

}  // namespace fathom::cpu
