// The next token of each row of logits: argmax, or a draw at a temperature from the smallest set of most likely tokens whose probability reaches
// top_p (nucleus sampling, Holtzman et al., arXiv 1904.09751). The same rules as kernels/cpu/sampling.hpp: equal logits and probabilities rank by
// token; with top_p = 1 the draw walks the tokens in order, else in order of falling probability. Uniform numbers in [0, 1) come from the caller.
//
// One block per row, no sort: both cuts (the nucleus, and the drawn token within it) are found by bisection on the probability's bits, each step
// a sum over the row in a fixed order, in f64.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct SamplingArgs {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  std::int64_t stride = 0;
  float inverse_temperature = 0.0f;  // 0: argmax
  double top_p = 1.0;
  const void* logits = nullptr;
  const double* uniforms = nullptr;  // [rows], sampling only
  float* probabilities = nullptr;    // scratch [rows, vocab], sampling only
  std::int32_t* tokens = nullptr;    // [rows]; -1 where a logit is NaN
};

inline constexpr int kSamplingThreads = 512;
// Per warp a value and an index, or a sum; per thread a sum.
inline LaunchShape sampling_launch(const SamplingArgs& a) { return {a.rows, 1, 1, kSamplingThreads, kSamplingThreads / 32 * 16 + kSamplingThreads * 8}; }

}  // namespace fathom::cuda
