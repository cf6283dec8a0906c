// What the dispatcher (attention_f32.cpp) and the instruction-set twins share: task descriptions and the kernel table.
// Plain data only, no inline functions: an inline function compiled for a wider ISA could be the copy the linker keeps.
#pragma once

#include <cstdint>

namespace fathom::cpu::attention {

// One tile of queries (at most `tile` rows) of one head. Element (row, i) of a matrix is at p[row * stride + i].
struct ForwardTask {
  const float* q;
  const float* k;
  const float* v;
  float* out;
  float* lse;  // may be null; element (row) at lse[row * lse_stride]
  std::int64_t q_stride, k_stride, v_stride, out_stride, lse_stride;
  std::int64_t d_qk, d_v;
  int rows;                // queries in this tile
  const std::int32_t* lo;  // [tile] first visible key per query; entries past `rows` repeat the last row's
  const std::int32_t* hi;  // [tile] one past the last visible key
  float scale;
  float* scratch;  // forward_floats(d_qk, d_v), 64-byte aligned
};

// Gradients of the keys [key_begin, key_end) of one key head, from all query heads of its group.
struct BackwardTask {
  const float* q;  // first head of the group; the next heads follow at + d_qk
  const float* k;
  const float* v;
  const float* out;  // heads of the group at + d_v
  const float* d_out;
  const float* lse;  // heads of the group at + 1
  float* dk;
  float* dv;
  std::int64_t q_stride, k_stride, v_stride, out_stride, d_out_stride, lse_stride, dk_stride, dv_stride;
  std::int64_t d_qk, d_v;
  std::int64_t q_rows, key_begin, key_end;
  int group;
  const std::int32_t* lo;  // [tiles * tile]
  const std::int32_t* hi;
  float scale;
  float* dq_partial;  // [group][tiles][d_qk][tile]; tiles that touch the key range are set, others left alone
  float* scratch;     // backward_floats(...)
};

// Sums the partial dq of one tile of one head over the key parts and writes the rows.
struct ReduceTask {
  const float* partial[8];
  int parts;
  int rows;
  std::int64_t d_qk;
  float* dq;
  std::int64_t dq_stride;
  float scale;
  float* scratch;  // d_qk * tile
};

struct Kernels {
  int tile;  // queries per tile
  std::int64_t (*forward_floats)(std::int64_t d_qk, std::int64_t d_v);
  void (*forward)(const ForwardTask&);
  std::int64_t (*backward_floats)(std::int64_t q_rows, std::int64_t keys, std::int64_t d_qk, std::int64_t d_v);
  void (*backward)(const BackwardTask&);
  void (*reduce)(const ReduceTask&);
};

const Kernels& baseline_kernels();
const Kernels& avx2_kernels();    // defined in x86-64 builds; run only where vector_isa_supported
const Kernels& avx512_kernels();

}  // namespace fathom::cpu::attention
