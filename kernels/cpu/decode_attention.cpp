// Checks, window starts, append and the choice of twin for decode_attention.hpp.
#include "kernels/cpu/decode_attention.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/decode_attention_detail.hpp"
#include "lib/error.hpp"

#if FATHOM_CPU

namespace fathom::cpu {
namespace {

void require(bool ok, const char* what) {
  if (!ok) throw_internal(std::string("decode_attention: ") + what);
}

void check(const DecodeAttention& call, int threads) {
  const KvCache& c = call.cache;
  require(c.dtype == DType::kBF16 || c.dtype == DType::kF32, "only f32 and bf16 caches");
  require(c.kv_heads > 0 && call.heads > 0 && call.heads % c.kv_heads == 0, "heads must be a multiple of kv_heads");
  require(c.head_dim > 0 && c.capacity >= 0 && call.rows >= 0 && threads > 0, "negative size, no features or no thread");
  require(call.scale > 0.0f && call.window >= 0, "scale must be positive, window not negative");
}

}  // namespace

namespace detail {

std::int64_t decode_first_key(const DecodeAttention& call, std::int64_t row) {
  const std::int64_t count = call.counts[row];
  if (call.window == 0 || count == 0) return 0;
  if (!call.positions) return std::max<std::int64_t>(0, count - call.window);
  const std::int32_t* positions = call.positions + (call.slots ? call.slots[row] : row) * call.cache.capacity;
  const std::int64_t oldest = std::int64_t{positions[count - 1]} - call.window + 1;
  return std::lower_bound(positions, positions + count, oldest) - positions;
}

}  // namespace detail

std::int64_t decode_attention_scratch_bytes(const DecodeAttention& call, int threads) {
  check(call, threads);
  const std::int64_t pieces = detail::decode_pieces(call.cache.capacity) + 1;
  const std::int64_t queries = threads * call.heads / call.cache.kv_heads * detail::decode_features(call.cache.head_dim);
  return 64 + 4 * (call.rows * call.heads * pieces * detail::decode_partial(call.cache.head_dim) + queries);
}

void decode_attention(const DecodeAttention& call, void* scratch, int threads, Isa level) {
  check(call, threads);
  for (std::int64_t r = 0; r < call.rows; ++r) {
    require(call.counts[r] >= 0 && call.counts[r] <= call.cache.capacity, "more keys than the cache holds");
  }
  if (call.rows == 0) return;
  auto* const aligned = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(scratch) + 63) / 64 * 64);
#if defined(__x86_64__)
  if (level == Isa::kAvx512 && bf16_products(level)) return detail::decode_avx512_bf16(call, aligned, threads);
  if (level >= Isa::kAvx512) return detail::decode_avx512(call, aligned, threads);
  if (level == Isa::kAvx2) return detail::decode_avx2(call, aligned, threads);
#endif
  detail::decode_base(call, aligned, threads);
}

void kv_append(const KvCache& cache, const void* k, std::int64_t k_stride, const void* v, std::int64_t v_stride, std::int64_t rows,
               const std::int32_t* slots, const std::int32_t* at) {
  const std::int64_t size = dtype_bytes(cache.dtype), row_bytes = cache.head_dim * size;
  for (std::int64_t r = 0; r < rows; ++r) {
    require(at[r] >= 0 && at[r] < cache.capacity, "append beyond the capacity of the cache");
    const std::int64_t slot = slots ? slots[r] : r;
    for (int h = 0; h < cache.kv_heads; ++h) {
      const std::int64_t to = (slot * cache.slot_stride() + h * cache.head_stride() + std::int64_t{at[r]} * cache.head_dim) * size;
      const std::int64_t from = std::int64_t{h} * cache.head_dim;
      std::memcpy(static_cast<char*>(cache.k) + to, static_cast<const char*>(k) + (r * k_stride + from) * size,
                  static_cast<std::size_t>(row_bytes));
      std::memcpy(static_cast<char*>(cache.v) + to, static_cast<const char*>(v) + (r * v_stride + from) * size,
                  static_cast<std::size_t>(row_bytes));
    }
  }
}

}  // namespace fathom::cpu

#endif  // FATHOM_CPU
