// The vector type of the instruction set a file is compiled for: 16, 8 or 4 floats, with loads and stores in f32 and bf16.
//
// Everything sits in an unnamed namespace on purpose: each *_avx2.cpp, *_avx512.cpp keeps its own copy, so the linker can never
// hand AVX-512 code to a machine without it. Include this only from the vector_*.inl bodies, and use no std templates there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lib/dtype.hpp"

namespace fathom::cpu {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
constexpr int kLanes = 16;
#define FATHOM_SIMD_512 1
#if defined(__AVX512BF16__)
#define FATHOM_SIMD_BF16 1
#endif
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8;
#define FATHOM_SIMD_256 1
#else
constexpr int kLanes = 4;
#endif

// The typedefs are GCC vector types; intrinsics take and give them without casts.
typedef float vf __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t vi __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t vu __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t vh __attribute__((vector_size(2 * kLanes)));

// How many lanes an access touches: all, or the first `count` (the rest read as zero and are not written).
struct Full {};
struct Tail {
  int count;
};

// 2^f = 1 + f (c0 + c1 f + ... + c4 f^4) on [-1/2, 1/2], minimax in relative error.
constexpr float kExp2Poly[5] = {0.69314700365f, 0.24022242427f, 0.05550733581f, 0.00967151299f, 0.00132647238f};

inline vf splat(float x) { return vf{} + x; }
inline vu as_bits(vf x) { return (vu)x; }
inline vf as_float(vu x) { return (vf)x; }

inline vf fma(vf a, vf b, vf c) {
#if defined(FATHOM_SIMD_512)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(FATHOM_SIMD_256)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// max and min return the second operand when either is NaN (x86 rule), so max(bound, x) keeps a NaN in x.
inline vf max(vf a, vf b) {
#if defined(FATHOM_SIMD_512)
  return _mm512_max_ps(a, b);
#elif defined(FATHOM_SIMD_256)
  return _mm256_max_ps(a, b);
#elif defined(__SSE__)
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
inline vf min(vf a, vf b) {
#if defined(FATHOM_SIMD_512)
  return _mm512_min_ps(a, b);
#elif defined(FATHOM_SIMD_256)
  return _mm256_min_ps(a, b);
#elif defined(__SSE__)
  return _mm_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

inline vf sqrt(vf a) {
#if defined(FATHOM_SIMD_512)
  return _mm512_sqrt_ps(a);
#elif defined(FATHOM_SIMD_256)
  return _mm256_sqrt_ps(a);
#elif defined(__SSE__)
  return _mm_sqrt_ps(a);
#else
  for (int i = 0; i < kLanes; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
#endif
}

// Sums and maxima over lanes, in a fixed tree.
inline float sum(vf a) {
#if defined(FATHOM_SIMD_512)
  return _mm512_reduce_add_ps(a);
#else
  float total = 0;
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a[i] += a[i + step];
  }
  total = a[0];
  return total;
#endif
}
inline float max_lane(vf a) {
#if defined(FATHOM_SIMD_512)
  return _mm512_reduce_max_ps(a);
#else
  float best = a[0];
  for (int i = 1; i < kLanes; ++i) best = a[i] > best ? a[i] : best;
  return best;
#endif
}

// True when any lane of a comparison holds.
inline bool any_lane(vi mask) {
#if defined(FATHOM_SIMD_512)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(FATHOM_SIMD_256)
  return _mm256_movemask_ps((__m256)mask) != 0;
#elif defined(__SSE__)
  return _mm_movemask_ps((__m128)mask) != 0;
#else
  std::int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= mask[i];
  return any != 0;
#endif
}

inline vf load(const float* p, Full) {
  vf x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline vf load(const float* p, Tail t) {
#if defined(FATHOM_SIMD_512)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << t.count) - 1), p);
#else
  vf x = {};
  for (int i = 0; i < t.count; ++i) x[i] = p[i];
  return x;
#endif
}
// bf16 is the upper half of an f32. (The generic conversion makes g++ 12 split 512-bit vectors, hence the intrinsics.)
inline vf widen(vh x) {
#if defined(FATHOM_SIMD_512)
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16));
#elif defined(FATHOM_SIMD_256)
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)x), 16));
#else
  return as_float(__builtin_convertvector(x, vu) << 16);
#endif
}
inline vf load(const bf16* p, Full) {
  vh x;
  std::memcpy(&x, p, sizeof(x));
  return widen(x);
}
inline vf load(const bf16* p, Tail t) {
#if defined(FATHOM_SIMD_512)
  return widen((vh)_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << t.count) - 1), p));
#else
  vh x = {};
  for (int i = 0; i < t.count; ++i) x[i] = p[i].bits;
  return widen(x);
#endif
}

inline void store(float* p, vf x, Full) { std::memcpy(p, &x, sizeof(x)); }
inline void store(float* p, vf x, Tail t) {
#if defined(FATHOM_SIMD_512)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << t.count) - 1), x);
#else
  for (int i = 0; i < t.count; ++i) p[i] = x[i];
#endif
}
// Round to nearest even; a NaN stays a (quiet) NaN: the same as bf16::round. The hardware instruction of AVX512_BF16 differs in
// one respect: it takes f32 denormals for zero.
inline vh narrow(vf x) {
#if defined(FATHOM_SIMD_BF16)
  return (vh)_mm512_cvtneps_pbh(x);
#elif defined(FATHOM_SIMD_512)
  const __m512i raw = _mm512_castps_si512(x);
  const __mmask16 odd = _mm512_test_epi32_mask(raw, _mm512_set1_epi32(0x10000));
  __m512i rounded = _mm512_add_epi32(raw, _mm512_set1_epi32(0x7fff));
  rounded = _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, raw, _mm512_set1_epi32(0x400000));
  return (vh)_mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#else
  const vu raw = as_bits(x);
  vu rounded = (raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16;
  const vu quiet = (raw >> 16) | 0x40u;
  rounded = (vi)(raw & 0x7fffffffu) > 0x7f800000 ? quiet : rounded;
  return __builtin_convertvector(rounded, vh);
#endif
}
inline void store(bf16* p, vf x, Full) {
  const vh h = narrow(x);
  std::memcpy(static_cast<void*>(p), &h, sizeof(h));
}
inline void store(bf16* p, vf x, Tail t) {
  const vh h = narrow(x);
#if defined(FATHOM_SIMD_512)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << t.count) - 1), (__m256i)h);
#else
  for (int i = 0; i < t.count; ++i) p[i].bits = h[i];
#endif
}

// Keeps the first t.count lanes of x and puts `other` in the rest.
inline vf keep(vf x, Full, vf) { return x; }
inline vf keep(vf x, Tail t, vf other) {
  for (int i = t.count; i < kLanes; ++i) x[i] = other[i];
  return x;
}

// Calls f(i, Full{}) for each whole vector of 0..n-1 and f(i, Tail{...}) for what is left.
template <class F>
inline void sweep(std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, Full{});
  if (i < n) f(i, Tail{static_cast<int>(n - i)});
}

// Sum over i of term(i, lanes) with four accumulators: the order depends on n alone.
template <class F>
inline float sum_over(std::int64_t n, F&& term) {
  vf acc[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) acc[j] = term(i + j * kLanes, acc[j], Full{});
  }
  for (; i + kLanes <= n; i += kLanes) acc[0] = term(i, acc[0], Full{});
  if (i < n) acc[1] = term(i, acc[1], Tail{static_cast<int>(n - i)});
  return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

// e^x: x/ln 2 = n + f with |f| <= 1/2, 2^f = 1 + f q(f) with q of degree 4 (relative error 1.1e-7), times 2^n.
// Underflows to 0 below -104 (-86.9 without AVX-512), overflows to infinity above 88.8, keeps NaN.
inline vf exp(vf x) {
#if defined(FATHOM_SIMD_512)
  x = min(splat(89.0f), max(splat(-104.0f), x));
#else
  x = min(splat(88.8f), max(splat(-87.3f), x));
#endif
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer that sits in the low mantissa bits
  const vf shifted = fma(x, splat(1.44269502f), magic);
  const vf n = shifted - magic;
  vf f = fma(x, splat(1.44269502f), -n);
  f = fma(x, splat(1.92596299e-8f), f);
  vf q = splat(kExp2Poly[4]);
  for (int i = 3; i >= 0; --i) q = fma(q, f, splat(kExp2Poly[i]));
  const vf p = fma(q, f, splat(1.0f));
#if defined(FATHOM_SIMD_512)
  return _mm512_scalef_ps(p, n);
#else
  // 2^(n - 1), then doubled: n may be 128, whose factor would not be a finite float. For -126 the factor has exponent bits of 0 and is 0.
  const vf half = p * as_float((as_bits(shifted) << 23) + (126u << 23));
  return half + half;
#endif
}

// 1 / x for finite x >= 1: in AVX-512 an estimate of 14 bits and one Newton step. A 512-bit division would
// take as long as the exponential it follows.
inline vf reciprocal(vf x) {
#if defined(FATHOM_SIMD_512)
  const vf r = _mm512_rcp14_ps(x);
  return fma(fma(-x, r, splat(1.0f)), r, r);
#else
  return splat(1.0f) / x;
#endif
}

}  // namespace
}  // namespace fathom::cpu
