// Shared by the instruction-set twins of decode_attention. Not for users.
#pragma once

#include "kernels/cpu/decode_attention.hpp"

namespace fathom::cpu::detail {

// Floats of one partial result (one piece, one query head): the weighted sum of values in load order, then maximum and sum.
inline std::int64_t decode_features(int head_dim) { return (head_dim + 31) / 32 * 32; }
inline std::int64_t decode_partial(int head_dim) { return decode_features(head_dim) + 16; }
inline std::int64_t decode_pieces(std::int64_t keys) { return (keys + kDecodeSplit - 1) / kDecodeSplit; }

// First visible key of a row.
std::int64_t decode_first_key(const DecodeAttention& call, std::int64_t row);

void decode_base(const DecodeAttention& call, float* scratch, int threads);
void decode_avx2(const DecodeAttention& call, float* scratch, int threads);
void decode_avx512(const DecodeAttention& call, float* scratch, int threads);
void decode_avx512_bf16(const DecodeAttention& call, float* scratch, int threads);  // where vdpbf16ps is twice as fast as f32 multiply-adds

}  // namespace fathom::cpu::detail
