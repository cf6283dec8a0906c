#if defined(__AVX512F__)

#include "kernels/cpu/gemm_f32_tile_body.hpp"

namespace fathom::cpu {
namespace {

struct Avx512 {
  using T = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;
  static constexpr F32TileSize kSize = kTileAvx512;
  static constexpr bool kBroadcasts = true;
  static constexpr int kSecondPrefetch = 64, kStreamAhead = 6144;

  static T zero() { return _mm512_setzero_ps(); }
  static T add(T a, T b) { return _mm512_add_ps(a, b); }
  static Mask lanes(std::int64_t columns, int half) {
    if (half == 0) return static_cast<Mask>(columns >= 16 ? 0xffff : (1u << columns) - 1);
    return static_cast<Mask>(columns > 16 ? (1u << (columns - 16)) - 1 : 0);
  }
  static T load(const float* p, Mask mask) { return _mm512_maskz_loadu_ps(mask, p); }
  static void store(float* p, T x) { _mm512_storeu_ps(p, x); }
  static void store(float* p, T x, Mask mask) { _mm512_mask_storeu_ps(p, mask, x); }
};

// 16 x 16 floats in registers: pairs of rows interleaved by 4, then 8 bytes, then by quarters of the register.
inline void transpose16(__m512 (&r)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

}  // namespace

void f32_tile_avx512(const F32Tile& t) { run_tile<Avx512>(t); }

void copy_rows_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride) {
  constexpr std::int64_t kRowsAhead = 8;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* source = from + i * from_stride;
    float* target = to + i * to_stride;
    std::int64_t j = 0;
    for (; j + 16 <= columns; j += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(source + kRowsAhead * from_stride + j), _MM_HINT_T0);
      _mm512_storeu_ps(target + j, _mm512_loadu_ps(source + j));
    }
    if (j < columns) {
      _mm_prefetch(reinterpret_cast<const char*>(source + kRowsAhead * from_stride + j), _MM_HINT_T0);
      const __mmask16 mask = static_cast<__mmask16>((1u << (columns - j)) - 1);
      _mm512_mask_storeu_ps(target + j, mask, _mm512_maskz_loadu_ps(mask, source + j));
    }
  }
}

void transpose_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride) {
  constexpr std::int64_t kAhead = 64;
  for (std::int64_t i = 0; i < rows; i += 16) {
    const std::int64_t height = rows - i < 16 ? rows - i : 16;
    const __mmask16 down = static_cast<__mmask16>((1u << height) - 1);
    for (std::int64_t j = 0; j < columns; j += 16) {
      const std::int64_t width = columns - j < 16 ? columns - j : 16;
      const __mmask16 across = static_cast<__mmask16>((1u << width) - 1);
      __m512 block[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) _mm_prefetch(reinterpret_cast<const char*>(from + (i + (r < height ? r : 0)) * from_stride + j + kAhead), _MM_HINT_T0);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) block[r] = r < height ? _mm512_maskz_loadu_ps(across, from + (i + r) * from_stride + j) : _mm512_setzero_ps();
      transpose16(block);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r)
        if (r < width) _mm512_mask_storeu_ps(to + (j + r) * to_stride + i, down, block[r]);
    }
  }
}

}  // namespace fathom::cpu

#endif
