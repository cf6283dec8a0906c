// Language-model loss: cross-entropy of [rows][vocabulary] logits with integer labels, label -1 ignored.
//   loss_i = log(sum_j exp(l_j)) - l_label;  gradient (softmax(l)_j - [j == label]) * scale, written over the logits.
// The caller forms the mean: sum / tokens, and scale = 1 / tokens (times a loss scale); logits may come in chunks of rows.
// Two passes over a row: log-sum-exp in blocks (the row comes from memory once), then the gradient from L2; exp bound.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

struct CrossEntropy {
  DType type = DType::kF32;  // of the logits
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;
  std::int64_t row_stride = 0;  // elements between rows
};

struct LossSum {
  double sum = 0;            // over counted rows, in row order
  std::int64_t tokens = 0;   // rows with a label other than -1
};

std::int64_t count_labels(const std::int32_t* labels, std::int64_t rows);

// row_losses: [rows] workspace; holds each row's loss afterwards (0 for ignored rows). Throws an internal Error for a label
// that is neither -1 nor inside the vocabulary. Results do not depend on `threads`.
LossSum cross_entropy(const CrossEntropy& shape, const void* logits, const std::int32_t* labels, float* row_losses, int threads);

// The same, and the gradient in place of the logits; rows that are ignored become zero.
LossSum cross_entropy_and_gradient(const CrossEntropy& shape, void* logits, const std::int32_t* labels, float scale, float* row_losses,
                                   int threads);

}  // namespace fathom::cpu
