// Gradient norm and AdamW over a table of tensors in device memory: arguments and launch shapes.
//   sum (+)= sum of squares of all gradients; blocks' partial sums are added in order by a second kernel
//   g = grad * min(1, clip / sqrt(sum)); m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2
//   w -= lr (m / c1 / (sqrt(v / c2) + epsilon) + decay w), c = 1 - b^step; in f32, with a bf16 copy where weights are narrower
// One launch covers all tensors: a block finds its tensor by the tensors' first chunks. 28 bytes per parameter.
#pragma once

#include <cmath>

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

inline constexpr int kOptimizerThreads = 256;
inline constexpr std::int64_t kOptimizerChunk = 8192;  // parameters per block

struct ParameterTensor {
  const void* grad = nullptr;
  void* weight = nullptr;         // of the weights' type
  float* m = nullptr;
  float* v = nullptr;
  float* master = nullptr;        // null: the weight is f32 and its own master
  std::int64_t count = 0;
  std::int64_t first_chunk = 0;   // sum of ceil(count / kOptimizerChunk) of the tensors before
};
inline std::int64_t parameter_chunks(std::int64_t count) { return ceil_div(count, kOptimizerChunk); }

struct GradientNormArgs {
  DType grad_type = DType::kF32;
  const ParameterTensor* tensors = nullptr;  // device
  std::int64_t tensor_count = 0;
  std::int64_t chunks = 0;                   // of all tensors
  bool first = false;                        // overwrite the sum
  float* partials = nullptr;                 // [chunks]
  float* sum = nullptr;
};

struct AdamWArgs {
  DType grad_type = DType::kF32;
  DType weight_type = DType::kF32;
  const ParameterTensor* tensors = nullptr;
  std::int64_t tensor_count = 0;
  std::int64_t chunks = 0;
  const float* sum = nullptr;  // of squares
  float clip = 1.0f;
  float learning_rate = 0.0f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f;
  float one_minus_beta1 = 0.1f, one_minus_beta2 = 0.05f;
  float inverse_correction1 = 1.0f, inverse_correction2 = 1.0f;  // 1 / (1 - beta^step)
};

inline void set_adamw(AdamWArgs& a, double learning_rate, double beta1, double beta2, double epsilon, double weight_decay, std::int64_t step) {
  a.learning_rate = static_cast<float>(learning_rate);
  a.beta1 = static_cast<float>(beta1), a.one_minus_beta1 = static_cast<float>(1 - beta1);
  a.beta2 = static_cast<float>(beta2), a.one_minus_beta2 = static_cast<float>(1 - beta2);
  a.epsilon = static_cast<float>(epsilon), a.weight_decay = static_cast<float>(weight_decay);
  a.inverse_correction1 = static_cast<float>(1 / (1 - std::pow(beta1, static_cast<double>(step))));
  a.inverse_correction2 = static_cast<float>(1 / (1 - std::pow(beta2, static_cast<double>(step))));
}

inline LaunchShape gradient_norm_launch(const GradientNormArgs& a) { return {a.chunks, 1, 1, kOptimizerThreads, kOptimizerThreads / 32 * 4}; }
inline LaunchShape gradient_norm_sum_launch(const GradientNormArgs&) { return {1, 1, 1, kOptimizerThreads, kOptimizerThreads / 32 * 4}; }
inline LaunchShape adamw_launch(const AdamWArgs& a) { return {a.chunks, 1, 1, kOptimizerThreads, 0}; }

}  // namespace fathom::cuda
