// AVX-512 twin of f32 attention: 64 queries per tile in four vectors, six rows per outer product (24 accumulators).
#if defined(__x86_64__)
// g++ 12 warns inside its own intrinsics, whose unused pass-through operand is deliberately undefined.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "kernels/cpu/attention_f32_backward.hpp"

namespace {

struct Avx512 {
  using T = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kTileVecs = 4;
  static constexpr int kUnroll = 6;
  static constexpr Index kKeyBlock = 96;
  static constexpr Index kBackwardKeyBlock = 96;

  static T load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, T x) { _mm512_storeu_ps(p, x); }
  static T set1(float x) { return _mm512_set1_ps(x); }
  static T zero() { return _mm512_setzero_ps(); }
  static T add(T a, T b) { return _mm512_add_ps(a, b); }
  static T sub(T a, T b) { return _mm512_sub_ps(a, b); }
  static T mul(T a, T b) { return _mm512_mul_ps(a, b); }
  static T fma(T a, T b, T c) { return _mm512_fmadd_ps(a, b, c); }
  static T max(T a, T b) { return _mm512_max_ps(a, b); }

  // 2^x = 2^floor(x) * p(x - floor(x)); minimax polynomial of degree 5 on [0, 1), relative error 7.5e-8 plus rounding.
  // 0 for x = -infinity, since the reduced argument of an infinity is 0.
  static T exp2(T x) {
    const T r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    T p = _mm512_set1_ps(1.877576700e-03f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.989340024e-03f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.582631812e-02f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.401536170e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931530732e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.999999251e-01f));
    return _mm512_scalef_ps(p, x);
  }

  static T between(T s, const std::int32_t* lo, const std::int32_t* hi, std::int32_t j) {
    const __m512i key = _mm512_set1_epi32(j);
    const __mmask16 seen = _mm512_cmple_epi32_mask(_mm512_loadu_si512(lo), key);
    const __mmask16 both = _mm512_mask_cmpgt_epi32_mask(seen, _mm512_loadu_si512(hi), key);
    return _mm512_mask_blend_ps(both, _mm512_set1_ps(-__builtin_inff()), s);
  }

  static void transpose(T* r) {
    __m512 a[16];
    for (int i = 0; i < 16; i += 2) {  // pairs of rows
      a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {  // 4 x 4 inside each 128-bit lane: r[i + c] holds columns c, 4 + c, 8 + c, 12 + c
      const auto join = [&](int x, int y, bool high) {
        const __m512d p = _mm512_castps_pd(a[x]), q = _mm512_castps_pd(a[y]);
        return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(p, q) : _mm512_unpacklo_pd(p, q));
      };
      r[i] = join(i, i + 2, false);
      r[i + 1] = join(i, i + 2, true);
      r[i + 2] = join(i + 1, i + 3, false);
      r[i + 3] = join(i + 1, i + 3, true);
    }
    for (int c = 0; c < 4; ++c) {  // 4 x 4 of the 128-bit lanes
      const __m512 x = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88), y = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
      const __m512 z = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd), w = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
      a[c] = _mm512_shuffle_f32x4(x, y, 0x88);
      a[8 + c] = _mm512_shuffle_f32x4(x, y, 0xdd);
      a[4 + c] = _mm512_shuffle_f32x4(z, w, 0x88);
      a[12 + c] = _mm512_shuffle_f32x4(z, w, 0xdd);
    }
    for (int i = 0; i < 16; ++i) r[i] = a[i];
  }
};

}  // namespace

namespace fathom::cpu::attention {

const Kernels& avx512_kernels() {
  static constexpr Kernels kernels = {Forward<Avx512>::kTile,    Forward<Avx512>::floats, Forward<Avx512>::run,
                                      Backward<Avx512>::floats, Backward<Avx512>::run,   Backward<Avx512>::reduce};
  return kernels;
}

}  // namespace fathom::cpu::attention

#endif  // __x86_64__
