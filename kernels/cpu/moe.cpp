#include "kernels/cpu/moe.hpp"

#include <cmath>
#include <string>

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

std::int64_t moe_route(const MoeRouting& routing, const float* logits, float* probabilities, std::int32_t* ids, float* weights, int threads) {
  if (routing.top_k < 0 || routing.top_k > routing.experts) throw_internal("moe_route: top_k = " + std::to_string(routing.top_k) + " of " + std::to_string(routing.experts) + " experts");
  const std::int64_t experts = routing.experts;
  for (std::int64_t i = 0; i < routing.tokens * experts; ++i) {
    if (std::isnan(logits[i])) return i / experts;
  }
  const auto softmax = vector_kernels().softmax_row;
  over_ranges(routing.tokens, threads, experts * 32 * (routing.top_k + 1), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      const float* logit = logits + token * experts;
      float* p = probabilities + token * experts;
      std::int32_t* id = ids + token * routing.top_k;
      float* weight = weights + token * routing.top_k;
      if (routing.sigmoid) {
        for (std::int64_t e = 0; e < experts; ++e) p[e] = 1.0f / (1.0f + std::exp(-logit[e]));
      } else {
        softmax(logit, p, experts, 1.0f);
      }
      // The order is that of logits, not of probabilities, so that rounding makes no ties, unless a correction is added to sigmoid scores.
      const auto key = [&](std::int64_t e) { return !routing.correction ? logit[e] : (routing.sigmoid ? p[e] : logit[e]) + routing.correction[e]; };
      float total = 0;
      for (std::int64_t j = 0; j < routing.top_k; ++j) {
        std::int64_t best = -1;  // the next in the order (-key, expert)
        for (std::int64_t e = 0; e < experts; ++e) {
          if (j > 0 && !(key(e) < key(id[j - 1]) || (key(e) == key(id[j - 1]) && e > id[j - 1]))) continue;
          if (best < 0 || key(e) > key(best)) best = e;
        }
        id[j] = static_cast<std::int32_t>(best);
        weight[j] = p[best];
        total += p[best];
      }
      if (routing.renormalize) {
        for (std::int64_t j = 0; j < routing.top_k; ++j) weight[j] /= total;
      }
    }
  });
  return -1;
}

void moe_route_backward(const MoeRouting& routing, const float* probabilities, const std::int32_t* ids, const float* weights,
                        const float* dweights, float* dlogits, int threads) {
  const std::int64_t experts = routing.experts, top_k = routing.top_k;
  over_ranges(routing.tokens, threads, experts * 16, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      const float* p = probabilities + token * experts;
      const std::int32_t* id = ids + token * top_k;
      const float* w = weights + token * top_k;
      const float* dw = dweights + token * top_k;
      float* d = dlogits + token * experts;
      float dot = 0;
      for (std::int64_t j = 0; j < top_k; ++j) dot += w[j] * dw[j];
      if (routing.renormalize) {
        // The weights are a softmax over the taken logits alone.
        for (std::int64_t e = 0; e < experts; ++e) d[e] = 0;
        // Of sigmoid weights w = s / sum s the slope has a factor 1 - s more.
        for (std::int64_t j = 0; j < top_k; ++j) d[id[j]] = w[j] * (dw[j] - dot) * (routing.sigmoid ? 1.0f - p[id[j]] : 1.0f);
      } else {
        for (std::int64_t e = 0; e < experts; ++e) d[e] = -p[e] * dot;
        for (std::int64_t j = 0; j < top_k; ++j) d[id[j]] += w[j] * dw[j];
      }
    }
  });
}

std::int64_t moe_dispatch(const MoeDispatch& dispatch, const std::int32_t* ids, std::int64_t* offsets, std::int32_t* source_rows,
                          std::int32_t* slots) {
  const std::int64_t count = dispatch.tokens * dispatch.top_k;
  for (std::int64_t e = 0; e <= dispatch.experts; ++e) offsets[e] = 0;
  // First the rank of each assignment within its expert, then the experts' offsets, then both together.
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0) throw_internal("moe_dispatch: expert id " + std::to_string(ids[i]) + " is negative");
    slots[i] = -1;
    if (ids[i] >= dispatch.experts) continue;
    std::int64_t& taken = offsets[ids[i] + 1];
    if (dispatch.capacity < 0 || taken < dispatch.capacity) slots[i] = static_cast<std::int32_t>(taken++);
  }
  for (std::int64_t e = 0; e < dispatch.experts; ++e) offsets[e + 1] += offsets[e];
  for (std::int64_t i = 0; i < count; ++i) {
    if (slots[i] < 0) continue;
    slots[i] += static_cast<std::int32_t>(offsets[ids[i]]);
    source_rows[slots[i]] = static_cast<std::int32_t>(i / dispatch.top_k);
  }
  return offsets[dispatch.experts];
}

void moe_combine(const MoeCombine& combine, const void* expert_rows, const std::int32_t* slots, const float* weights, void* y,
                 bool accumulate, int threads) {
  const auto kernel = vector_kernels().combine[storage(combine.type)];
  over_ranges(combine.tokens, threads, combine.width * dtype_bytes(combine.type) * (combine.top_k + 1), 1,
              [&](std::int64_t begin, std::int64_t end) {
                kernel(expert_rows, slots, weights, combine.top_k, y, accumulate, combine.width, begin, end);
              });
}

void moe_combine_backward(const MoeCombine& combine, const void* dy, const void* expert_rows, const std::int32_t* slots,
                          const float* weights, void* drows, float* dweights, int threads) {
  const auto kernel = vector_kernels().combine_grad[storage(combine.type)];
  over_ranges(combine.tokens, threads, combine.width * dtype_bytes(combine.type) * (2 * combine.top_k + 1), 1,
              [&](std::int64_t begin, std::int64_t end) {
                kernel(dy, expert_rows, slots, weights, combine.top_k, drows, dweights, combine.width, begin, end);
              });
}

}  // namespace fathom::cpu
