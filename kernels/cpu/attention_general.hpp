// The f32 attention kernel for everything that is not one [q | k | v] buffer in the compute type: keys and values of other rows than the
// queries', absorbed latent rows that are key and value at once, unequal head sizes or chunks in bf16. Also what all cores share: the scale,
// executed pairs, and sinks.
//
// bf16 operands are widened sequence by sequence, so that the workspace is that of one sequence.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cpu/attention_f32.hpp"
#include "kernels/program.hpp"

namespace fathom::cpu {

inline double attention_scale(const fathom::Attention& op) {
  return 1.0 / std::sqrt(static_cast<double>(op.scale_dim > 0 ? op.scale_dim : op.qk_dim));
}

// Queries of a sequence that takes all its tokens.
inline std::int64_t queries_of(const fathom::Attention& op) { return op.sequences > 0 ? op.rows.count / op.sequences : 0; }

// What the f32 kernel does for one sequence of the op; positions are the caller's.
AttentionShape attention_shape(const fathom::Attention& op, std::int64_t queries, std::int64_t keys);

// (query, key) pairs that the mask leaves, and keys that any query sees; both position lists ascend.
struct AttentionExtent {
  u128 pairs = 0;
  std::int64_t keys = 0;
};
AttentionExtent attention_extent(const Mask& mask, std::span<const std::int32_t> queries, std::span<const std::int32_t> keys);

std::int64_t general_attention_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads);
std::int64_t general_attention_backward_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads);
void run_general_attention(const fathom::Attention& op, const BoundOp& bound, const Selection* selection, Executed& executed, void* scratch, int threads);
void run_general_attention_backward(const fathom::Attention& op, const BoundOp& bound, Executed& executed, void* scratch, int threads);

// A sink is one more logit per head in the denominator: with l the log-sum-exp without it, o shrinks by 1 / (1 + e^(sink - l)) and l becomes
// log(e^l + e^sink). `rows` rows of o [heads * v_dim] in the compute type, lse [rows, heads].
void add_sinks(const fathom::Attention& op, const OperandView& sinks, std::int64_t rows, std::byte* o, float* lse, int threads);
// dsink = -sum over rows of e^(sink - lse) <do, o>, o and lse with the sink in them.
void sink_gradient(const fathom::Attention& op, const OperandView& sinks, std::int64_t rows, const std::byte* o, const float* lse, const std::byte* d_o,
                   bool accumulate, const OperandView& dsinks);

}  // namespace fathom::cpu
