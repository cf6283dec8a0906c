#include "kernels/cpu/gemm_f32_tile.hpp"

#if defined(__AVX512F__)

#include <immintrin.h>

#include <array>
#include <utility>

namespace fathom::cpu {
namespace {

// One step of k: kRows elements of X, all (kApart) or every other one broadcast by an instruction of its own, the rest by both
// of the multiply-adds that use them. In volatile asm: the compiler would not broadcast twice, and reorders until accumulators spill.
template <int kRows, bool kApart, int kRow = 0>
inline __attribute__((always_inline)) void multiply(const float* a, __m512 b0, __m512 b1, __m512 (&acc)[kRows][2]) {
  if constexpr (kRow < kRows) {
    if constexpr (!kApart && kRow % 2 == 1) {
      asm volatile("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc[kRow][0]) : "v"(b0), "m"(a[kRow]));
      asm volatile("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc[kRow][1]) : "v"(b1), "m"(a[kRow]));
    } else {
      __m512 each;
      asm volatile("vbroadcastss %1, %0" : "=v"(each) : "m"(a[kRow]));
      asm volatile("vfmadd231ps %2, %1, %0" : "+v"(acc[kRow][0]) : "v"(b0), "v"(each));
      asm volatile("vfmadd231ps %2, %1, %0" : "+v"(acc[kRow][1]) : "v"(b1), "v"(each));
    }
    multiply<kRows, kApart, kRow + 1>(a, b0, b1, acc);
  }
}

constexpr int kStreamAhead = 6144;  // bytes: about the misses one core can have outstanding

constexpr std::int64_t kTileRows = kTileAvx512.rows, kTileColumns = kTileAvx512.columns;

struct Line {
  float values[16];
};

template <int kRows, bool kMasked, bool kApart>
void tile(const F32Tile& t) {
  const __mmask16 m0 = kMasked ? static_cast<__mmask16>(t.columns >= 16 ? 0xffff : (1u << t.columns) - 1) : 0xffff;
  const __mmask16 m1 = kMasked ? static_cast<__mmask16>(t.columns > 16 ? (1u << (t.columns - 16)) - 1 : 0) : 0xffff;
  const auto load = [m0, m1](const float* p, int half) {
    if constexpr (kMasked) return _mm512_maskz_loadu_ps(half == 0 ? m0 : m1, p + 16 * half);
    __m512 out;
    asm volatile("vmovups %1, %0" : "=v"(out) : "m"(*reinterpret_cast<const Line*>(p + 16 * half)));  // in its place among the others
    return out;
  };
  for (int i = 0; i < kRows; ++i) {
    const char* c = reinterpret_cast<const char*>(t.c + i * t.c_stride);
    asm volatile("prefetchw (%0)\n prefetchw 64(%0)" : : "r"(c));
  }
  __m512 acc[kRows][2];
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
  const float* a = t.a;
  const float* b = t.b;
  const std::int64_t b_stride = kMasked ? t.columns : kTileColumns;
  const char* ahead = static_cast<const char*>(t.ahead);
  const float* row_ahead = t.row_ahead;
  std::int64_t k = t.k;
  for (; k >= 4; k -= 4) {
#pragma GCC unroll 4
    for (int step = 0; step < 4; ++step) multiply<kRows, kApart>(a + step * kRows, load(b + step * b_stride, 0), load(b + step * b_stride, 1), acc);
    if (t.stream) {
#pragma GCC unroll 8
      for (int line = 0; line < 8; ++line) _mm_prefetch(reinterpret_cast<const char*>(b + 16 * line) + kStreamAhead, _MM_HINT_T0);
    } else {
      _mm_prefetch(ahead, _MM_HINT_T1);
      _mm_prefetch(ahead + t.ahead_step, _MM_HINT_T1);
      ahead += 2 * t.ahead_step;
      _mm_prefetch(reinterpret_cast<const char*>(row_ahead), _MM_HINT_T1);  // each line four times: cheaper than counting
      row_ahead += 4;
    }
    a += 4 * kRows;
    b += 4 * b_stride;
  }
  for (; k > 0; --k) {
    multiply<kRows, kApart>(a, load(b, 0), load(b, 1), acc);
    a += kRows;
    b += b_stride;
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
template <bool kMasked, bool kApart, int... kRows>
constexpr std::array<TileFunction, sizeof...(kRows)> tiles(std::integer_sequence<int, kRows...>) {
  return {tile<kRows + 1, kMasked, kApart>...};
}
using Heights = std::make_integer_sequence<int, kTileRows>;
// [rows - 1]
constexpr auto kFull = tiles<false, false>(Heights{}), kEdge = tiles<true, false>(Heights{});
constexpr auto kFullApart = tiles<false, true>(Heights{}), kEdgeApart = tiles<true, true>(Heights{});

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
  const bool full = t.columns == kTileColumns;
  const auto height = static_cast<std::size_t>(t.rows - 1);
  (t.apart ? (full ? kFullApart : kEdgeApart) : full ? kFull : kEdge)[height](t);
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
