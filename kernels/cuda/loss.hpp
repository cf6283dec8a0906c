// Cross-entropy fused with its gradient: arguments and launch shapes.
//   loss = weight x mean over rows with a label (>= 0) of log(sum exp) - logit[label]; logits become weight (p - onehot) / counted rows.
// One block per row: a pass for maximum and sum, one that overwrites (the row comes from the caches again). Columns past `vocab` are padding: no part in the
// softmax, gradient 0. Row losses are added in order by a second kernel.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct CrossEntropyArgs {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  std::int64_t stride = 0;               // columns of the logits, padding included
  bool gradient = false;
  float weight = 1.0f;                   // of this loss in that of the optimizer step
  void* logits = nullptr;                // overwritten by the gradient
  const std::int32_t* labels = nullptr;
  std::int32_t* counted = nullptr;       // scratch: one
  float* row_losses = nullptr;           // scratch: [rows]
  float* loss = nullptr;
};

inline constexpr int kLossThreads = 512;

inline int loss_vector(const CrossEntropyArgs& a) { return vector_width(a.type, a.stride, a.logits); }
inline LaunchShape cross_entropy_launch(const CrossEntropyArgs& a) { return {a.rows, 1, 1, kLossThreads, kLossThreads / 32 * 4}; }
// Counting labels, and the sum of the rows' losses.
inline LaunchShape cross_entropy_single_launch(const CrossEntropyArgs&) { return {1, 1, 1, kLossThreads, kLossThreads / 32 * 4}; }

}  // namespace fathom::cuda
