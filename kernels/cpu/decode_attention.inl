// The body of decode_attention.hpp for one instruction set; FATHOM_TWIN names the copy.
//
// A piece runs in blocks of at most 64 keys, K and V of a block fitting L1 together, so that all query heads of a group find them there: scores of 16 keys at
// a time into 16 accumulators (8 with AVX2) with one transposed reduction (a reduction per key costs a third of the bandwidth), one maximum per block and head, then the weighted
// sum of values for up to four heads at once, in registers over the block. Memory is kept busy throughout: while scores are computed the block's values are asked for,
// while values are summed the next block's keys.
#include "kernels/cpu/decode_attention_detail.hpp"
#include "kernels/cpu/lanes.inl"

#include <omp.h>

namespace fathom::cpu::detail {
namespace {

constexpr int kKeys = 64;       // of a block at most
constexpr int kBlock = 16384;   // bytes of keys in a block at most
constexpr int kHeads = 8;       // query heads that go through a block together

inline float lane_max(const Vf& lanes) {
#if defined(__AVX512BW__)
  return _mm512_reduce_max_ps((__m512)lanes);
#endif
  Vf v = lanes;
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] = v[i] > v[i + step] ? v[i] : v[i + step];
  }
  return v[0];
}

// A block of keys and values: `count` of them; `next` are the keys to ask for, null: none.
template <class T>
struct Block {
  const T* keys;
  const T* values;
  const T* next;
  int count;
};

// Scores times c of 16 keys from key 16 i on, for one query; lanes past the block's end are far below every score. `dim` is a constant of the usual head sizes:
// sixteen addresses at constant distances need one register. For every chunk of features `lines` lines from `value` on are asked for, in the order of memory, which the
// hardware's own prefetching needs to keep up.
template <class T>
inline __attribute__((always_inline)) Vf scores(const Block<T>& block, int dim, int i, const Factor<T>* query, float c, const T* value, int lines) {
  constexpr int kElements = Chunk<T>::kElements;
  const int left = block.count - i * kLanes;
  const T* const first = block.keys + std::int64_t{i} * kLanes * dim;
  Vf acc[kLanes] = {};
  for (int at = 0, chunk = 0; at < dim; at += kElements, ++chunk) {
    for (int j = 0; j < lines; ++j, value += kElements) __builtin_prefetch(value);  // past the block's end too, which is harmless
    if (left >= kLanes && at + kElements <= dim) {
      const Factor<T> factor = query[chunk];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) acc[j] = add_product(acc[j], load_factor(first + j * dim + at), factor);
    } else {
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) {
        const T* const key = first + (j < left ? j : left - 1) * dim + at;
        acc[j] = add_product(acc[j], at + kElements <= dim ? load_factor(key) : load_factor(key, dim - at), query[chunk]);
      }
    }
  }
  Vf result = sum_rows(acc) * c;
  for (int j = left; j < kLanes; ++j) result[j] = -3e38f;
  return result;
}

// Scores to weights relative to the largest score so far; the partial's maximum and sum become those after the block. Returns the factor of what was summed before.
inline float weigh(Vf* p, int vectors, float* max_and_sum) {
  Vf top = p[0];
  for (int i = 1; i < vectors; ++i) top = top > p[i] ? top : p[i];
  const float old = max_and_sum[0], here = lane_max(top), max = here > old ? here : old;
  const float factor = exp2_lanes(Vf{} + (old - max))[0];
  Vf sum = {};
  for (int i = 0; i < vectors; ++i) {
    const Vi hidden = p[i] < -2e38f;
    const Vf e = exp2_lanes(p[i] - max);
    p[i] = hidden ? Vf{} : e;
    sum += p[i];
  }
  max_and_sum[0] = max;
  max_and_sum[1] = max_and_sum[1] * factor + lane_sum(sum);
  return factor;
}

// The kChunks chunks from `chunk` on of kGroup sums: sum = sum * factor + weights times values. Sums lie `stride` floats apart, weights kKeys.
// At every `every`-th key as many lines from `next` on are asked for as the sums take of a value; 0: none.
template <class T, int kGroup, int kChunks, bool whole>
inline __attribute__((always_inline)) void add_chunks(const Block<T>& block, int dim, int chunk, const float* weights, const float* factors, float* sums,
                                                      std::int64_t stride, const T* next, int every) {
  using C = Chunk<T>;
  Vf acc[kGroup][kChunks * C::kParts];
  float* const to = sums + chunk * C::kParts * kLanes;
  for (int g = 0; g < kGroup; ++g) {
    for (int i = 0; i < kChunks * C::kParts; ++i) {
      std::memcpy(&acc[g][i], to + g * stride + i * kLanes, sizeof(Vf));
      acc[g][i] *= factors[g];
    }
  }
  const int first = chunk * C::kElements;
  const T* value = block.values + first;
  int wait = 0;
  for (int j = 0; j < block.count; ++j, value += dim) {
    if (every && --wait < 0) {
      for (int i = 0; i < kChunks; ++i, next += C::kElements) __builtin_prefetch(next);
      wait = every - 1;
    }
    C v[kChunks];
#pragma GCC unroll 2
    for (int i = 0; i < kChunks; ++i) {
      v[i] = whole ? C::load(value + i * C::kElements) : load_tail(value, dim - first);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroup; ++g) {
      const float weight = weights[g * kKeys + j];
#pragma GCC unroll 2
      for (int i = 0; i < kChunks; ++i) {
#pragma GCC unroll 2
        for (int part = 0; part < C::kParts; ++part) acc[g][i * C::kParts + part] += v[i].part[part] * weight;
      }
    }
  }
  for (int g = 0; g < kGroup; ++g) {
    for (int i = 0; i < kChunks * C::kParts; ++i) std::memcpy(to + g * stride + i * kLanes, &acc[g][i], sizeof(Vf));
  }
}

// Of `tiles` such calls over one block this is number `tile`: each asks for its part of the next keys.
template <class T, int kGroup>
inline void add_values(const Block<T>& block, int dim, const float* weights, const float* factors, float* sums, std::int64_t stride, int tile, int tiles) {
  const int whole = dim / Chunk<T>::kElements, every = block.next && tile < tiles ? tiles : 0;
  const std::int64_t part = std::int64_t{block.count} * dim / tiles;
  const auto next = [&](int chunk) { return block.next + tile * part + part / dim * chunk * Chunk<T>::kElements; };
  int chunk = 0;
  for (; chunk + 2 <= whole; chunk += 2) add_chunks<T, kGroup, 2, true>(block, dim, chunk, weights, factors, sums, stride, next(chunk), every);
  if (chunk < whole) add_chunks<T, kGroup, 1, true>(block, dim, chunk, weights, factors, sums, stride, next(chunk), every), ++chunk;
  if (whole * Chunk<T>::kElements < dim) add_chunks<T, kGroup, 1, false>(block, dim, chunk, weights, factors, sums, stride, next(chunk), every);
}

template <class T>
struct Piece {
  const T* keys;
  const T* values;
  const T* next;  // the keys that the thread reads after these, null: none
  std::int64_t begin, end;
  int head_dim, group;
  float c;
  const Factor<T>* queries;
  std::int64_t features;
  float* partials;
  std::int64_t partial_stride;
};

// One piece of one (row, kv head): `group` query heads over keys [begin, end). kDim: head_dim where it is a usual one, else 0.
template <class T, int kDim>
void run_piece(const Piece<T>& p) {
  const int dim = kDim > 0 ? kDim : p.head_dim, group = p.group;
  const int chunks = (dim + Chunk<T>::kElements - 1) / Chunk<T>::kElements;
  for (int g = 0; g < group; ++g) {
    float* const partial = p.partials + g * p.partial_stride;
    for (std::int64_t i = 0; i < p.features; ++i) partial[i] = 0.0f;
    partial[p.features] = -1e30f;
    partial[p.features + 1] = 0.0f;
  }
  int step = kKeys;
  while (step > kLanes && step * dim * static_cast<int>(sizeof(T)) > kBlock) step /= 2;
  for (std::int64_t key = p.begin; key < p.end; key += step) {
    const int count = static_cast<int>(p.end - key < step ? p.end - key : step), vectors = (count + kLanes - 1) / kLanes;
    // As many keys as this block has are asked for, though the next one may have fewer: they lie behind it, or nowhere, which is harmless.
    const T* const next = key + step < p.end ? p.keys + (key + step) * dim : p.next;
    const Block<T> block{p.keys + key * dim, p.values + key * dim, next, count};
    for (int g0 = 0; g0 < group; g0 += kHeads) {
      const int heads = group - g0 < kHeads ? group - g0 : kHeads;
      alignas(64) Vf weights[kHeads][kKeys / kLanes];
      float factors[kHeads];
      float* const sums = p.partials + g0 * p.partial_stride;
      const Factor<T>* const queries = p.queries + std::int64_t{g0} * chunks;
      // The first heads ask for the block's values while they score keys, each for its part of those of the same 16 positions.
      const int lines = g0 == 0 ? (kLanes + heads - 1) / heads : 0;
      for (int i = 0; i < vectors; ++i) {
        for (int g = 0; g < heads; ++g) {
          const T* const value = block.values + (std::int64_t{i} * kLanes * chunks + std::int64_t{g} * lines * chunks) * Chunk<T>::kElements;
          weights[g][i] = scores(block, dim, i, queries + std::int64_t{g} * chunks, p.c, value, lines);
        }
      }
      for (int g = 0; g < heads; ++g) factors[g] = weigh(weights[g], vectors, sums + g * p.partial_stride + p.features);
      const int tiles = (heads + 3) / 4;
      for (int tile = 0; tile < tiles; ++tile) {
        const int g = 4 * tile, turn = g0 == 0 ? tile : tiles;  // later heads ask for nothing
        const float* const w = reinterpret_cast<const float*>(weights[g]);
        float* const s = sums + g * p.partial_stride;
        switch (heads - g) {
          case 1: add_values<T, 1>(block, dim, w, factors + g, s, p.partial_stride, turn, tiles); break;
          case 2: add_values<T, 2>(block, dim, w, factors + g, s, p.partial_stride, turn, tiles); break;
          case 3: add_values<T, 3>(block, dim, w, factors + g, s, p.partial_stride, turn, tiles); break;
          default: add_values<T, 4>(block, dim, w, factors + g, s, p.partial_stride, turn, tiles); break;
        }
      }
    }
  }
}

template <class T>
void run_piece(const Piece<T>& p) {
#if defined(__AVX512BW__)
  switch (p.head_dim) {
    case 64: return run_piece<T, 64>(p);
    case 80: return run_piece<T, 80>(p);
    case 96: return run_piece<T, 96>(p);
    case 128: return run_piece<T, 128>(p);
    case 256: return run_piece<T, 256>(p);
  }
#endif
  run_piece<T, 0>(p);
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
    sum += partials[i * stride + features + 1] * exp2_lanes(Vf{} + (partials[i * stride + features] - max))[0];
  }
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int first = 0; first < head_dim; first += C::kElements) {
    Vf total[C::kParts] = {};
    for (std::int64_t i = 0; i < pieces; ++i) {
      const float factor = exp2_lanes(Vf{} + (partials[i * stride + features] - max))[0] * inverse;
      for (int part = 0; part < C::kParts; ++part) {
        Vf o;
        std::memcpy(&o, partials + i * stride + first / C::kElements * C::kParts * kLanes + part * kLanes, sizeof(Vf));
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
  float* const queries = scratch + call.rows * call.heads * (decode_pieces(cache.capacity) + 1) * partial;
  const std::int64_t head_stride = pieces * partial;  // partials: [row][head][piece]

  // Every thread takes a contiguous share of the tasks, even in keys to within a piece: then it knows which keys come after a piece's last.
  std::int64_t keys_in_all = 0;
  for (std::int64_t r = 0; r < call.rows; ++r) keys_in_all += (call.counts[r] - decode_first_key(call, r)) * cache.kv_heads;
#pragma omp parallel num_threads(threads)
  {
    const int chunks = (head_dim + C::kElements - 1) / C::kElements;
    const std::int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
    // A query takes at most 4 bytes per feature, rounded up as in a partial result.
    Factor<T>* const q = reinterpret_cast<Factor<T>*>(queries + self * group * features);
    std::int64_t before = 0;  // keys of the tasks so far; a task belongs to the thread in whose share its middle lies
    const auto mine = [&](std::int64_t keys) { return (2 * before + keys) * team / (2 * keys_in_all) == self; };
    for (std::int64_t row = 0; row < call.rows; ++row) {
      const std::int64_t first = decode_first_key(call, row), count = call.counts[row], slot = call.slots ? call.slots[row] : row;
      for (std::int64_t kv = 0; kv < cache.kv_heads; ++kv) {
        const std::int64_t at = slot * cache.slot_stride() + kv * cache.head_stride();
        const T *const keys = static_cast<const T*>(cache.k) + at, *const values = static_cast<const T*>(cache.v) + at;
        bool laid_out = false;
        for (std::int64_t begin = first, piece = 0; begin < count; begin += kDecodeSplit, ++piece) {
          const std::int64_t end = begin + kDecodeSplit < count ? begin + kDecodeSplit : count;
          const bool own = mine(end - begin);
          before += end - begin;
          if (!own) continue;
          if (!laid_out) {
            const T* const query = static_cast<const T*>(call.q) + row * call.q_stride + kv * group * head_dim;
            for (int g = 0; g < group; ++g) {
              for (int chunk = 0; chunk < chunks; ++chunk) {
                const T* const from = query + g * head_dim + chunk * C::kElements;
                const int left = head_dim - chunk * C::kElements;
                q[g * chunks + chunk] = left >= C::kElements ? load_factor(from) : load_factor(from, left);
              }
            }
            laid_out = true;
          }
          // After the last piece of a head come the next head's keys, which a full cache has right behind.
          const T* const next = end < count || count == cache.capacity ? keys + end * head_dim : nullptr;
          run_piece<T>({keys, values, next, begin, end, head_dim, group, c, q, features, scratch + (row * call.heads + kv * group) * head_stride + piece * partial, head_stride});
        }
      }
    }
#pragma omp barrier
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
