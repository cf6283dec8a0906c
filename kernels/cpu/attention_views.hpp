// From an Attention op and its operands to the attention kernels: one place that knows the qkv buffer's layout
// ([rows, q heads | k heads | v heads]) and which kernel serves which type.
#pragma once

#include "kernels/program.hpp"
#include "lib/backend.hpp"

namespace fathom::cpu {

Support attention_supported(const fathom::Attention& op);
// key_rows: rows of the cache, or of the tensor that holds keys and values, where they stand apart from the queries.
std::int64_t attention_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads);
std::int64_t attention_backward_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads);

// Runs the op; corrects executed pairs where they depend on positions or on a ragged cache.
void run_attention(const fathom::Attention& op, const BoundOp& bound, const Selection* selection, Executed& executed, void* scratch, int threads);
void run_attention_backward(const fathom::AttentionBackward& op, const BoundOp& bound, Executed& executed, void* scratch, int threads);
std::string attention_implementation(const fathom::Attention& op);

}  // namespace fathom::cpu
