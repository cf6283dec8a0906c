// Register-blocked outer products and tile helpers of f32 attention, templates over a vector class V.
// Included by the instruction-set twins inside their anonymous namespace, so that every twin has its own copies.
//
// Queries lie along the vector lanes: scores are kept transposed, S^T[key][query], so that softmax needs no horizontal
// operation, and neither keys nor values have to be repacked (their elements are broadcast, rows stay as they are).
//
// V provides: T, kWidth, kTileVecs (vectors per query tile), kUnroll (rows of an outer product), kKeyBlock,
// load, store, set1, zero, add, sub, mul, fma(a,b,c) = a*b+c, max, exp2, between(s, lo, hi, j) (s where lo <= j < hi, else
// -infinity), transpose(T[kWidth]).
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_f32_impl.hpp"

namespace {

using Index = std::int64_t;

constexpr Index min_of(Index a, Index b) { return a < b ? a : b; }
constexpr Index max_of(Index a, Index b) { return a > b ? a : b; }
constexpr Index round_up(Index n, Index to) { return (n + to - 1) / to * to; }

// acc[i][v] += sum_r A(i, r) * B[r][v], with A(i, r) = a[i * lda + r], or a[r * lda + i] when kColumn.
template <class V, int kRows, int kVecs, bool kColumn>
[[gnu::always_inline]] inline void outer(typename V::T (&acc)[kRows][kVecs], const float* a, Index lda, const float* b,
                                         Index ldb, Index depth) {
  for (Index r = 0; r < depth; ++r) {
    typename V::T bv[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) bv[v] = V::load(b + v * V::kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const typename V::T av = V::set1(kColumn ? a[i] : a[i * lda]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[i][v] = V::fma(av, bv[v], acc[i][v]);
    }
    a += kColumn ? lda : 1;
    b += ldb;
  }
}

// acc[i][v] = sum_r a[i * lda + r] * b[r][v].
template <class V, int kRows, int kVecs>
[[gnu::always_inline]] inline void product(typename V::T (&acc)[kRows][kVecs], const float* a, Index lda, const float* b, Index ldb, Index depth) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[i][v] = V::zero();
  outer<V, kRows, kVecs, false>(acc, a, lda, b, ldb, depth);
}

// Scores of kRows keys against kVecs query vectors: s[i][v] = k_i . q, masked outside [lo, hi), and their running maximum.
// s, lo, hi and block_max point at the first of the kVecs vectors; key is the index of k's first row.
template <class V, int kRows, int kVecs, bool kMask, bool kMax>
void score_rows(const float* k, Index k_stride, const float* q_t, Index d, float* s, const std::int32_t* lo,
                const std::int32_t* hi, Index key, float* block_max) {
  constexpr int kTile = V::kTileVecs * V::kWidth;
  typename V::T acc[kRows][kVecs];
  product<V>(acc, k, k_stride, q_t, kTile, d);
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    typename V::T top{};
    if (kMax) top = V::load(block_max + v * V::kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      if (kMask) {
        acc[i][v] = V::between(acc[i][v], lo + v * V::kWidth, hi + v * V::kWidth, static_cast<std::int32_t>(key + i));
      }
      if (kMax) top = V::max(top, acc[i][v]);
      V::store(s + i * kTile + v * V::kWidth, acc[i][v]);
    }
    if (kMax) V::store(block_max + v * V::kWidth, top);
  }
}

// c[i][v] (+)= sum_r A(i, r) * b[r][v], first multiplied by alpha[v] when kScale.
template <class V, int kRows, int kVecs, bool kColumn, bool kScale>
void accumulate_rows(const float* a, Index lda, const float* b, Index ldb, Index depth, float* c, Index ldc,
                     const float* alpha) {
  typename V::T acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    typename V::T factor{};
    if (kScale) factor = V::load(alpha + v * V::kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      acc[i][v] = V::load(c + i * ldc + v * V::kWidth);
      if (kScale) acc[i][v] = V::mul(acc[i][v], factor);
    }
  }
  outer<V, kRows, kVecs, kColumn>(acc, a, lda, b, ldb, depth);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) V::store(c + i * ldc + v * V::kWidth, acc[i][v]);
}

// Backward: dp[i][v] = v_i . d_out, then p = exp2(s * c - lse2) and ds = p * (dp - delta); p replaces s.
template <class V, int kRows, int kVecs>
void score_gradient_rows(const float* value, Index v_stride, const float* d_out_t, Index d, float* s, float* ds,
                         float factor, const float* lse2, const float* delta) {
  constexpr int kTile = V::kTileVecs * V::kWidth;
  typename V::T acc[kRows][kVecs];
  product<V>(acc, value, v_stride, d_out_t, kTile, d);
  const typename V::T c = V::set1(factor);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      const Index at = i * kTile + v * V::kWidth;
      const typename V::T shift = V::sub(V::zero(), V::load(lse2 + v * V::kWidth));
      const typename V::T p = V::exp2(V::fma(V::load(s + at), c, shift));
      V::store(s + at, p);
      V::store(ds + at, V::mul(p, V::sub(acc[i][v], V::load(delta + v * V::kWidth))));
    }
}

// Calls f.template operator()<rows>(first) over [0, n) in steps of kUnroll, then 4, 2, 1.
template <class V, class F>
[[gnu::always_inline]] inline void by_rows(Index n, F&& f) {
  Index i = 0;
  for (; i + V::kUnroll <= n; i += V::kUnroll) f.template operator()<V::kUnroll>(i);
  if constexpr (V::kUnroll > 4) {
    if (i + 4 <= n) f.template operator()<4>(i), i += 4;
  }
  for (; i + 2 <= n; i += 2) f.template operator()<2>(i);
  if (i < n) f.template operator()<1>(i);
}

// Calls f.template operator()<vecs>() for 1 <= vecs <= kTileVecs.
template <class V, class F>
[[gnu::always_inline]] inline void by_vecs(int vecs, F&& f) {
  switch (vecs) {
    case 1: f.template operator()<1>(); break;
    case 2:
      if constexpr (V::kTileVecs >= 2) f.template operator()<2>();
      break;
    case 3:
      if constexpr (V::kTileVecs >= 3) f.template operator()<3>();
      break;
    case 4:
      if constexpr (V::kTileVecs >= 4) f.template operator()<4>();
      break;
  }
}

// Keys [begin, end) of a block, visible to vectors [first, last) of the tile; `masked` unless all of them see all of it.
struct Segment {
  Index begin, end;
  int first, last;
  bool masked;
};

// Splits the keys [begin, end) into segments. Both bounds of the visible range ascend with the query, so the vectors that
// see a key are neighbours. Returns the number of segments, at most 2 * kTileVecs + 1.
template <class V>
int split_block(const std::int32_t* lo, const std::int32_t* hi, int vecs, Index begin, Index end, Segment* segments) {
  int count = 0;
  Index at = begin;
  while (at < end) {
    int first = 0, last = vecs;
    Index next = end;
    for (int v = 0; v < vecs; ++v) {
      const Index bottom = lo[v * V::kWidth], top = hi[(v + 1) * V::kWidth - 1];
      if (top <= at) first = v + 1;  // ends before this key
      if (top > at && top < next) next = top;
      if (bottom > at) {  // starts later
        if (v < last) last = v;
        if (bottom < next) next = bottom;
      }
    }
    if (first < last) {
      bool masked = false;
      for (int v = first; v < last; ++v) {
        masked |= lo[(v + 1) * V::kWidth - 1] > at || hi[v * V::kWidth] < next;
      }
      segments[count++] = {at, next, first, last, masked};
    }
    at = next;
  }
  return count;
}

// out_t[i][row] = in[row][i] for a tile of `rows` rows; lanes past `rows` are zero. out_t is [d][tile].
template <class V>
void transpose_in(const float* in, Index stride, int rows, Index d, float* out_t) {
  constexpr int kTile = V::kTileVecs * V::kWidth;
  for (int r0 = 0; r0 < kTile; r0 += V::kWidth) {
    const int here = static_cast<int>(max_of(0, min_of(V::kWidth, rows - r0)));
    Index i = 0;
    for (; here > 0 && i + V::kWidth <= d; i += V::kWidth) {
      typename V::T x[V::kWidth];
      for (int r = 0; r < V::kWidth; ++r) x[r] = r < here ? V::load(in + (r0 + r) * stride + i) : V::zero();
      V::transpose(x);
      for (int r = 0; r < V::kWidth; ++r) V::store(out_t + (i + r) * kTile + r0, x[r]);
    }
    for (; i < d; ++i)
      for (int r = 0; r < V::kWidth; ++r) out_t[i * kTile + r0 + r] = r < here ? in[(r0 + r) * stride + i] : 0.0f;
  }
}

// out[row][i] = in_t[i][row] * factor[row] for the tile's first `rows` rows.
template <class V>
void transpose_out(const float* in_t, const float* factor, int rows, Index d, float* out, Index stride) {
  constexpr int kTile = V::kTileVecs * V::kWidth;
  for (int r0 = 0; r0 < rows; r0 += V::kWidth) {
    const int here = static_cast<int>(min_of(V::kWidth, rows - r0));
    const typename V::T scale = V::load(factor + r0);
    Index i = 0;
    for (; i + V::kWidth <= d; i += V::kWidth) {
      typename V::T x[V::kWidth];
      for (int r = 0; r < V::kWidth; ++r) x[r] = V::mul(V::load(in_t + (i + r) * kTile + r0), scale);
      V::transpose(x);
      for (int r = 0; r < here; ++r) V::store(out + (r0 + r) * stride + i, x[r]);
    }
    for (; i < d; ++i)
      for (int r = 0; r < here; ++r) out[(r0 + r) * stride + i] = in_t[i * kTile + r0 + r] * factor[r0 + r];
  }
}

}  // namespace
