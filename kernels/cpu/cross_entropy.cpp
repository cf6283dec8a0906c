#include "kernels/cpu/cross_entropy.hpp"

#include <cmath>
#include <cstring>
#include <string>

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {
namespace {

void check_labels(const CrossEntropy& shape, const std::int32_t* labels) {
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    if (labels[row] < -1 || labels[row] >= shape.vocabulary) {
      throw_internal("cross_entropy: label " + std::to_string(labels[row]) + " of row " + std::to_string(row) +
                     " is outside the vocabulary of " + std::to_string(shape.vocabulary));
    }
  }
}

float logit(DType type, const void* row, std::int64_t column) {
  return type == DType::kF32 ? static_cast<const float*>(row)[column] : static_cast<float>(static_cast<const bf16*>(row)[column]);
}

// log-sum-exp of a row and, when `gradient` is set, the gradient in its place.
float row_loss(const CrossEntropy& shape, const VectorKernels& kernels, void* row, std::int32_t label, bool gradient, float scale) {
  const int which = storage(shape.type);
  float maximum = 0, sum = 0;
  kernels.row_log_sum[which](row, shape.vocabulary, &maximum, &sum);
  const float loss = std::log(sum) + (maximum - logit(shape.type, row, label));
  if (gradient) kernels.softmax_grad[which](row, shape.vocabulary, maximum, 1.0f / sum, label, scale);
  return loss;
}

LossSum run(const CrossEntropy& shape, void* logits, const std::int32_t* labels, bool gradient, float scale, float* row_losses, int threads) {
  check_labels(shape, labels);
  const VectorKernels& kernels = vector_kernels();
  const std::int64_t row_bytes = shape.row_stride * dtype_bytes(shape.type);
  over_ranges(shape.rows, threads, row_bytes * 4, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      char* row = static_cast<char*>(logits) + i * row_bytes;
      if (labels[i] >= 0) {
        row_losses[i] = row_loss(shape, kernels, row, labels[i], gradient, scale);
      } else {
        row_losses[i] = 0;
        if (gradient) std::memset(row, 0, static_cast<std::size_t>(shape.vocabulary * dtype_bytes(shape.type)));
      }
    }
  });
  LossSum total;
  for (std::int64_t i = 0; i < shape.rows; ++i) total.sum += row_losses[i];
  total.tokens = count_labels(labels, shape.rows);
  return total;
}

}  // namespace

std::int64_t count_labels(const std::int32_t* labels, std::int64_t rows) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < rows; ++i) count += labels[i] != -1;
  return count;
}

LossSum cross_entropy(const CrossEntropy& shape, const void* logits, const std::int32_t* labels, float* row_losses, int threads) {
  return run(shape, const_cast<void*>(logits), labels, false, 0, row_losses, threads);  // read only without the gradient
}

LossSum cross_entropy_and_gradient(const CrossEntropy& shape, void* logits, const std::int32_t* labels, float scale, float* row_losses,
                                   int threads) {
  return run(shape, logits, labels, true, scale, row_losses, threads);
}

}  // namespace fathom::cpu
