#include "kernels/cpu/kv_cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/attention_f32.hpp"
#include "kernels/cpu/attention_general.hpp"
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/decode_attention.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/cpu/ranges.hpp"
#include "lib/error.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace fathom::cpu {
namespace {

float load_one(DType type, const std::byte* from, std::int64_t i) {
  return type == DType::kF32 ? reinterpret_cast<const float*>(from)[i] : static_cast<float>(reinterpret_cast<const bf16*>(from)[i]);
}

void store_one(DType type, std::byte* to, std::int64_t i, float value) {
  if (type == DType::kF32)
    reinterpret_cast<float*>(to)[i] = value;
  else
    reinterpret_cast<bf16*>(to)[i] = bf16(value);
}

// `count` elements with conversion where the types differ.
void copy_elements(DType from_type, const std::byte* from, std::int64_t from_at, DType to_type, std::byte* to, std::int64_t to_at, std::int64_t count) {
  const std::int64_t size = dtype_bytes(to_type);
  if (from_type == to_type)
    std::memcpy(to + to_at * size, from + from_at * size, static_cast<size_t>(count * size));
  else
    for (std::int64_t i = 0; i < count; ++i) store_one(to_type, to, to_at + i, load_one(from_type, from, from_at + i));
}

#if defined(__SSE2__)
// Past the caches, 16 bytes at a time, where the pieces allow it.
bool copy_past_caches(const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(to) % 16 != 0) return false;
  for (std::int64_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  return true;
}
void finish_past_caches() { _mm_sfence(); }
#else
bool copy_past_caches(const std::byte*, std::byte*, std::int64_t) { return false; }
void finish_past_caches() {}
#endif

// Visits (element in row form, element in the cache's layout) of every value.
template <class Visit>
void each_element(const KvLayout& layout, const Visit& visit) {
  for (std::int64_t b = 0; b < layout.sequences; ++b)
    for (std::int64_t slot = 0; slot < layout.capacity; ++slot) {
      std::int64_t at = (b * layout.capacity + slot) * layout.width();
      for (std::int64_t h = 0; h < layout.kv_heads; ++h)
        for (std::int64_t i = 0; i < layout.k_dim; ++i) visit(at++, layout.k_at(b, h) + slot * layout.k_dim + i);
      for (std::int64_t h = 0; h < layout.kv_heads; ++h)
        for (std::int64_t i = 0; i < layout.v_dim; ++i) visit(at++, layout.v_at(b, h) + slot * layout.v_dim + i);
    }
}

// Elements of one row of the tensor that holds the queries.
std::int64_t query_stride(const fathom::Attention& op) { return op.heads * op.qk_dim + (op.apart ? 0 : op.kv_heads * (op.qk_dim + op.v_dim)); }
size_t cache_input(const fathom::Attention& op) { return op.apart ? 4 : 2; }
std::int64_t group_of(const fathom::Attention& op) { return op.heads / op.kv_heads; }
std::int64_t capacity_of(const fathom::Attention& op, std::int64_t cache_rows) { return op.sequences > 0 ? cache_rows / op.sequences : 0; }

bool streams(const fathom::Attention& op) {
  return queries_of(op) <= 1 && op.act == op.kv && op.qk_dim == op.v_dim && op.mask.chunk == 0 && !op.sinks && !op.shared_kv;
}

// Every token of a routed block keeps keys and values: list places are positions, also for queries that were selected.
bool all_keys(const fathom::Attention& op, const BoundOp& bound) { return op.apart && bound.in[3].at != bound.in[1].at; }

// [sequence][capacity] original positions of the cached keys; null where the list's places are enough.
const std::int32_t* kept_positions(const fathom::Attention& op, const BoundOp& bound) {
  return op.kept_positions ? bound.in[bound.in.size() - (op.sinks ? 2 : 1)].as<std::int32_t>() : nullptr;
}

std::int64_t first_visible(const Mask& mask, std::int64_t position) {
  if (mask.kind == MaskKind::kFull) return 0;
  if (mask.window > 0) return std::max<std::int64_t>(0, position - mask.window + 1);
  if (mask.chunk > 0) return position / mask.chunk * mask.chunk;
  return 0;
}

DecodeAttention decode_call(const fathom::Attention& op, std::int64_t capacity) {
  DecodeAttention call;
  call.cache.dtype = op.kv;
  call.cache.kv_heads = static_cast<int>(op.kv_heads);
  call.cache.head_dim = static_cast<int>(op.qk_dim);
  call.cache.capacity = capacity;
  call.heads = static_cast<int>(op.heads);
  call.scale = static_cast<float>(attention_scale(op));
  call.rows = op.sequences;
  call.window = op.mask.kind == MaskKind::kFull ? 0 : op.mask.window;
  call.q_stride = query_stride(op);
  call.out_stride = op.heads * op.v_dim;
  return call;
}

AttentionShape chunk_shape(const fathom::Attention& op, std::int64_t queries, std::int64_t keys) {
  AttentionShape shape;
  shape.q_rows = queries;
  shape.kv_rows = keys;
  shape.heads = group_of(op);
  shape.kv_heads = 1;
  shape.d_qk = op.qk_dim;
  shape.d_v = op.v_dim;
  shape.causal = op.mask.kind == MaskKind::kCausal;
  shape.window = shape.causal ? op.mask.window : 0;
  shape.chunk = shape.causal ? op.mask.chunk : 0;
  shape.q_offset = keys - queries;
  shape.scale = static_cast<float>(attention_scale(op));
  return shape;
}

// f32 copies of one head's keys and values and of a group's queries and results, where the operands are of another type.
struct ChunkScratch {
  float *k = nullptr, *v = nullptr, *q = nullptr, *out = nullptr, *lse = nullptr;
  std::byte* attention = nullptr;
  std::int64_t bytes = 0;
};
ChunkScratch chunk_scratch(const fathom::Attention& op, std::int64_t capacity, std::byte* base) {
  ChunkScratch s;
  Pieces pieces(base);
  if (op.kv != DType::kF32) s.k = pieces.take<float>(capacity * op.qk_dim), s.v = pieces.take<float>(op.shared_kv ? 0 : capacity * op.v_dim);
  if (op.act != DType::kF32) s.q = pieces.take<float>(queries_of(op) * group_of(op) * op.qk_dim), s.out = pieces.take<float>(queries_of(op) * group_of(op) * op.v_dim);
  if (op.sinks) s.lse = pieces.take<float>(queries_of(op) * group_of(op));
  s.bytes = pieces.bytes();
  s.attention = base ? base + s.bytes : nullptr;
  return s;
}

void widen(DType type, const std::byte* from, std::int64_t at, float* to, std::int64_t count, int threads) {
  if (type == DType::kF32)
    std::memcpy(to, reinterpret_cast<const float*>(from) + at, static_cast<size_t>(count) * sizeof(float));
  else
    bf16_to_f32(reinterpret_cast<const bf16*>(from) + at, to, count, threads);
}

// The sinks of one group of heads join the sums of its f32 results.
void add_group_sinks(const fathom::Attention& op, const OperandView& sinks, std::int64_t first_head, std::int64_t rows, View out, const float* lse) {
  const std::int64_t group = group_of(op);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t g = 0; g < group; ++g) {
      const float l = lse[i * group + g];
      const float over = std::isinf(l) ? 0.0f : 1.0f / (1.0f + std::exp(load_one(sinks.dtype, sinks.data, first_head + g) - l));
      float* o = out.data + i * out.row_stride + g * op.v_dim;
      for (std::int64_t c = 0; c < op.v_dim; ++c) o[c] *= over;
    }
}

// One sequence: n queries from row `row` on, `keys` cached keys.
void run_chunk(const fathom::Attention& op, const BoundOp& bound, const KvLayout& layout, std::int64_t sequence, std::int64_t row, std::int64_t n,
               std::int64_t keys, std::byte* scratch, int threads) {
  const ChunkScratch s = chunk_scratch(op, layout.capacity, scratch);
  const std::byte* cache = bound.in[cache_input(op)].data;
  AttentionShape shape = chunk_shape(op, n, keys);
  if (all_keys(op, bound)) shape.q_positions = bound.in[1].as<std::int32_t>() + row;
  if (const std::int32_t* kept = kept_positions(op, bound)) {
    shape.q_positions = bound.in[1].as<std::int32_t>() + row;
    shape.kv_positions = kept + sequence * layout.capacity;
  }
  const std::int64_t group = group_of(op), stride = query_stride(op), out_stride = op.heads * op.v_dim;
  const std::int64_t q_width = group * op.qk_dim, out_width = group * op.v_dim;
  for (std::int64_t h = 0; h < op.kv_heads; ++h) {
    ConstView k{nullptr, op.qk_dim}, v{nullptr, op.v_dim}, q{nullptr, stride};
    View out{nullptr, out_stride};
    if (op.kv == DType::kF32) {
      k.data = reinterpret_cast<const float*>(cache) + layout.k_at(sequence, h);
      v.data = reinterpret_cast<const float*>(cache) + layout.v_at(sequence, h);
    } else {
      widen(op.kv, cache, layout.k_at(sequence, h), s.k, keys * op.qk_dim, threads);
      if (!op.shared_kv) widen(op.kv, cache, layout.v_at(sequence, h), s.v, keys * op.v_dim, threads);
      k.data = s.k, v.data = s.v;
    }
    if (op.shared_kv) v = {k.data, op.qk_dim};  // the latent row is both
    if (op.act == DType::kF32) {
      q.data = bound.in[0].as<float>() + row * stride + h * q_width;
      out.data = bound.out[0].as<float>() + row * out_stride + h * out_width;
    } else {
      for (std::int64_t i = 0; i < n; ++i) widen(op.act, bound.in[0].data, (row + i) * stride + h * q_width, s.q + i * q_width, q_width, 1);
      q.data = s.q, q.row_stride = q_width;
      out.data = s.out, out.row_stride = out_width;
    }
    attention_f32(shape, q, k, v, out, op.sinks ? s.lse : nullptr, s.attention, threads);
    if (op.sinks) add_group_sinks(op, bound.in.back(), h * group, n, out, s.lse);
    if (op.act != DType::kF32)
      for (std::int64_t i = 0; i < n; ++i)
        f32_to_bf16(s.out + i * out_width, bound.out[0].as<bf16>() + (row + i) * out_stride + h * out_width, out_width, 1);
  }
}

}  // namespace

KvLayout kv_layout(const fathom::Attention& op, const Tensor& cache, std::int64_t sequences) {
  KvLayout layout{cache.dtype, sequences, sequences > 0 ? cache.rows / sequences : 0, op.kv_heads, op.qk_dim, op.shared_kv ? 0 : op.v_dim};
  if (layout.width() != cache.cols) throw_internal("the cache's width is not that of its attention's keys and values");
  return layout;
}

void store_kv(const KvLayout& layout, std::span<const float> rows, std::byte* cache) {
  each_element(layout, [&](std::int64_t from, std::int64_t to) { store_one(layout.dtype, cache, to, rows[static_cast<size_t>(from)]); });
}

std::vector<float> load_kv(const KvLayout& layout, const std::byte* cache) {
  std::vector<float> rows(static_cast<size_t>(layout.sequences * layout.capacity * layout.width()));
  each_element(layout, [&](std::int64_t to, std::int64_t from) { rows[static_cast<size_t>(to)] = load_one(layout.dtype, cache, from); });
  return rows;
}

void append_kv(const KvLayout& layout, const KvAppendCall& call, int threads) {
  std::int32_t* sequence_of = call.slots;
  std::int32_t* slot_of = call.slots + call.rows;
  for (std::int64_t i = 0; i < call.rows; ++i) {
    const std::int64_t b = call.indices ? call.indices[i] / call.queries : i / std::max<std::int64_t>(1, call.rows_per_sequence);
    if (call.counts[b] >= layout.capacity) throw_internal("a KV cache list is full");
    sequence_of[i] = static_cast<std::int32_t>(b);
    slot_of[i] = call.counts[b]++;
    if (call.kept) call.kept[b * layout.capacity + slot_of[i]] = call.positions[i];
  }
  // Every head's rows lie together in the cache, a token's heads together in its source: a few tokens, head by head. An append that the caches would not keep
  // goes past them, or every line of the cache is read before it is written. 2048 x 2 x 9 heads of 64 f32 to DRAM, EPYC (family 25), one core: token by token 2840 us,
  // past the caches 2080, 16 tokens at a time 1800, a plain copy of as many bytes 1620.
  constexpr std::int64_t kTogether = 16, kKept = 4 << 20;
  const std::int64_t size = dtype_bytes(layout.dtype), bytes_per_row = layout.width() * (dtype_bytes(call.act) + size);
  const bool past = call.act == layout.dtype && call.rows * layout.width() * size > kKept;
  const auto copy_heads = [&](std::int64_t begin, std::int64_t end, std::int64_t dim, std::int64_t column, bool values) {
    for (std::int64_t h = 0; h < layout.kv_heads; ++h, column += dim)
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t b = sequence_of[i], from = i * call.stride + call.offset + column, to = (values ? layout.v_at(b, h) : layout.k_at(b, h)) + slot_of[i] * dim;
        if (past && h + 1 < layout.kv_heads)
          for (std::int64_t line = 0; line < dim * size; line += 64) __builtin_prefetch(call.source + (from + dim) * size + line);
        if (!past || !copy_past_caches(call.source + from * size, call.cache + to * size, dim * size))
          copy_elements(call.act, call.source, from, layout.dtype, call.cache, to, dim);
      }
  };
  over_ranges(call.rows, threads, bytes_per_row, kTogether, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kTogether) {
      const std::int64_t last = std::min(end, i + kTogether);
      copy_heads(i, last, layout.k_dim, 0, false);
      if (layout.v_dim > 0) copy_heads(i, last, layout.v_dim, layout.kv_heads * layout.k_dim, true);
    }
    if (past) finish_past_caches();
  });
}

Support cached_attention_supported(const fathom::Attention& op) {
  if (op.lse) return {false, "attention over a cache has no backward pass"};
  return {};
}

std::int64_t cached_attention_scratch(const fathom::Attention& op, std::int64_t cache_rows, int threads) {
  const std::int64_t capacity = capacity_of(op, cache_rows);
  if (streams(op)) return 64 + 4 * op.sequences + decode_attention_scratch_bytes(decode_call(op, capacity), threads);
  return chunk_scratch(op, capacity, nullptr).bytes +
         static_cast<std::int64_t>(attention_f32_scratch_bytes(chunk_shape(op, queries_of(op), capacity), threads));
}

void run_cached_attention(const fathom::Attention& op, const BoundOp& bound, const Selection* selection, Executed& executed, void* scratch, int threads) {
  const OperandView& cache = bound.in[cache_input(op)];
  const std::int32_t* counts = bound.in[cache_input(op) + 1].as<std::int32_t>();
  const KvLayout layout{cache.dtype, op.sequences, cache.rows / std::max<std::int64_t>(1, op.sequences), op.kv_heads, op.qk_dim, op.shared_kv ? 0 : op.v_dim};
  executed.pairs = 0;
  executed.keys = 0;
  if (!selection && op.rows.count == 0) return;  // a block that nobody takes reads no key
  if (streams(op)) {
    DecodeAttention call = decode_call(op, layout.capacity);
    call.cache.k = cache.data;
    call.cache.v = cache.data + layout.v_at(0, 0) * dtype_bytes(cache.dtype);
    call.q = bound.in[0].data;
    call.out = bound.out[0].data;
    call.counts = counts;
    std::byte* rest = static_cast<std::byte*>(scratch);
    if (selection) {  // one new row per sequence: a selected row's index is its sequence
      call.rows = selection->total;
      call.slots = bound.in[cache_input(op) + 2].as<std::int32_t>();
      std::int32_t* own = static_cast<std::int32_t*>(scratch);
      for (std::int64_t r = 0; r < call.rows; ++r) own[r] = counts[call.slots[r]];
      call.counts = own;
      rest += (4 * op.sequences + 63) / 64 * 64;
    }
    call.positions = kept_positions(op, bound);
    for (std::int64_t r = 0; r < call.rows; ++r) {
      std::int64_t hidden = call.window > 0 ? std::max<std::int64_t>(0, call.counts[r] - call.window) : 0;
      if (call.positions && call.counts[r] > 0) {
        const std::int32_t* own = call.positions + (call.slots ? call.slots[r] : r) * layout.capacity;
        hidden = std::upper_bound(own, own + call.counts[r], own[call.counts[r] - 1] - call.window) - own;
      }
      executed.keys += call.counts[r] - hidden;
    }
    executed.pairs = static_cast<u128>(executed.keys);
    decode_attention(call, rest, threads);
    return;
  }
  std::int64_t row = 0;
  for (std::int64_t b = 0; b < op.sequences; ++b) {
    const std::int64_t n = selection ? selection->per_sequence[static_cast<size_t>(b)] : queries_of(op);
    if (n == 0) continue;
    const std::int64_t keys = counts[b];
    if (const std::int32_t* kept = kept_positions(op, bound)) {
      const AttentionExtent own = attention_extent(op.mask, {bound.in[1].as<std::int32_t>() + row, static_cast<size_t>(n)}, {kept + b * layout.capacity, static_cast<size_t>(keys)});
      executed.pairs += own.pairs, executed.keys += own.keys;
      run_chunk(op, bound, layout, b, row, n, keys, static_cast<std::byte*>(scratch), threads);
      row += n;
      continue;
    }
    const std::int32_t* positions = all_keys(op, bound) ? bound.in[1].as<std::int32_t>() + row : nullptr;
    std::int64_t seen = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t position = positions ? positions[j] : keys - n + j;
      const std::int64_t first = first_visible(op.mask, position), past = op.mask.kind == MaskKind::kFull ? keys : position + 1;
      executed.pairs += static_cast<u128>(past - first);
      executed.keys += std::max<std::int64_t>(0, past - std::max(first, seen));
      seen = std::max(seen, past);
    }
    run_chunk(op, bound, layout, b, row, n, keys, static_cast<std::byte*>(scratch), threads);
    row += n;
  }
}

std::string cached_attention_implementation(const fathom::Attention& op) {
  const std::string isa_text(isa_name(std::min(isa(), Isa::kAvx512)));
  if (streams(op)) return "decode stream (" + isa_text + ")";
  return std::string("flash f32 over the cache (") + isa_text + ")";
}

}  // namespace fathom::cpu
