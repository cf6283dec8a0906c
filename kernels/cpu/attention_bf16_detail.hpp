// Shared by the instruction-set twins of attention_bf16: validated call, padded layout, entry points. Not for users.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_bf16.hpp"

namespace fathom::cpu::detail {

// A validated call. Sequences are laid out in scratch at multiples of 32 rows: sequence s starts at padded_begin(s).
struct AttentionCall {
  AttentionInputs in;
  std::int64_t total_rows = 0;
  std::int64_t total_padded = 0;               // 32-row slots of all sequences
  std::int64_t max_rows = 0;                   // longest sequence
  int threads = 1;
  const std::int32_t* first_key = nullptr;     // [total rows] first visible key of a row, compact and per sequence; null: 0
  char* scratch = nullptr;                     // 64-byte aligned
};

// begin + 32 * s rounded down to 32: room for every sequence rounded up to 32, without a table.
inline std::int64_t padded_begin(std::int64_t begin, std::int64_t sequence) { return (begin & ~std::int64_t{31}) + 32 * sequence; }

// Head size rounded up to what a twin works on.
inline int padded_head(int head_dim, int multiple) { return (head_dim + multiple - 1) / multiple * multiple; }

constexpr int kMaxAmxHead = 256;

std::int64_t forward_bytes_amx(const AttentionCall& call);
void forward_amx(const AttentionCall& call, bf16* out, std::int64_t out_stride, float* lse);
std::int64_t backward_bytes_amx(const AttentionCall& call);
void backward_amx(const AttentionCall& call, const AttentionGradInputs& grad, const AttentionGrads& out);

// Grouped heads: every query head leaves f32 partials of dK (unscaled) and dV, [heads][dK, dV][total_padded][dp], at the
// front of scratch; write_group_gradients sums them in head order. 0 bytes where every query head has its own key head.
std::int64_t group_partial_bytes(const AttentionCall& call, int dp);
void write_group_gradients(const AttentionCall& call, const float* partials, int dp, const AttentionGrads& out);

// Scratch of the f32 twins does not depend on the instruction set.
std::int64_t forward_bytes_f32(const AttentionCall& call);
std::int64_t backward_bytes_f32(const AttentionCall& call);
#define FATHOM_ATTENTION_TWIN(suffix)                                                              \
  void forward_##suffix(const AttentionCall& call, bf16* out, std::int64_t out_stride, float* lse); \
  void backward_##suffix(const AttentionCall& call, const AttentionGradInputs& grad, const AttentionGrads& out);
FATHOM_ATTENTION_TWIN(base)
FATHOM_ATTENTION_TWIN(avx2)
FATHOM_ATTENTION_TWIN(avx512)
#undef FATHOM_ATTENTION_TWIN

}  // namespace fathom::cpu::detail
