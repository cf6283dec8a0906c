// Deterministic contents of weights and inputs: a pure function of (seed, tensor name, copy, element), the same on every backend,
// thread count and phase, so that a prefill, a decode step and a training step of one network use the same weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lib/workload.hpp"

namespace fathom {

enum class FillKind : std::uint8_t {
  kTraining,  // normal(0, 0.02) matrices, gains 1, biases 0: a fresh model
  kTest,      // gains near 1, biases and everything else of both signs, scaled by 1/sqrt(fan-in): catches layout errors
};

// Fills `out` with the values of a weight (rows x cols of the tensor, row-major) from its element `first` on, a multiple of four; `copy` is its weight set.
void fill_weight(const Tensor& tensor, int copy, std::uint64_t seed, FillKind kind, std::span<float> out, std::int64_t first = 0);
// Token ids in [0, vocab), uniform.
void fill_tokens(std::uint64_t seed, std::string_view name, std::int64_t vocab, std::span<std::int32_t> out);
// Uniform doubles in [0, 1): for random routing and sampling.
double fill_uniform(std::uint64_t seed, std::string_view name, std::uint64_t index);

}  // namespace fathom
