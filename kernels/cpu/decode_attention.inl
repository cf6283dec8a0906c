// The body of decode_attention.hpp for one instruction set; FATHOM_TWIN names the copy.
//
// A piece runs in blocks of 64 keys: scores of 16 keys at a time into 16 accumulators with one transposed reduction (a
// reduction per key costs a third of the bandwidth), one maximum per block, then the weighted sum of values.
#include "kernels/cpu/decode_attention_detail.hpp"
#include "kernels/cpu/lanes16.inl"

#include <omp.h>

namespace fathom::cpu::detail {
namespace {

constexpr int kKeys = 64;
constexpr int kAhead = 6144;

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
  V16 v = lanes;
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] = v[i] > v[i + step] ? v[i] : v[i + step];
  }
  return v[0];
}

template <class T>
inline Chunk<T> load_part(const T* row, int first, int head_dim) {
  return first + Chunk<T>::kElements <= head_dim ? Chunk<T>::load(row + first) : load_tail(row + first, head_dim - first);
}

// One piece of one (row, kv head): `group` query heads over keys [begin, end).
template <class T>
void run_piece(const T* keys, const T* values, std::int64_t begin, std::int64_t end, int head_dim, int group, float c, const V16* q,
               std::int64_t features, float* partials, std::int64_t partial_stride) {
  using C = Chunk<T>;
  const int chunks = (head_dim + C::kElements - 1) / C::kElements;
  for (int g = 0; g < group; ++g) {
    float* const partial = partials + g * partial_stride;
    for (std::int64_t i = 0; i < features; ++i) partial[i] = 0.0f;
    partial[features] = -1e30f;
    partial[features + 1] = 0.0f;
  }
  for (std::int64_t key = begin; key < end; key += kKeys) {
    const int count = static_cast<int>(end - key < kKeys ? end - key : kKeys);
    for (int g = 0; g < group; ++g) {
      float* const partial = partials + g * partial_stride;
      const V16* const query = q + g * features / kLanes;
      alignas(64) V16 p[kKeys / kLanes];
      const int vectors = (count + kLanes - 1) / kLanes;
      V16 top = V16{} - 3e38f;
      for (int i = 0; i < vectors; ++i) {
        V16 acc[kLanes] = {};
        for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma GCC unroll 16
          for (int j = 0; j < kLanes; ++j) {
            const int at = i * kLanes + j < count ? i * kLanes + j : count - 1;
            const T* const row = keys + (key + at) * head_dim;
            if (g == 0) __builtin_prefetch(reinterpret_cast<const char*>(row + chunk * C::kElements) + kAhead);
            const C k = load_part(row, chunk * C::kElements, head_dim);
            for (int part = 0; part < C::kParts; ++part) acc[j] += k.part[part] * query[chunk * C::kParts + part];
          }
        }
        p[i] = sum_rows(acc) * c;
        if ((i + 1) * kLanes > count) {
          for (int j = count - i * kLanes; j < kLanes; ++j) p[i][j] = -3e38f;
        }
        top = top > p[i] ? top : p[i];
      }
      const float old = partial[features], block = lane_max(top), max = block > old ? block : old;
      const float factor = exp2_lanes(V16{} + (old - max))[0];
      V16 sum = {};
      for (int i = 0; i < vectors; ++i) {
        const I16 hidden = p[i] < -2e38f;
        const V16 e = exp2_lanes(p[i] - max);
        p[i] = hidden ? V16{} : e;
        sum += p[i];
      }
      partial[features] = max;
      partial[features + 1] = partial[features + 1] * factor + lane_sum(sum);
      const float* const weights = reinterpret_cast<const float*>(p);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        V16 acc[2][C::kParts];
        for (int part = 0; part < C::kParts; ++part) {
          std::memcpy(&acc[0][part], partial + (chunk * C::kParts + part) * kLanes, sizeof(V16));
          acc[0][part] *= factor;
          acc[1][part] = V16{};
        }
        const T* row = values + key * head_dim + chunk * C::kElements;
        const bool whole = (chunk + 1) * C::kElements <= head_dim;
        for (int j = 0; j < count; ++j, row += head_dim) {
          if (g == 0) __builtin_prefetch(reinterpret_cast<const char*>(row) + kAhead);
          const C v = whole ? C::load(row) : load_tail(row, head_dim - chunk * C::kElements);
          for (int part = 0; part < C::kParts; ++part) acc[j & 1][part] += v.part[part] * weights[j];
        }
        for (int part = 0; part < C::kParts; ++part) {
          const V16 total = acc[0][part] + acc[1][part];
          std::memcpy(partial + (chunk * C::kParts + part) * kLanes, &total, sizeof(V16));
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
  using C = Chunk<T>;
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
    V16* const q = reinterpret_cast<V16*>(queries + omp_get_thread_num() * group * features);
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t t = 0; t < tasks; ++t) {
      const std::int64_t piece = t % pieces, kv = t / pieces % cache.kv_heads, row = t / pieces / cache.kv_heads;
      const std::int64_t begin = decode_first_key(call, row) + piece * kDecodeSplit, count = call.counts[row];
      if (begin >= count) continue;
      const std::int64_t end = begin + kDecodeSplit < count ? begin + kDecodeSplit : count;
      const std::int64_t slot = call.slots ? call.slots[row] : row;
      const T* const query = static_cast<const T*>(call.q) + row * call.q_stride + kv * group * head_dim;
      for (int g = 0; g < group; ++g) {
        for (int first = 0; first < head_dim; first += C::kElements) {
          const C chunk = load_part(query + g * head_dim, first, head_dim);
          V16* const to = q + g * features / kLanes + first / C::kElements * C::kParts;
          for (int part = 0; part < C::kParts; ++part) to[part] = chunk.part[part];
        }
      }
      const std::int64_t at = slot * cache.slot_stride() + kv * cache.head_stride();
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
