#include "kernels/cpu/gemm_f32_tile.hpp"

#if defined(__AVX512F__)

#include <immintrin.h>

namespace fathom::cpu {
namespace {

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

constexpr int kAhead = 8;  // steps of k by which W is prefetched into L1: about 110 cycles

// Broadcasts the float at `at` + kStrides * stride + kOffset bytes. In asm, because the compiler would otherwise give every row of
// the tile a pointer of its own, and 14 of them do not fit the registers. It reads operands that nothing in this file writes
// between the first and the last step, so it needs no ordering against stores.
template <int kStrides, int kOffset>
inline __attribute__((always_inline)) __m512 broadcast(const char* at, std::int64_t stride) {
  __m512 out;
  if constexpr (kStrides == 0) asm volatile("vbroadcastss %c2(%1), %0" : "=v"(out) : "r"(at), "i"(kOffset));
  if constexpr (kStrides == 1) asm volatile("vbroadcastss %c3(%1,%2), %0" : "=v"(out) : "r"(at), "r"(stride), "i"(kOffset));
  if constexpr (kStrides == 2) asm volatile("vbroadcastss %c3(%1,%2,2), %0" : "=v"(out) : "r"(at), "r"(stride), "i"(kOffset));
  return out;
}

// Pointers to rows 0, 3, 6, 9, 12 of a tile; the rows between them are one and two strides away.
struct RowPointers {
  const char *p0, *p1, *p2, *p3, *p4;
  std::int64_t stride;

  RowPointers(const float* a, std::int64_t floats) : stride(floats * 4) {
    p0 = reinterpret_cast<const char*>(a);
    p1 = p0 + 3 * stride;
    p2 = p1 + 3 * stride;
    p3 = p2 + 3 * stride;
    p4 = p3 + 3 * stride;
  }
  template <int kRow>
  const char* third() const {
    return kRow < 3 ? p0 : kRow < 6 ? p1 : kRow < 9 ? p2 : kRow < 12 ? p3 : p4;
  }
  void advance(std::int64_t bytes) {
    p0 += bytes;
    p1 += bytes;
    p2 += bytes;
    p3 += bytes;
    p4 += bytes;
    asm("" : "+r"(p0), "+r"(p1), "+r"(p2), "+r"(p3), "+r"(p4));  // or they become offsets from one, in memory
  }
};

// One step of k: kRows broadcasts, 2 kRows multiply-adds.
template <int kRows, int kStep, int kRow = 0>
inline __attribute__((always_inline)) void multiply(const RowPointers& rows, __m512 b0, __m512 b1, __m512 (&acc)[kRows][2]) {
  if constexpr (kRow < kRows) {
    const __m512 a = broadcast<kRow % 3, 4 * kStep>(rows.third<kRow>(), rows.stride);
    acc[kRow][0] = _mm512_fmadd_ps(a, b0, acc[kRow][0]);
    acc[kRow][1] = _mm512_fmadd_ps(a, b1, acc[kRow][1]);
    multiply<kRows, kStep, kRow + 1>(rows, b0, b1, acc);
  }
}

template <int kRows, bool kMasked>
void tile(const F32Tile& t) {
  const __mmask16 m0 = kMasked ? static_cast<__mmask16>(t.columns >= 16 ? 0xffff : (1u << t.columns) - 1) : 0xffff;
  const __mmask16 m1 = kMasked ? static_cast<__mmask16>(t.columns > 16 ? (1u << (t.columns - 16)) - 1 : 0) : 0xffff;
  const auto load = [m0, m1](const float* p, int half) {
    if constexpr (kMasked) return _mm512_maskz_loadu_ps(half == 0 ? m0 : m1, p + 16 * half);
    return _mm512_loadu_ps(p + 16 * half);
  };
  for (int i = 0; i < kRows; ++i) {
    const char* c = reinterpret_cast<const char*>(t.c + i * t.c_stride);
    asm volatile("prefetchw (%0)\n prefetchw 64(%0)" : : "r"(c));
  }
  __m512 acc[kRows][2];
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
  RowPointers rows(t.a, t.a_stride);
  const float* b = t.b;
  const std::int64_t b_stride = kMasked ? t.b_stride : kTileColumns;
  const char* ahead = static_cast<const char*>(t.ahead);
  std::int64_t k = t.k;
  for (; k >= 4; k -= 4) {
    const auto one = [&](auto number) {
      constexpr int kStep = decltype(number)::value;
      const float* at = b + kStep * b_stride;
      const __m512 b0 = load(at, 0), b1 = load(at, 1);
      _mm_prefetch(reinterpret_cast<const char*>(at + kAhead * b_stride), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(at + kAhead * b_stride + 16), _MM_HINT_T0);
      multiply<kRows, kStep>(rows, b0, b1, acc);
    };
    one(Number<0>{});
    one(Number<1>{});
    one(Number<2>{});
    one(Number<3>{});
    _mm_prefetch(ahead, _MM_HINT_T1);
    ahead += t.ahead_step;
    b += 4 * b_stride;
    rows.advance(16);
  }
  for (; k > 0; --k) {
    const __m512 b0 = load(b, 0), b1 = load(b, 1);
    multiply<kRows, 0>(rows, b0, b1, acc);
    b += b_stride;
    rows.advance(4);
  }
  if (t.bias != nullptr) {
    const __m512 bias0 = _mm512_maskz_loadu_ps(m0, t.bias), bias1 = _mm512_maskz_loadu_ps(m1, t.bias + 16);
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i) {
      acc[i][0] = _mm512_add_ps(acc[i][0], bias0);
      acc[i][1] = _mm512_add_ps(acc[i][1], bias1);
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) {
    float* c = t.c + i * t.c_stride;
    if (t.accumulate) {
      acc[i][0] = _mm512_add_ps(acc[i][0], load(c, 0));
      acc[i][1] = _mm512_add_ps(acc[i][1], load(c, 1));
    }
    if constexpr (kMasked) {
      _mm512_mask_storeu_ps(c, m0, acc[i][0]);
      _mm512_mask_storeu_ps(c + 16, m1, acc[i][1]);
    } else {
      _mm512_storeu_ps(c, acc[i][0]);
      _mm512_storeu_ps(c + 16, acc[i][1]);
    }
  }
}

using TileFunction = void (*)(const F32Tile&);
constexpr TileFunction kFull[] = {tile<1, false>, tile<2, false>,  tile<3, false>,  tile<4, false>,  tile<5, false>,  tile<6, false>,  tile<7, false>,
                                  tile<8, false>, tile<9, false>, tile<10, false>, tile<11, false>, tile<12, false>, tile<13, false>, tile<14, false>};
constexpr TileFunction kEdge[] = {tile<1, true>, tile<2, true>,  tile<3, true>,  tile<4, true>,  tile<5, true>,  tile<6, true>,  tile<7, true>,
                                  tile<8, true>, tile<9, true>, tile<10, true>, tile<11, true>, tile<12, true>, tile<13, true>, tile<14, true>};

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

void f32_tile_avx512(const F32Tile& t) {
  const bool full = t.columns == kTileColumns && t.b_stride == kTileColumns;
  (full ? kFull : kEdge)[t.rows - 1](t);
}

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
      const __mmask16 mask = static_cast<__mmask16>((1u << (columns - j)) - 1);
      _mm512_mask_storeu_ps(target + j, mask, _mm512_maskz_loadu_ps(mask, source + j));
    }
  }
}

void transpose_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; i += 16) {
    const std::int64_t height = rows - i < 16 ? rows - i : 16;
    const __mmask16 down = static_cast<__mmask16>((1u << height) - 1);
    for (std::int64_t j = 0; j < columns; j += 16) {
      const std::int64_t width = columns - j < 16 ? columns - j : 16;
      const __mmask16 across = static_cast<__mmask16>((1u << width) - 1);
      __m512 block[16];
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
