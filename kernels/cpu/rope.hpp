// Rotary position embedding, in place on the q and k parts of a projection buffer, half-split pairing (GPT-NeoX, Llama):
// element i of a head is paired with i + rotary_dim / 2, i < rotary_dim / 2, and turned by position * theta^(-2 i / rotary_dim).
// Positions are the tokens' original ones: a routed block keeps the gaps (Su et al., arXiv 2104.09864).
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

// Floats of a table for positions 0..positions-1; per position rotary_dim/2 cosines, then rotary_dim/2 sines.
std::int64_t rope_table_floats(std::int64_t positions, std::int64_t rotary_dim);
// Angles are computed in double. rotary_dim must be even.
void fill_rope_table(double theta, std::int64_t rotary_dim, std::int64_t positions, float* table);

struct Rope {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t row_stride = 0;  // elements between rows
  std::int64_t heads = 0;       // heads turned, consecutive from the pointer on: q heads + k heads when k follows q
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;        // even, <= head_dim; the rest of each head is left alone
  std::int64_t table_positions = 0;   // positions in the table
};

// positions: [rows]. inverse: turns back, which is the gradient. Throws an internal Error for a position outside the table.
void rope(const Rope& shape, void* rows, const std::int32_t* positions, const float* table, bool inverse, int threads);

}  // namespace fathom::cpu
