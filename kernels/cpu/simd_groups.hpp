// Groups of the vectors of simd.hpp that are loaded, computed with and stored together; and what works on a vector as on a group: powers of two and the sigmoid. Included
// by the vector_*.inl bodies only, for the reasons given there.
#pragma once

#include "kernels/cpu/simd.hpp"

namespace fathom::cpu {
namespace {

// Several vectors that go through a function step by step together: a chain such as exp has some twenty dependent operations, and one vector after the
// other fills the scheduler with operations that wait (GELU in bf16, 2048 x 2048 on a core of family 26: 1036 us alone, 846 in fours).
template <int N>
struct vn {
  vf v[N];
  vn() = default;
  vn(vf x) { for (vf& each : v) each = x; }  // NOLINT: constants are given as vectors
};
template <int N>
struct Group {};
using Two = Group<2>;
using Four = Group<4>;
using vw = vn<4>;
template <int N, class F>
inline vn<N> each(F&& f) {
  vn<N> y;
  for (int j = 0; j < N; ++j) y.v[j] = f(j);
  return y;
}
template <int N>
inline vn<N> operator+(const vn<N>& a, const vn<N>& b) { return each<N>([&](int j) { return a.v[j] + b.v[j]; }); }
template <int N>
inline vn<N> operator-(const vn<N>& a, const vn<N>& b) { return each<N>([&](int j) { return a.v[j] - b.v[j]; }); }
template <int N>
inline vn<N> operator*(const vn<N>& a, const vn<N>& b) { return each<N>([&](int j) { return a.v[j] * b.v[j]; }); }
template <int N>
inline vn<N> operator-(const vn<N>& a) { return each<N>([&](int j) { return -a.v[j]; }); }
template <int N>
inline vn<N> fma(const vn<N>& a, const vn<N>& b, const vn<N>& c) { return each<N>([&](int j) { return fma(a.v[j], b.v[j], c.v[j]); }); }
template <int N>
inline vn<N> max(const vn<N>& a, const vn<N>& b) { return each<N>([&](int j) { return max(a.v[j], b.v[j]); }); }
template <int N>
inline vn<N> min(const vn<N>& a, const vn<N>& b) { return each<N>([&](int j) { return min(a.v[j], b.v[j]); }); }
template <int N>
inline vn<N> reciprocal(const vn<N>& x) {
#if defined(FATHOM_SIMD_512)
  const vn<N> r = each<N>([&](int j) { return (vf)_mm512_rcp14_ps(x.v[j]); });
  return fma(fma(-x, r, vn<N>(splat(1.0f))), r, r);
#else
  return each<N>([&](int j) { return reciprocal(x.v[j]); });
#endif
}

// p 2^n, where shifted is 1.5 * 2^23 + n: for whole n of -126..127, and 0 for n = -127 without AVX-512.
inline vf scale_by_power(vf p, vf shifted) {
#if defined(FATHOM_SIMD_512)
  return _mm512_scalef_ps(p, shifted - splat(12582912.0f));
#else
  return p * as_float((as_bits(shifted) << 23) + (127u << 23));
#endif
}
template <int N>
inline vn<N> scale_by_power(const vn<N>& p, const vn<N>& shifted) { return each<N>([&](int j) { return scale_by_power(p.v[j], shifted.v[j]); }); }

// Groups of bf16 vectors are loaded as the even and the odd members of twice as many elements, which takes one load and two operations for two vectors
// where the order of memory would take two and four. A store puts them back. So vectors of a group may be combined with each other lane by lane and summed,
// but not with f32 operands that were loaded in order: load_as does that.
#if defined(FATHOM_SIMD_512)
inline void load_pair(const bf16* p, vf* even, vf* odd) {
  const __m512i raw = _mm512_loadu_si512(p);
  *even = _mm512_castsi512_ps(_mm512_slli_epi32(raw, 16));
  *odd = _mm512_castsi512_ps(_mm512_and_si512(raw, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline void store_pair(bf16* p, vf even, vf odd) {
  // Halves side by side to halves in turn: 16-bit element i of the result is lane i / 2 of even or odd.
#if defined(FATHOM_SIMD_BF16)
  const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
#else
  const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512((__m256i)narrow(even)), (__m256i)narrow(odd), 1);
#endif
  const __m512i turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi16(turn, halves));
}
template <int N>
inline vn<N> load(const bf16* p, Group<N>) {
  vn<N> x;
  for (int j = 0; j < N; j += 2) load_pair(p + j * kLanes, &x.v[j], &x.v[j + 1]);
  return x;
}
template <int N>
inline void store(bf16* p, const vn<N>& x, Group<N>) {
  for (int j = 0; j < N; j += 2) store_pair(p + j * kLanes, x.v[j], x.v[j + 1]);
}
#else
template <int N>
inline vn<N> load(const bf16* p, Group<N>) { return each<N>([&](int j) { return load(p + j * kLanes, Full{}); }); }
template <int N>
inline void store(bf16* p, const vn<N>& x, Group<N>) {
  for (int j = 0; j < N; ++j) store(p + j * kLanes, x.v[j], Full{});
}
#endif
template <int N>
inline vn<N> load(const float* p, Group<N>) { return each<N>([&](int j) { return load(p + j * kLanes, Full{}); }); }
template <int N>
inline void store(float* p, const vn<N>& x, Group<N>) {
  for (int j = 0; j < N; ++j) store(p + j * kLanes, x.v[j], Full{});
}

// f32 operands in the lane order of groups of T.
template <class T, class Lanes>
inline vf load_as(const float* p, Lanes n) { return load(p, n); }
template <class T, class Lanes>
inline void store_as(float* p, const vf& x, Lanes n) { store(p, x, n); }
template <class T, int N>
inline vn<N> load_as(const float* p, Group<N> n) {
#if defined(FATHOM_SIMD_512)
  if constexpr (sizeof(T) == 2) {
    vn<N> x;
    for (int j = 0; j < N; j += 2) {
      const vf a = load(p + j * kLanes, Full{}), b = load(p + (j + 1) * kLanes, Full{});
      x.v[j] = _mm512_permutex2var_ps(a, _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0), b);
      x.v[j + 1] = _mm512_permutex2var_ps(a, _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1), b);
    }
    return x;
  }
#endif
  return load(p, n);
}
template <class T, int N>
inline void store_as(float* p, const vn<N>& x, Group<N> n) {
#if defined(FATHOM_SIMD_512)
  if constexpr (sizeof(T) == 2) {
    for (int j = 0; j < N; j += 2) {
      store(p + j * kLanes, _mm512_permutex2var_ps(x.v[j], _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0), x.v[j + 1]), Full{});
      store(p + (j + 1) * kLanes, _mm512_permutex2var_ps(x.v[j], _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8), x.v[j + 1]), Full{});
    }
    return;
  }
#endif
  store(p, x, n);
}

// sweep by groups of N vectors as long as there are N.
template <int N, class F>
inline void sweep_groups(std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + N * kLanes <= n; i += N * kLanes) f(i, Group<N>{});
  for (; i + kLanes <= n; i += kLanes) f(i, Full{});
  if (i < n) f(i, Tail{static_cast<int>(n - i)});
}
template <class F>
inline void sweep_fours(std::int64_t n, F&& f) { sweep_groups<4>(n, f); }

// The lines of the elements that a load of the same arguments reads.
template <class T, int N>
inline void prefetch(const T* p, Group<N>) {
  for (std::size_t at = 0; at < N * kLanes * sizeof(T); at += 64) __builtin_prefetch(reinterpret_cast<const char*>(p) + at);
}
template <class T>
inline void prefetch(const T* p, Full) { __builtin_prefetch(p); }
template <class T>
inline void prefetch(const T* p, Tail) { __builtin_prefetch(p); }

// Sums and maxima in the lanes of a group: v, or a b, added to acc; single vectors go to the first.
template <int N>
inline void add_to(vn<N>& acc, const vn<N>& v) { acc = acc + v; }
template <int N>
inline void add_to(vn<N>& acc, vf v) { acc.v[0] = acc.v[0] + v; }
template <int N>
inline void fma_to(vn<N>& acc, const vn<N>& a, const vn<N>& b) { acc = fma(a, b, acc); }
template <int N>
inline void fma_to(vn<N>& acc, vf a, vf b) { acc.v[0] = fma(a, b, acc.v[0]); }
template <int N>
inline void max_to(vn<N>& acc, const vn<N>& v) { acc = max(v, acc); }
template <int N>
inline void max_to(vn<N>& acc, vf v) { acc.v[0] = max(v, acc.v[0]); }
template <int N>
inline vn<N> keep(const vn<N>& x, Group<N>, vf) { return x; }
inline float sum(const vn<2>& a) { return sum(a.v[0] + a.v[1]); }
inline float sum(const vn<4>& a) { return sum((a.v[0] + a.v[1]) + (a.v[2] + a.v[3])); }

// |x|, and a where x < 0, else b.
inline vf magnitude(vf x) { return as_float(as_bits(x) & 0x7fffffffu); }
template <int N>
inline vn<N> magnitude(const vn<N>& x) { return each<N>([&](int j) { return magnitude(x.v[j]); }); }
inline vf where_negative(vf x, vf a, vf b) { return x < vf{} ? a : b; }
template <int N>
inline vn<N> where_negative(const vn<N>& x, const vn<N>& a, const vn<N>& b) {
  return each<N>([&](int j) { return where_negative(x.v[j], a.v[j], b.v[j]); });
}

// 2^(x c) for x c up to `top` <= 126, where it stays; 0 below -152 (-126.6 without AVX-512). c x = n + f with |f| <= 1/2 and n whole, f exact but for the rounding
// of c itself: with c = log2 e (off by 1.3e-8 of its value) and x = -20 the result is right to 3.4e-7. A NaN stays one. V: vf or vn.
template <class V>
inline V exp2_of(const V& x, float c, float top) {
#if defined(FATHOM_SIMD_512)
  constexpr float kBottom = -152.0f;
#else
  constexpr float kBottom = -127.0f;
#endif
  const float low = c < 0 ? top / c : kBottom / c, high = c < 0 ? kBottom / c : top / c;
  const V held = min(V(splat(high)), max(V(splat(low)), x));
  const vf magic = splat(12582912.0f);  // as in exp
  const V shifted = fma(held, V(splat(c)), V(magic));
  const V n = shifted - V(magic);
  const V f = fma(held, V(splat(c)), -n);
  V q = splat(kExp2Poly[4]);
  for (int i = 3; i >= 0; --i) q = fma(q, f, V(splat(kExp2Poly[i])));
  return scale_by_power(fma(q, f, V(splat(1.0f))), shifted);
}

// 1 / (1 + e^-x). The exponent is bounded so that the reciprocal's operand stays finite; sigma(-87) is 1e-38 already.
template <class V>
inline V sigmoid(const V& x) { return reciprocal(V(splat(1.0f)) + exp2_of(x, -1.44269502f, 125.5f)); }

}  // namespace
}  // namespace fathom::cpu
