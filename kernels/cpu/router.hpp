// Linear router: r_i = x_i . w + b in f32, and its backward pieces
//   dw (+)= sum_i dr_i x_i (column_sums of elementwise.hpp), db = sum_i dr_i, dX_i += dr_i w.
// Each score has a summation order that depends on the width alone: the same bits for any batch and any thread count.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

// x: dense [rows][width] and w: [width] of `type`; r: [rows] f32.
void router_scores(DType type, const void* x, const void* w, float bias, float* r, std::int64_t rows, std::int64_t width, int threads);

// dx[indices[i]] += dr[i] * w for i < count; indices null: row i. Indices must be unique.
void router_input_gradient(DType type, const float* dr, const void* w, const std::int32_t* indices, void* dx, std::int64_t count,
                           std::int64_t width, int threads);

// sum_i dr[i] in f64, serial.
double sum_in_order(const float* dr, std::int64_t count);

// Binary cross-entropy of logits against 0/1 targets, the router's auxiliary loss and the predictor's loss:
//   weight * sum_i (max(r, 0) - r z + log(1 + e^-|r|)), gradient weight * (sigma(r) - z).
// For the specification's mean over N valid tokens with coefficient lambda, call per sequence on its valid tokens with
// weight = lambda / N. gradient null: not wanted; accumulate adds to it. Serial (a microsecond per thousand tokens).
double bce_with_logits(const float* logits, const std::uint8_t* targets, std::int64_t count, double weight, float* gradient, bool accumulate);

// How thresholding logits at zero (strict) agrees with the targets.
struct BinaryCounts {
  std::int64_t true_positive = 0, false_positive = 0, true_negative = 0, false_negative = 0;
};
BinaryCounts binary_counts(const float* logits, const std::uint8_t* targets, std::int64_t count);

}  // namespace fathom::cpu
