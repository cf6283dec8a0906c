// Token embedding: gather of table rows, with learned positions added where there are any, and its deterministic gradient.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

struct Embedding {
  DType type = DType::kF32;  // of table, y and gradients
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;  // rows of the table (or of the position table, in the backward call for it)
};

// y[i] = table[ids[i]] (+ position_table[positions[i]]; position_table null: none). Throws an internal Error for an id outside
// the vocabulary; positions are the caller's to keep inside their table.
void embedding(const Embedding& shape, const void* table, const std::int32_t* ids, const void* position_table,
               const std::int32_t* positions, void* y, int threads);

// gradient[ids[i]] += dy[i]. Tokens are sorted by (id, index), each id's rows are summed in f32 in that order and rounded once, so
// the bits depend on neither threads nor the platform's sort. Rows of ids that do not occur are not touched. The same function
// with positions as ids gives the gradient of learned positions.
std::int64_t embedding_workspace_bytes(std::int64_t tokens);
void embedding_backward(const Embedding& shape, const void* dy, const std::int32_t* ids, void* gradient, void* workspace, int threads);

}  // namespace fathom::cpu
