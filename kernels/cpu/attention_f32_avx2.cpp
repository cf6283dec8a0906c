// AVX2 + FMA twin of f32 attention: 24 queries per tile in three vectors, four rows per outer product (12 accumulators).
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/attention_f32_backward.hpp"

namespace {

struct Avx2 {
  using T = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kTileVecs = 3;
  static constexpr int kUnroll = 4;
  static constexpr Index kKeyBlock = 96;
  static constexpr Index kBackwardKeyBlock = 96;

  static T load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, T x) { _mm256_storeu_ps(p, x); }
  static T set1(float x) { return _mm256_set1_ps(x); }
  static T zero() { return _mm256_setzero_ps(); }
  static T add(T a, T b) { return _mm256_add_ps(a, b); }
  static T sub(T a, T b) { return _mm256_sub_ps(a, b); }
  static T mul(T a, T b) { return _mm256_mul_ps(a, b); }
  static T fma(T a, T b, T c) { return _mm256_fmadd_ps(a, b, c); }
  static T max(T a, T b) { return _mm256_max_ps(a, b); }

  // 2^x = 2^n * p(x - n), n the nearest integer; minimax polynomial of degree 5 on [-1/2, 1/2], relative error 7.5e-8 plus
  // rounding. Below -126 the result is 0 (no subnormals), above 127.5 infinity.
  static T exp2(T x) {
    const T n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const T r = _mm256_sub_ps(x, n);
    T p = _mm256_set1_ps(1.327647217e-03f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(9.675541331e-03f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.550713273e-02f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(2.402211972e-01f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(6.931469671e-01f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.000000072e+00f));
    const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shifted));
    p = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_LT_OQ), p);
    return _mm256_blendv_ps(p, _mm256_add_ps(x, _mm256_set1_ps(__builtin_inff())),
                            _mm256_cmp_ps(x, _mm256_set1_ps(127.5f), _CMP_NLT_UQ));  // infinity, or NaN stays NaN
  }

  static T between(T s, const std::int32_t* lo, const std::int32_t* hi, std::int32_t j) {
    const __m256i key = _mm256_set1_epi32(j);
    const __m256i early = _mm256_cmpgt_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(lo)), key);
    const __m256i seen = _mm256_cmpgt_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(hi)), key);
    return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), s, _mm256_castsi256_ps(_mm256_andnot_si256(early, seen)));
  }

  static void transpose(T* r) {
    __m256 a[8];
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {  // 4 x 4 inside each 128-bit lane: r[i + c] holds columns c and 4 + c
      r[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      a[c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x20);
      a[4 + c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x31);
    }
    for (int i = 0; i < 8; ++i) r[i] = a[i];
  }
};

}  // namespace

namespace fathom::cpu::attention {

const Kernels& avx2_kernels() {
  static constexpr Kernels kernels = {Forward<Avx2>::kTile,    Forward<Avx2>::floats, Forward<Avx2>::run,
                                      Backward<Avx2>::floats, Backward<Avx2>::run,   Backward<Avx2>::reduce};
  return kernels;
}

}  // namespace fathom::cpu::attention

#endif  // __x86_64__
