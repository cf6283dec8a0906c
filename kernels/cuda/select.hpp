// Which rows a routed block takes (arXiv 2404.02258, 3.3): arguments and launch shapes.
//   top-k      per sequence the k first in the order (-score, position), written in ascending position. Radix select: an order-preserving
//              32-bit key of the score (-0 becomes +0), four passes over 8 bits each find the k-th largest key; then one ordered
//              compaction takes all keys above it and the first equal ones.
//   threshold  per sequence all scores > threshold, strictly; sequences are packed one after the other (batch compaction in decode).
// Outputs: indices (rows of all sequences, compact), positions of the selected rows, counts per sequence, offsets (prefix sums of the counts),
// the inverse index (row -> compact row or -1) and the rest (rows not chosen, ascending). Whatever pointer is null is not written.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct SelectArgs {
  std::int64_t sequences = 1;
  std::int64_t length = 0;   // candidates per sequence
  std::int64_t k = 0;        // top-k: rows per sequence
  float threshold = 0.0f;
  bool top = true;           // else by threshold
  const float* scores = nullptr;            // [sequences, length]
  const std::int32_t* positions = nullptr;  // [sequences, length]
  std::int32_t* indices = nullptr;          // [selected]
  std::int32_t* selected_positions = nullptr;
  std::int32_t* counts = nullptr;           // [sequences]
  std::int32_t* offsets = nullptr;          // [sequences + 1]; required by threshold
  std::int32_t* inverse = nullptr;          // [sequences * length]
  std::int32_t* rest = nullptr;             // [sequences * length - selected]
  std::int32_t* rest_count = nullptr;       // one number, threshold only: how many rows were not chosen
  std::int32_t* nan_row = nullptr;          // 1 + the largest row with a NaN score is stored here by atomic max; the caller zeroes it
};

inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectBins = 256;

// Histogram, one count per warp, and two words that thread 0 hands to all.
inline constexpr std::int64_t kSelectShared = (kSelectBins + kSelectThreads / 32 + 2) * 4;
inline LaunchShape select_launch(const SelectArgs& a) { return {a.length > 0 ? a.sequences : 0, 1, 1, kSelectThreads, kSelectShared}; }
// Threshold: counts first (one block per sequence, or a warp per sequence for short ones), then the same shape writes.
inline LaunchShape offsets_launch(const SelectArgs&) { return {1, 1, 1, kSelectThreads, kSelectShared}; }

}  // namespace fathom::cuda
