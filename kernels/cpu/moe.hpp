// Mixture of experts: token-choice routing, the dispatch permutation, and the weighted combine; forward and backward.
//
// route:    each token takes the top_k experts of its softmax, or of the logistic function of each logit (ties to the lower expert), with
//           their probabilities as weights, renormalised to sum 1 over the taken ones if asked. A correction per expert is added for the
//           choice only, to logits or to sigmoid scores (load balancing without a loss).
// dispatch: assignments sorted by expert, stable in token order; ids >= experts are no-op experts (integrated MoDE) and get no
//           slot; with a capacity, an expert's later assignments get none either. slot -1 means "not processed".
// combine:  y_t (+)= sum_j weight_tj * out[slot_tj].
// Gathering rows for experts is gather_rows(x, source_rows). Everything is deterministic and independent of threads.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

struct MoeRouting {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;  // columns of the logits, no-op experts included
  std::int64_t top_k = 0;
  bool renormalize = true;
  bool sigmoid = false;               // with renormalize only
  const float* correction = nullptr;  // [experts]
};

// logits: [tokens][experts] f32; probabilities: [tokens][experts], saved for backward; ids, weights: [tokens][top_k], highest
// weight first. Returns the first token with a NaN logit, -1 when there is none.
std::int64_t moe_route(const MoeRouting& routing, const float* logits, float* probabilities, std::int32_t* ids, float* weights, int threads);

// dlogits = gradient of the weights through renormalisation and softmax: [tokens][experts], written.
void moe_route_backward(const MoeRouting& routing, const float* probabilities, const std::int32_t* ids, const float* weights,
                        const float* dweights, float* dlogits, int threads);

struct MoeDispatch {
  std::int64_t tokens = 0;
  std::int64_t top_k = 0;
  std::int64_t experts = 0;    // real experts; larger ids are no-ops
  std::int64_t capacity = -1;  // slots per expert; -1: unlimited
};

// offsets: [experts + 1], rows of expert e are offsets[e]..offsets[e+1]-1; source_rows: [tokens * top_k] at most, the token of each
// row; slots: [tokens * top_k], the row of each assignment or -1. Returns the number of rows.
std::int64_t moe_dispatch(const MoeDispatch& dispatch, const std::int32_t* ids, std::int64_t* offsets, std::int32_t* source_rows,
                          std::int32_t* slots);

struct MoeCombine {
  DType type = DType::kF32;
  std::int64_t tokens = 0;
  std::int64_t top_k = 0;
  std::int64_t width = 0;
};

// weights null: 1, which makes this the backward of the gather: dx_t (+)= sum_j dxs[slot_tj].
void moe_combine(const MoeCombine& combine, const void* expert_rows, const std::int32_t* slots, const float* weights, void* y,
                 bool accumulate, int threads);

// drows[slot] = weight * dy_t; dweights = <dy_t, out[slot]> (0 where slot is -1). drows may be expert_rows.
void moe_combine_backward(const MoeCombine& combine, const void* dy, const void* expert_rows, const std::int32_t* slots,
                          const float* weights, void* drows, float* dweights, int threads);

}  // namespace fathom::cpu
