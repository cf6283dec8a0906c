// f32 lanes as a GCC vector type, and bf16 rows read as pairs: sixteen lanes in one zmm, eight in one ymm. The baseline has sixteen in four xmm: slow, because the
// compiler keeps a vector wider than a register in memory (AVX2 with sixteen lanes streamed weights at a third of what it does with eight). For the bodies
// (*.inl) that are compiled once per instruction set; unnamed namespace and no std templates, so that code of a wider
// instruction set cannot be linked into another copy.
#include <cstdint>
#include <cstring>

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

#include "lib/dtype.hpp"

#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors are only passed between functions of one file

namespace fathom::cpu::detail {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 16;
#endif
typedef float Vf __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Vi __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t Vu __attribute__((vector_size(4 * kLanes)));

inline float widen(bf16 x) {
  const std::uint32_t bits = std::uint32_t{x.bits} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline std::uint16_t narrow(float value) {
  std::uint32_t raw;
  std::memcpy(&raw, &value, 4);
  if ((raw & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((raw >> 16) | 0x40u);
  return static_cast<std::uint16_t>((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16);
}

inline float lane_sum(const Vf& lanes) {
#if defined(__AVX512BW__)
  return _mm512_reduce_add_ps((__m512)lanes);
#endif
  Vf v = lanes;
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) v[i] += v[i + step];
  }
  return v[0];
}

// Lane i of the result is the sum of the lanes of v[i].
inline Vf sum_rows(Vf* v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    v[i] = __builtin_shufflevector(v[i], v[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(v[i], v[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    v[i] = __builtin_shufflevector(v[i], v[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) + __builtin_shufflevector(v[i], v[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  return __builtin_shufflevector(v[0], v[1], 0, 8, 2, 10, 4, 12, 6, 14) + __builtin_shufflevector(v[0], v[1], 1, 9, 3, 11, 5, 13, 7, 15);
#else
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
#endif
}

// 2^x for x <= 127, degree 5 (relative error 7.5e-8); below -125 it stays at 2^-125.
inline Vf exp2_lanes(const Vf& exponent) {
  const Vf low = Vf{} - 125.0f;
  const Vf x = exponent < low ? low : exponent;  // keeps a NaN
  const Vf shifted = x + 12582912.0f;
  const Vf r = x - (shifted - 12582912.0f);
  Vf p = r * 0.0013276472167834048f + 0.00967554133102361f;
  p = p * r + 0.05550713272875276f;
  p = p * r + 0.2402211972396913f;
  p = p * r + 0.6931469670652652f;
  p = p * r + 1.0000000716546418f;
  return (Vf)((Vu)p + ((Vu)shifted << 23));
}

// Two vectors of consecutive bf16 as their even and odd members, or one of f32: what a step of a dot product multiplies. Both factors
// are split alike, so the pairing does not matter.
template <class T>
struct Chunk;

template <>
struct Chunk<bf16> {
  static constexpr int kParts = 2;
  static constexpr int kElements = 2 * kLanes;
  Vf part[2];
  static Chunk load(const bf16* p) {
    Vu bits;
    std::memcpy(&bits, p, sizeof(bits));
    return {{(Vf)(bits << 16), (Vf)(bits & 0xffff0000u)}};
  }
};

template <>
struct Chunk<float> {
  static constexpr int kParts = 1;
  static constexpr int kElements = kLanes;
  Vf part[1];
  static Chunk load(const float* p) {
    Chunk c;
    std::memcpy(&c.part[0], p, sizeof(Vf));
    return c;
  }
};

// The first `count` elements, the rest zero.
template <class T>
inline Chunk<T> load_tail(const T* p, std::int64_t count) {
#if defined(__AVX512BW__)
  if constexpr (sizeof(T) == 2) {
    const Vu bits = (Vu)_mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ull << count) - 1), p);
    return {{(Vf)(bits << 16), (Vf)(bits & 0xffff0000u)}};
  } else {
    return {{(Vf)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p)}};
  }
#endif
  T buffer[Chunk<T>::kElements] = {};
  std::memcpy(static_cast<void*>(buffer), p, static_cast<std::size_t>(count) * sizeof(T));
  return Chunk<T>::load(buffer);
}

// Element i of a chunk that was loaded by Chunk<T>::load.
template <class T>
inline float element(const Vf* part, int i) {
  return Chunk<T>::kParts == 2 ? part[i % 2][i / 2] : part[0][i];
}

// What a dot product multiplies: a chunk, or with AVX512_BF16 the bf16 pairs themselves, whose instruction adds two exact products to each of 16 sums (it takes
// denormals for zero). A vector and not a struct of one: g++ 12 passes those through memory.
template <class T>
struct FactorOf {
  typedef Chunk<T> Type;
};
template <>
struct FactorOf<float> {
  typedef Vf Type;
};
#if defined(__AVX512BF16__)
template <>
struct FactorOf<bf16> {
  typedef __m512bh Type;
};
#endif
template <class T>
using Factor = typename FactorOf<T>::Type;

inline Vf load_factor(const float* p) { return Chunk<float>::load(p).part[0]; }
inline Vf load_factor(const float* p, std::int64_t count) { return load_tail(p, count).part[0]; }
inline Vf add_product(const Vf& sum, const Vf& a, const Vf& b) { return sum + a * b; }
#if defined(__AVX512BF16__)
inline __m512bh load_factor(const bf16* p) { return (__m512bh)_mm512_loadu_si512(p); }
inline __m512bh load_factor(const bf16* p, std::int64_t count) { return (__m512bh)_mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ull << count) - 1), p); }
inline Vf add_product(const Vf& sum, const __m512bh& a, const __m512bh& b) { return (Vf)_mm512_dpbf16_ps((__m512)sum, a, b); }
#else
inline Chunk<bf16> load_factor(const bf16* p) { return Chunk<bf16>::load(p); }
inline Chunk<bf16> load_factor(const bf16* p, std::int64_t count) { return load_tail(p, count); }
inline Vf add_product(const Vf& sum, const Chunk<bf16>& a, const Chunk<bf16>& b) { return sum + a.part[0] * b.part[0] + a.part[1] * b.part[1]; }
#endif

}  // namespace
}  // namespace fathom::cpu::detail
