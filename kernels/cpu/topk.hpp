// Expert-choice selection: the k highest scores of a sequence, or all above a threshold, as ascending positions.
//
// Total order (key (-score, position)): higher score first, ties to the lower position, -0 equals +0; a NaN is an error. The
// result is therefore the same on every backend for the same scores. k = 0 and k = count are legal.
#pragma once

#include <cstdint>

namespace fathom::cpu {

// nan_index: the first NaN's position (in its sequence), -1 when there is none; sequence: which one. Outputs of a call that
// reports a NaN are unspecified.
struct SelectionStatus {
  std::int64_t nan_index = -1;
  std::int64_t sequence = 0;
  bool ok() const { return nan_index < 0; }
};

// Bytes of workspace for one call on sequences of at most `count` scores with `threads` threads.
std::int64_t topk_workspace_bytes(std::int64_t count, int threads);

// One sequence: writes k positions to `positions`. Throws an internal Error unless 0 <= k <= count.
SelectionStatus topk(const float* scores, std::int64_t count, std::int64_t k, std::int32_t* positions, void* workspace);

// A batch of sequences, one after the other in threads.
struct BatchSelection {
  const float* scores = nullptr;                // sequence b starts at scores + b * stride
  std::int64_t stride = 0;
  std::int64_t batch = 0;
  const std::int64_t* valid = nullptr;          // valid tokens of each sequence (padding lies behind them); null: all `stride`
  const std::int64_t* slots = nullptr;          // k of each sequence; null: `k` for all
  std::int64_t k = 0;
  std::int64_t output_stride = 0;               // sequence b writes at b * output_stride
  std::int32_t* positions = nullptr;            // in the sequence
  std::int32_t* rows = nullptr;                 // b * stride + position, the row of a [batch * stride] matrix; may be null
};
SelectionStatus topk(const BatchSelection& selection, void* workspace, int threads);

// Positions with score > threshold (strict), ascending, and their count. `positions` needs room for `count`.
struct ThresholdResult {
  std::int64_t count = 0;
  SelectionStatus status;
};
ThresholdResult select_above(const float* scores, std::int64_t count, float threshold, std::int32_t* positions);

// mask[i] = 1 for selected positions, 0 otherwise: the targets of the router's and predictor's BCE.
void selection_mask(const std::int32_t* positions, std::int64_t k, std::int64_t count, std::uint8_t* mask);

}  // namespace fathom::cpu
