// Causal attention on bf16 storage with f32 accumulation: forward for prefill and training, and backward.
//
//   S[b, a] = scale * <q_b, k_a>          for visible keys a of query b
//   P = softmax over visible a,  out_b = sum_a P[b, a] v_a,  lse_b = ln sum_a exp S[b, a]
//   dV_a = sum_b P[b, a] dO_b            D_b = <dO_b, out_b>
//   dS[b, a] = P[b, a] (<dO_b, v_a> - D_b)
//   dQ_b = scale * sum_a dS[b, a] k_a    dK_a = scale * sum_b dS[b, a] q_b
//
// Rows of a sequence ascend in original position, so key a is visible to query b iff a <= b in compact coordinates and,
// with a window W, position[b] - position[a] < W (the query itself included). A routed block passes its selected rows
// and their original positions: gaps count for the window, not for the triangle.
//
// No S x S matrix is stored: scores live in blocks of a few KiB (flash attention). With AMX the products run on tiles, P and
// dS rounded to bf16 between the two products; row sums are taken in f32 before that rounding. Without AMX the same
// functions run f32 arithmetic on AVX-512, AVX2 or the baseline. Results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_info.hpp"
#include "lib/dtype.hpp"

namespace fathom::cpu {

// Shape and inputs. A view is a pointer to row 0, head 0 and a row stride in elements; head h of a row starts at
// h * head_dim. q, k, v may be slices of one qkv buffer. Query head h uses key head h / (heads / kv_heads).
struct AttentionInputs {
  std::int64_t batch = 1;
  std::int64_t rows = 0;                         // rows of every sequence, unless sequence_begin is given
  const std::int64_t* sequence_begin = nullptr;  // [batch + 1] ascending row offsets of ragged sequences, [0] == 0
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 0;
  float scale = 1.0f;                            // usually 1 / sqrt(head_dim)
  std::int64_t window = 0;                       // visible original positions, the query's included; 0: no window
  const std::int32_t* positions = nullptr;       // [total rows] original positions, ascending in a sequence; null: 0, 1, 2, ...

  const bf16* q = nullptr;
  const bf16* k = nullptr;
  const bf16* v = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;

  std::int64_t begin(std::int64_t sequence) const { return sequence_begin ? sequence_begin[sequence] : sequence * rows; }
  std::int64_t total_rows() const { return begin(batch); }
};

// What the forward pass left: its output and log-sum-exp (natural logarithm of scaled scores), and the gradient of the output.
struct AttentionGradInputs {
  const bf16* out = nullptr;
  const bf16* dout = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t dout_stride = 0;
  const float* lse = nullptr;  // [total rows, heads]
};

struct AttentionGrads {
  bf16* dq = nullptr;
  bf16* dk = nullptr;
  bf16* dv = nullptr;
  std::int64_t dq_stride = 0;
  std::int64_t dk_stride = 0;
  std::int64_t dv_stride = 0;
};

// Bytes of scratch for the calls below, any alignment, any content. `level` is the instruction set that will execute
// (isa() by default).
std::int64_t attention_forward_scratch_bytes(const AttentionInputs& in, int threads, Isa level = isa());
std::int64_t attention_backward_scratch_bytes(const AttentionInputs& in, int threads, Isa level = isa());

// Writes out [total rows, heads * head_dim] at `out_stride` and, where lse is not null, lse [total rows, heads].
// Throws an internal Error for impossible shapes. Runs on `threads` OpenMP threads; allocates nothing.
void attention_forward(const AttentionInputs& in, bf16* out, std::int64_t out_stride, float* lse, void* scratch, int threads,
                       Isa level = isa());

// Writes (does not add to) dq, dk, dv, which may be slices of one dqkv buffer.
void attention_backward(const AttentionInputs& in, const AttentionGradInputs& grad, const AttentionGrads& out, void* scratch,
                        int threads, Isa level = isa());

}  // namespace fathom::cpu
