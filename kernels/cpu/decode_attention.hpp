// Attention of one new token per sequence over a KV cache, and the cache's layout and append.
//
//   s_a = scale * <q, k_a> over the visible keys a < count,  out = sum_a softmax(s)_a v_a
//
// Cache layout: K and V apart, each [slot][kv head][capacity][head_dim]: the keys of one (sequence, kv head) are one
// contiguous stream, read once for all query heads of the group. The work is bound by that stream up to about four query heads per kv head (of 128 features, on a core of
// family 26; more are bound by their products), so software asks for its lines in the order of memory and in step with the arithmetic. Long contexts are split into pieces of
// kDecodeSplit keys, of which every thread takes a contiguous share and which are merged in order; the split does not depend on the number of threads, so neither do
// results.
//
// A routed block keeps only the tokens that took it: counts are ragged per slot, a window acts on original positions, and only the
// rows of the sequences that take the block are passed (rows -> slots).
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_info.hpp"
#include "lib/dtype.hpp"

namespace fathom::cpu {

inline constexpr std::int64_t kDecodeSplit = 512;

struct KvCache {
  DType dtype = DType::kBF16;  // kBF16 or kF32
  int kv_heads = 1;
  int head_dim = 0;
  std::int64_t capacity = 0;   // keys per (slot, kv head)
  void* k = nullptr;
  void* v = nullptr;

  std::int64_t head_stride() const { return capacity * head_dim; }
  std::int64_t slot_stride() const { return kv_heads * head_stride(); }
  // Bytes of one of K and V for `slots` sequences.
  std::int64_t bytes(std::int64_t slots) const { return slots * slot_stride() * dtype_bytes(dtype); }
};

struct DecodeAttention {
  KvCache cache;
  int heads = 1;
  float scale = 1.0f;
  std::int64_t rows = 0;                     // sequences that take part
  const std::int32_t* slots = nullptr;       // [rows] cache slot of a row; null: row r is slot r
  const std::int32_t* counts = nullptr;      // [rows] keys of the row's slot, its own included; 0 gives zeros
  std::int64_t window = 0;                   // original positions seen, the query's included; 0: all
  const std::int32_t* positions = nullptr;   // [slot][capacity] original positions of the cached keys, ascending; null: 0, 1, 2, ...
                                             // (used only with a window; the query's position is that of its last key)
  const void* q = nullptr;                   // [rows, heads * head_dim], dtype of the cache
  void* out = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t out_stride = 0;
};

// Scratch for any counts up to the capacity, any alignment.
std::int64_t decode_attention_scratch_bytes(const DecodeAttention& call, int threads);

// Computes on `threads` OpenMP threads without allocating. Throws an internal Error for impossible shapes.
void decode_attention(const DecodeAttention& call, void* scratch, int threads, Isa level = isa());

// Copies rows [rows, kv_heads * head_dim] of new keys and values (strides in elements, the cache's dtype) to position
// at[r] of slot slots[r] (null: slot r). The caller counts; throws an internal Error beyond the capacity.
void kv_append(const KvCache& cache, const void* k, std::int64_t k_stride, const void* v, std::int64_t v_stride, std::int64_t rows,
               const std::int32_t* slots, const std::int32_t* at);

}  // namespace fathom::cpu
