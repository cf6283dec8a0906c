// Choosing the next token from one row of logits: argmax, or a draw at a temperature from the smallest set of most likely tokens
// whose probability reaches top_p (nucleus sampling, Holtzman et al., arXiv 1904.09751).
// The random number is a pure function of (seed, draw): Philox 4x32-10 (Random123), so a run can be repeated token by token.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

// Position of the largest logit, the first of equals; -1 when a logit is NaN or the row is empty.
std::int64_t argmax(DType type, const void* logits, std::int64_t count);

struct Sampling {
  double temperature = 1.0;  // 0: argmax
  double top_p = 1.0;        // in (0, 1]
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;    // which draw: sequence and step, numbered by the caller
};

// Uniform in [0, 1), 53 bits.
double uniform_draw(std::uint64_t seed, std::uint64_t draw);

std::int64_t sample_workspace_bytes(std::int64_t count);
// -1 when a logit is NaN or the row is empty.
std::int64_t sample_token(const Sampling& sampling, DType type, const void* logits, std::int64_t count, void* workspace);

}  // namespace fathom::cpu
