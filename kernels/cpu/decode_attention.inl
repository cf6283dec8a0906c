// The body of decode_attention.hpp for one instruction set; FATHOM_TWIN names the copy.
//
// A piece runs in blocks of at most 64 keys, K and V of a block fitting L1 together, so that all query heads of a group find them there: scores of 16 keys at
// a time into 16 accumulators with one transposed reduction (a reduction per key costs a third of the bandwidth), one maximum per block and head, then the weighted
// sum of values for up to four heads at once, in registers over the block. Memory is kept busy throughout: while scores are computed the block's values are asked for,
// while values are summed the next block's keys.
#include "kernels/cpu/decode_attention_detail.hpp"
#include "kernels/cpu/lanes16.inl"

#include <omp.h>

namespace fathom::cpu::detail {
namespace {

constexpr int kKeys = 64;       // of a block at most
constexpr int kBlock = 16384;   // bytes of keys in a block at most
constexpr int kHeads = 8;       // query heads that go through a block together

// Lane i of the result is the sum of the lanes of v[i].
inline V16 sum_rows(V16* v) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    v[i] = __builtin_shufflevector(v[i], v[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(v[i], v[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = __builtin_shufflevector(v[i], v[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
           __builtin_shufflevector(v[i], v[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    v[i] = __builtin_shufflevector(v[i], v[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(v[i], v[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  return __builtin_shufflevector(v[0], v[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
         __builtin_shufflevector(v[0], v[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}

inline float lane_max(const V16& lanes) {
#if defined(__AVX512BW__)
  return _mm512_reduce_max_ps((__m512)lanes);
#endif
  V16 v = lanes;
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] = v[i] > v[i + step] ? v[i] : v[i + step];
  }
  return v[0];
}

// A block of keys and values: `count` of them, head_dim features each; `next` are the keys to ask for, null: none.
template <class T>
struct Block {
  const T* keys;
  const T* values;
  const T* next;
  int count, head_dim;
};

inline void ask(const void* p) { __builtin_prefetch(p); }

// Scores times c of 16 keys from key 16 i on, for one query; lanes past the block's end are far below every score.
template <class T>
inline V16 scores(const Block<T>& block, int i, const Factor<T>* query, float c, bool ask_values) {
  using F = Factor<T>;
  const int left = block.count - i * kLanes, stride = block.head_dim;
  const T* const first = block.keys + std::int64_t{i} * kLanes * stride;
  const T* const value = block.values + std::int64_t{i} * kLanes * stride;
  V16 acc[kLanes] = {};
  for (int chunk = 0; chunk * F::kElements < stride; ++chunk) {
    const int at = chunk * F::kElements;
    const bool whole = at + F::kElements <= stride;
    if (ask_values) {
      for (int j = 0; j < kLanes && j < left; ++j) ask(value + j * stride + at);
    }
    if (left >= kLanes && whole) {
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) acc[j] = add_product(acc[j], F::load(first + j * stride + at), query[chunk]);
    } else {
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) {
        const T* const key = first + (j < left ? j : left - 1) * stride + at;
        acc[j] = add_product(acc[j], whole ? F::load(key) : F::tail(key, stride - at), query[chunk]);
      }
    }
  }
  V16 result = sum_rows(acc) * c;
  for (int j = left; j < kLanes; ++j) result[j] = -3e38f;
  return result;
}

// Scores to weights relative to the largest score so far; the partial's maximum and sum become those after the block. Returns the factor of what was summed before.
inline float weigh(V16* p, int vectors, float* max_and_sum) {
  V16 top = p[0];
  for (int i = 1; i < vectors; ++i) top = top > p[i] ? top : p[i];
  const float old = max_and_sum[0], here = lane_max(top), max = here > old ? here : old;
  const float factor = exp2_lanes(V16{} + (old - max))[0];
  V16 sum = {};
  for (int i = 0; i < vectors; ++i) {
    const I16 hidden = p[i] < -2e38f;
    const V16 e = exp2_lanes(p[i] - max);
    p[i] = hidden ? V16{} : e;
    sum += p[i];
  }
  max_and_sum[0] = max;
  max_and_sum[1] = max_and_sum[1] * factor + lane_sum(sum);
  return factor;
}

// The kChunks chunks from `chunk` on of kGroup sums: sum = sum * factor + weights times values. Sums lie `stride` floats apart, weights kKeys.
template <class T, int kGroup, int kChunks, bool whole>
inline void add_values(const Block<T>& block, int chunk, const float* weights, const float* factors, float* sums, std::int64_t stride, bool ask_next) {
  using C = Chunk<T>;
  V16 acc[kGroup][kChunks * C::kParts];
  float* const to = sums + chunk * C::kParts * kLanes;
  for (int g = 0; g < kGroup; ++g) {
    for (int i = 0; i < kChunks * C::kParts; ++i) {
      std::memcpy(&acc[g][i], to + g * stride + i * kLanes, sizeof(V16));
      acc[g][i] *= factors[g];
    }
  }
  const std::int64_t first = std::int64_t{chunk} * C::kElements;
  for (int j = 0; j < block.count; ++j) {
    const std::int64_t at = std::int64_t{j} * block.head_dim + first;
    C value[kChunks];
#pragma GCC unroll 2
    for (int i = 0; i < kChunks; ++i) {
      if (ask_next) ask(block.next + at + i * C::kElements);
      value[i] = whole ? C::load(block.values + at + i * C::kElements) : load_tail(block.values + at, block.head_dim - first);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroup; ++g) {
      const V16 weight = V16{} + weights[g * kKeys + j];
#pragma GCC unroll 2
      for (int i = 0; i < kChunks; ++i) {
#pragma GCC unroll 2
        for (int part = 0; part < C::kParts; ++part) acc[g][i * C::kParts + part] += value[i].part[part] * weight;
      }
    }
  }
  for (int g = 0; g < kGroup; ++g) {
    for (int i = 0; i < kChunks * C::kParts; ++i) std::memcpy(to + g * stride + i * kLanes, &acc[g][i], sizeof(V16));
  }
}

template <class T, int kGroup>
inline void add_values(const Block<T>& block, const float* weights, const float* factors, float* sums, std::int64_t stride, bool ask_next) {
  const int whole = block.head_dim / Chunk<T>::kElements;
  int chunk = 0;
  for (; chunk + 2 <= whole; chunk += 2) add_values<T, kGroup, 2, true>(block, chunk, weights, factors, sums, stride, ask_next);
  if (chunk < whole) add_values<T, kGroup, 1, true>(block, chunk, weights, factors, sums, stride, ask_next), ++chunk;
  if (whole * Chunk<T>::kElements < block.head_dim) add_values<T, kGroup, 1, false>(block, chunk, weights, factors, sums, stride, ask_next);
}

// One piece of one (row, kv head): `group` query heads over keys [begin, end).
template <class T>
void run_piece(const T* keys, const T* values, std::int64_t begin, std::int64_t end, int head_dim, int group, float c, const Factor<T>* q,
               std::int64_t features, float* partials, std::int64_t partial_stride) {
  const int chunks = (head_dim + Factor<T>::kElements - 1) / Factor<T>::kElements;
  for (int g = 0; g < group; ++g) {
    float* const partial = partials + g * partial_stride;
    for (std::int64_t i = 0; i < features; ++i) partial[i] = 0.0f;
    partial[features] = -1e30f;
    partial[features + 1] = 0.0f;
  }
  int step = kKeys;
  while (step > kLanes && step * head_dim * static_cast<int>(sizeof(T)) > kBlock) step /= 2;
  for (std::int64_t key = begin; key < end; key += step) {
    const int count = static_cast<int>(end - key < step ? end - key : step), vectors = (count + kLanes - 1) / kLanes;
    const bool more = key + step < end;
    // As many keys as this block has are asked for, though the next one may have fewer: they lie behind it, or nowhere, which is harmless.
    const Block<T> block{keys + key * head_dim, values + key * head_dim, keys + (key + step) * head_dim, count, head_dim};
    for (int g0 = 0; g0 < group; g0 += kHeads) {
      const int heads = group - g0 < kHeads ? group - g0 : kHeads;
      alignas(64) V16 p[kHeads][kKeys / kLanes];
      float factors[kHeads];
      float* const sums = partials + g0 * partial_stride;
      for (int i = 0; i < vectors; ++i) {
        for (int g = 0; g < heads; ++g) p[g][i] = scores(block, i, q + std::int64_t{g0 + g} * chunks, c, g0 + g == 0);
      }
      for (int g = 0; g < heads; ++g) factors[g] = weigh(p[g], vectors, sums + g * partial_stride + features);
      const float* const weights = reinterpret_cast<const float*>(p);
      for (int g = 0; g < heads; g += 4) {
        const bool ask_next = more && g0 + g == 0;
        const float* const w = weights + g * kKeys;
        float* const s = sums + g * partial_stride;
        switch (heads - g) {
          case 1: add_values<T, 1>(block, w, factors + g, s, partial_stride, ask_next); break;
          case 2: add_values<T, 2>(block, w, factors + g, s, partial_stride, ask_next); break;
          case 3: add_values<T, 3>(block, w, factors + g, s, partial_stride, ask_next); break;
          default: add_values<T, 4>(block, w, factors + g, s, partial_stride, ask_next); break;
        }
      }
    }
  }
}

template <class T>
void store_result(const DecodeAttention& call, std::int64_t row, int head, int i, float value) {
  T* const to = static_cast<T*>(call.out) + row * call.out_stride + std::int64_t{head} * call.cache.head_dim + i;
  if constexpr (sizeof(T) == 2) {
    to->bits = narrow(value);
  } else {
    *to = value;
  }
}

// Merges the pieces of one query head in order.
template <class T>
void merge(const DecodeAttention& call, std::int64_t row, int head, const float* partials, std::int64_t pieces, std::int64_t stride) {
  using C = Chunk<T>;
  const int head_dim = call.cache.head_dim;
  const std::int64_t features = decode_features(head_dim);
  float max = -1e30f, sum = 0;
  for (std::int64_t i = 0; i < pieces; ++i) max = partials[i * stride + features] > max ? partials[i * stride + features] : max;
  for (std::int64_t i = 0; i < pieces; ++i) {
    sum += partials[i * stride + features + 1] * exp2_lanes(V16{} + (partials[i * stride + features] - max))[0];
  }
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int first = 0; first < head_dim; first += C::kElements) {
    V16 total[C::kParts] = {};
    for (std::int64_t i = 0; i < pieces; ++i) {
      const float factor = exp2_lanes(V16{} + (partials[i * stride + features] - max))[0] * inverse;
      for (int part = 0; part < C::kParts; ++part) {
        V16 o;
        std::memcpy(&o, partials + i * stride + first / C::kElements * C::kParts * kLanes + part * kLanes, sizeof(V16));
        total[part] += o * factor;
      }
    }
    for (int i = 0; i < C::kElements && first + i < head_dim; ++i) store_result<T>(call, row, head, first + i, element<T>(total, i));
  }
}

template <class T>
void decode(const DecodeAttention& call, float* scratch, int threads) {
  const KvCache& cache = call.cache;
  const int group = call.heads / cache.kv_heads, head_dim = cache.head_dim;
  const float c = call.scale * 1.44269504088896340736f;
  const std::int64_t features = decode_features(head_dim), partial = decode_partial(head_dim);
  std::int64_t pieces = 0;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const std::int64_t own = decode_pieces(call.counts[r] - decode_first_key(call, r));
    pieces = own > pieces ? own : pieces;
  }
  const std::int64_t tasks = call.rows * cache.kv_heads * pieces;
  float* const queries = scratch + call.rows * call.heads * (decode_pieces(cache.capacity) + 1) * partial;
  const std::int64_t head_stride = pieces * partial;  // partials: [row][head][piece]

#pragma omp parallel num_threads(threads)
  {
    using F = Factor<T>;
    F* const q = reinterpret_cast<F*>(queries + omp_get_thread_num() * group * features);  // a query takes at most 4 bytes per feature, rounded up as in a partial
    const int chunks = (head_dim + F::kElements - 1) / F::kElements;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t t = 0; t < tasks; ++t) {
      const std::int64_t piece = t % pieces, kv = t / pieces % cache.kv_heads, row = t / pieces / cache.kv_heads;
      const std::int64_t begin = decode_first_key(call, row) + piece * kDecodeSplit, count = call.counts[row];
      if (begin >= count) continue;
      const std::int64_t end = begin + kDecodeSplit < count ? begin + kDecodeSplit : count;
      const std::int64_t slot = call.slots ? call.slots[row] : row;
      const T* const query = static_cast<const T*>(call.q) + row * call.q_stride + kv * group * head_dim;
      const std::int64_t at = slot * cache.slot_stride() + kv * cache.head_stride();
      const char* const keys = reinterpret_cast<const char*>(static_cast<const T*>(cache.k) + at + begin * head_dim);
      for (int line = 0; line < 32; ++line) ask(keys + line * 64);  // on their way while the queries are laid out
      for (int g = 0; g < group; ++g) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
          const T* const from = query + g * head_dim + chunk * F::kElements;
          const int left = head_dim - chunk * F::kElements;
          q[g * chunks + chunk] = left >= F::kElements ? F::load(from) : F::tail(from, left);
        }
      }
      run_piece<T>(static_cast<const T*>(cache.k) + at, static_cast<const T*>(cache.v) + at, begin, end, head_dim, group, c, q, features,
                   scratch + (row * call.heads + kv * group) * head_stride + piece * partial, head_stride);
    }
#pragma omp for schedule(static)
    for (std::int64_t t = 0; t < call.rows * call.heads; ++t) {
      const std::int64_t row = t / call.heads, own = decode_pieces(call.counts[row] - decode_first_key(call, row));
      merge<T>(call, row, static_cast<int>(t % call.heads), scratch + t * head_stride, own, partial);
    }
  }
}

}  // namespace

void FATHOM_TWIN(decode)(const DecodeAttention& call, float* scratch, int threads) {
  if (call.cache.dtype == DType::kBF16) {
    decode<bf16>(call, scratch, threads);
  } else {
    decode<float>(call, scratch, threads);
  }
}

}  // namespace fathom::cpu::detail
