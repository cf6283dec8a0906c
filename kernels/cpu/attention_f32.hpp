// f32 attention, forward and backward, blocked so that no score matrix is ever stored (online softmax, Milakov and
// Gimelshein 2018; tiling and backward recomputation as in Dao et al. 2022).
//
//   out[i] = sum_j p[i,j] v[j],  p[i,.] = softmax_j(scale * q[i] . k[j]) over the keys visible to query i.
//
// Key j is visible to query i iff, with the original positions P (rows of a routed block keep theirs, with gaps):
//   causal:  P_k[j] <= P_q[i];   window W > 0:  P_q[i] - P_k[j] < W;   chunk K > 0:  floor(P_q[i]/K) == floor(P_k[j]/K).
// Positions ascend within a sequence, so the visible keys of a query are one index range; the kernels never look at
// positions. Blocks outside the range are skipped, and only blocks that cross its border are masked.
//
// Results do not depend on the number of threads: every output element is accumulated by one task in a fixed order, and
// the key split of the backward pass is a function of the shape alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fathom::cpu {

struct AttentionShape {
  std::int64_t batch = 1;    // sequences
  std::int64_t q_rows = 0;   // queries per sequence
  std::int64_t kv_rows = 0;  // keys per sequence
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads; query head h reads key head h / (heads / kv_heads)
  std::int64_t d_qk = 0;
  std::int64_t d_v = 0;
  bool causal = true;
  std::int64_t window = 0;    // 0: none; requires causal
  std::int64_t chunk = 0;     // 0: none
  std::int64_t q_offset = 0;  // without q_positions: position of query i is q_offset + i (chunked prefill after cached keys)
  float scale = 0.0f;         // > 0; 0 means 1 / sqrt(d_qk)
  // Original positions, [batch * q_rows] and [batch * kv_rows], ascending (equal allowed) within a sequence.
  // Null: q_offset + i for queries, j for keys.
  const std::int32_t* q_positions = nullptr;
  const std::int32_t* kv_positions = nullptr;
};

// A strided [rows, heads * head_size] view, typically into one qkv buffer [rows, (heads + 2 * kv_heads) * d].
// Element (sequence b, row r, head h, i) is data[b * batch_stride + r * row_stride + h * head_size + i].
struct ConstView {
  const float* data = nullptr;
  std::int64_t row_stride = 0;    // elements
  std::int64_t batch_stride = 0;  // elements; 0 means rows * row_stride (sequences follow each other)
};
struct View {
  float* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;
};

// Bytes of scratch the calls below need for this shape and thread count; any alignment will do. The instruction set is
// active_vector_isa() (vector_isa.hpp); ask again after forcing another one.
std::size_t attention_f32_scratch_bytes(const AttentionShape& shape, int threads);
std::size_t attention_f32_backward_scratch_bytes(const AttentionShape& shape, int threads);

// q, out: [batch, q_rows, heads * d_qk | d_v]; k, v: [batch, kv_rows, kv_heads * d_qk | d_v].
// lse (optional): [batch * q_rows, heads], log of the sum of exp(scale * q . k).
// A query that sees no key gets zeros and lse = -infinity. Throws Error on an impossible shape. Allocates nothing.
void attention_f32(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, View out, float* lse,
                   void* scratch, int threads);

// Gradients of the above, given its out and lse. Every element of dq, dk, dv is written (not added to).
void attention_f32_backward(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, ConstView out,
                            const float* lse, ConstView d_out, View dq, View dk, View dv, void* scratch, int threads);

}  // namespace fathom::cpu
