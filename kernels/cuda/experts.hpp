// Mixture of experts: choice, permutation, dispatch and combine, forward and backward (arXiv 2404.02258, 4.3). Arguments and launch shapes.
// Semantics are those of kernels/reference/experts.hpp: ties go to the lower output, rows are sorted by expert and stable in token order, no-op picks get no row,
// beyond `capacity` rows of an expert later tokens are dropped.
//   choose    a warp per token: picks and normalised weights
//   place     a block per expert counts, one block adds up, a block per expert writes its rows in token order; `slots` is the inverse (row of
//             each pick, or -1), so that combine needs no atomics
//   combine   y[t] = (shared[t]) + sum over the token's rows in row order of weight x[row]
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

inline constexpr int kExpertThreads = 256;
inline constexpr int kMostPicks = 32;  // one lane each

struct ExpertSelectArgs {
  std::int64_t tokens = 0;               // at most
  const std::int32_t* token_count = nullptr;  // device: how many there really are; null: `tokens`
  int experts = 0, noops = 0, picks = 0;
  bool sigmoid = false;
  std::int64_t capacity = 0;             // 0: any number
  std::int64_t room = 0;                 // rows of permutation and weights
  DType logit_type = DType::kF32;
  const void* logits = nullptr;          // [tokens, experts + noops]
  const float* correction = nullptr;     // [experts], added to the scores for the choice alone; null: none
  std::int32_t* chosen = nullptr;        // scratch [tokens, picks]: the output of each pick
  float* chosen_weights = nullptr;       // scratch [tokens, picks]
  std::int32_t* permutation = nullptr;   // [room]: token of each row, -1 behind the last
  float* weights = nullptr;              // [room]
  std::int32_t* offsets = nullptr;       // [experts + 1]
  std::int32_t* kept_offsets = nullptr;  // a copy that outlives the pass; null: none
  std::int32_t* slots = nullptr;         // [tokens, picks]: row of each pick or -1
  // Backward: weights, chosen and slots are read (as the forward pass left them).
  const float* dweights = nullptr;       // [room]
  DType dlogit_type = DType::kF32;       // may differ from that of the logits: scores are f32, gradients are of the compute type
  void* dlogits = nullptr;
};

struct ExpertRowsArgs {
  DType type = DType::kF32;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  int picks = 0;
  RowCount rows;                         // assignments; device: offsets + experts
  const void* x = nullptr;               // dispatch: [tokens]; combine: [rows]
  void* y = nullptr;                     // dispatch: [rows]; combine: [tokens]
  const std::int32_t* permutation = nullptr;
  const std::int32_t* slots = nullptr;
  const float* weights = nullptr;        // null: 1 (gradient of dispatch)
  const void* shared = nullptr;          // [tokens, width] or null
  const void* shared_gate = nullptr;     // [tokens] logits or null
  bool accumulate = false;               // y += (gradient of dispatch)
};

struct ExpertCombineBackwardArgs {
  DType type = DType::kF32;
  RowCount rows;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  const void* dy = nullptr;              // [tokens, width]
  const void* x = nullptr;               // [rows, width]
  const std::int32_t* permutation = nullptr;
  const float* weights = nullptr;
  void* dx = nullptr;                    // may be x
  float* dweights = nullptr;
  const void* shared = nullptr;          // with a gate on the shared expert
  const void* shared_gate = nullptr;
  void* dshared = nullptr;
  void* dgate = nullptr;                 // of `type`
};

inline LaunchShape expert_choose_launch(const ExpertSelectArgs& a) { return {ceil_div(a.tokens, kExpertThreads / 32), 1, 1, kExpertThreads, 0}; }
inline LaunchShape expert_place_launch(const ExpertSelectArgs& a) { return {a.experts, 1, 1, kExpertThreads, kExpertThreads / 32 * 4}; }
inline LaunchShape expert_offsets_launch(const ExpertSelectArgs&) { return {1, 1, 1, kExpertThreads, kExpertThreads / 32 * 4}; }
inline LaunchShape expert_tail_launch(const ExpertSelectArgs& a) { return {ceil_div(a.room, kExpertThreads), 1, 1, kExpertThreads, 0}; }
inline LaunchShape expert_dispatch_launch(const ExpertRowsArgs& a) { return {ceil_div(a.rows.limit, kExpertThreads / 32), 1, 1, kExpertThreads, 0}; }
inline LaunchShape expert_combine_launch(const ExpertRowsArgs& a) { return {ceil_div(a.tokens, kExpertThreads / 32), 1, 1, kExpertThreads, 0}; }
inline LaunchShape expert_combine_backward_launch(const ExpertCombineBackwardArgs& a) {
  return {ceil_div(a.rows.limit, kExpertThreads / 32), 1, 1, kExpertThreads, 0};
}
inline LaunchShape shared_gate_backward_launch(const ExpertCombineBackwardArgs& a) { return {ceil_div(a.tokens, kExpertThreads / 32), 1, 1, kExpertThreads, 0}; }

}  // namespace fathom::cuda
