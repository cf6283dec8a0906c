// Sums, scales, conversions and deterministic reductions over flat ranges and over rows; f32 or bf16 storage, f32 arithmetic.
// Results do not depend on `threads`.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

// y = a + b over `count` elements; y may be a or b (the residual add in place).
void add(DType type, const void* a, const void* b, void* y, std::int64_t count, int threads);

// y[row] = x[row] + bias, x and y dense [rows][width], y may be x.
void add_bias(DType type, const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t width, int threads);

// y = factor * x; y may be x. Factor 1 is a plain copy.
void scaled_copy(DType type, const void* x, float factor, void* y, std::int64_t count, int threads);

// Sum of x^2 (for the gradient norm), in f64 over fixed blocks.
double sum_of_squares(DType type, const void* x, std::int64_t count, int threads);

void f32_to_bf16(const float* x, bf16* y, std::int64_t count, int threads);
void bf16_to_f32(const bf16* x, float* y, std::int64_t count, int threads);

// out[j] (+)= sum over rows of factor[row] * x[row][j]: bias gradients (factor null: 1) and router weight gradients.
// x: dense [rows][width] of `type`; out: [width] of out_type; workspace: column_sums_workspace_floats(rows, width).
std::int64_t column_sums_workspace_floats(std::int64_t rows, std::int64_t width);
void column_sums(DType type, const void* x, const float* factor, std::int64_t rows, std::int64_t width, DType out_type, void* out,
                 bool accumulate, float* workspace, int threads);

}  // namespace fathom::cpu
