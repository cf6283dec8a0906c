// The KV cache tensor of an op list as the CPU keeps it, the append to it, and attention that reads it.
//
// The op list's tensor is rows [sequence][slot] of [k of all kv heads | v of all kv heads]. The CPU keeps the same bytes as
//   K [sequence][kv head][capacity][k_dim], then V [sequence][kv head][capacity][v_dim]
// so that the keys of one (sequence, head) are one contiguous stream (decode_attention.hpp). Lists are ragged in routed blocks: row r of a
// sequence is its r-th token that took the block.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/program.hpp"

namespace fathom::cpu {

struct KvLayout {
  DType dtype = DType::kF32;
  std::int64_t sequences = 0;
  std::int64_t capacity = 0;
  std::int64_t kv_heads = 1;
  std::int64_t k_dim = 0;
  std::int64_t v_dim = 0;

  std::int64_t width() const { return kv_heads * (k_dim + v_dim); }
  // Element offsets of slot 0 of one (sequence, head).
  std::int64_t k_at(std::int64_t sequence, std::int64_t head) const { return (sequence * kv_heads + head) * capacity * k_dim; }
  std::int64_t v_at(std::int64_t sequence, std::int64_t head) const {
    return sequences * kv_heads * capacity * k_dim + (sequence * kv_heads + head) * capacity * v_dim;
  }
};

// Layout of the cache that holds the keys and values of this attention.
KvLayout kv_layout(const fathom::Attention& op, const Tensor& cache, std::int64_t sequences);

// From and to the op list's row form.
void store_kv(const KvLayout& layout, std::span<const float> rows, std::byte* cache);
std::vector<float> load_kv(const KvLayout& layout, const std::byte* cache);

// Appends `rows` rows whose keys and values stand `offset` elements into rows of `stride` elements of type `act`; row i belongs to sequence
// indices[i] / queries (null: i / rows_per_sequence), rows of a sequence follow each other. Advances counts. `slots`: scratch of 2 * rows.
struct KvAppendCall {
  DType act = DType::kF32;
  const std::byte* source = nullptr;
  std::int64_t rows = 0, stride = 0, offset = 0;
  const std::int32_t* indices = nullptr;
  std::int64_t queries = 1, rows_per_sequence = 1;
  std::byte* cache = nullptr;
  std::int32_t* counts = nullptr;
  std::int32_t* slots = nullptr;
  const std::int32_t* positions = nullptr;  // of the rows, with `kept`: where they are kept [sequence][capacity]
  std::int32_t* kept = nullptr;
};
void append_kv(const KvLayout& layout, const KvAppendCall& call, int threads);

// Attention over the cache: the n new rows of a sequence are the last n of its list. One new row per sequence runs the streaming kernel of
// decode_attention.hpp; more rows (chunked prefill), mixed types or unequal head sizes run the blocked f32 kernel per sequence and kv head.
Support cached_attention_supported(const fathom::Attention& op);
std::int64_t cached_attention_scratch(const fathom::Attention& op, std::int64_t cache_rows, int threads);
void run_cached_attention(const fathom::Attention& op, const BoundOp& bound, const Selection* selection, Executed& executed, void* scratch, int threads);
std::string cached_attention_implementation(const fathom::Attention& op);

}  // namespace fathom::cpu
