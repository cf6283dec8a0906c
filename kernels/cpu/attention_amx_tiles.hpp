// Building blocks of the AMX attention kernels: tile set-up, 16x16 transposes, packing into tile order, 2^x, bf16 output.
// Include only from *_amx.cpp; everything has internal linkage, so no AVX-512 code leaks into other files.
//
// Tile orders (one tile = 16 rows of 64 bytes = 1 KiB, contiguous):
//   natural    A operand, rows x features: 16 rows, 32 features each                    (K, V as they are)
//   features   A operand, features x rows: 16 features, 32 rows each                    (V^T, K^T)
//   columns    B operand, features x rows: 16 feature pairs, 16 rows (dwords) each      (Q^T, dO^T)
//   row pairs  B operand, rows x features: 16 row pairs, 16 features (dwords) each      (Q, dO as right factors)
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu::detail {
namespace {

constexpr std::int64_t kTileHalves = 512;  // bf16 elements of a tile
constexpr std::int64_t kTileFloats = 256;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// g++ 12 declares the tile intrinsics without a memory operand (loads) or with one of eight bytes (configuration), so it may
// move or drop stores to what they read. Put this between such stores and the tile instructions.
inline void publish_stores() { asm volatile("" ::: "memory"); }

// All eight tiles 16 x 64 bytes. The configuration belongs to the thread and is released at the end of the parallel region.
inline void configure_tiles() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes[t] = 64;
    config.rows[t] = 16;
  }
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

inline void transpose16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// A view of one head: rows [0, rows) of `head_dim` features; what lies outside reads as zero.
struct HeadView {
  const bf16* data;
  std::int64_t stride;
  std::int64_t rows;
  int head_dim;

  // Features [first, first + 32) of a row.
  __m512i load(std::int64_t row, int first) const {
    const int left = head_dim - first;
    if (row >= rows || left <= 0) return _mm512_setzero_si512();
    const bf16* p = data + row * stride + first;
    if (left >= 32) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << left) - 1), p);
  }
};

// 16 rows from `row`, features [32 step, +32).
inline void pack_natural(const HeadView& view, std::int64_t row, int step, bf16* tile) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + 32 * i, view.load(row + i, 32 * step));
}

inline void pack_columns(const HeadView& view, std::int64_t row, int step, bf16* tile) {
  __m512i r[16];
  for (int i = 0; i < 16; ++i) r[i] = view.load(row + i, 32 * step);
  transpose16(r);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + 32 * i, r[i]);
}

// 32 rows from `row`, features [32 step, +32): two tiles one after the other. Pairs of rows are interleaved into dwords
// (in-lane, so features come out as 0-3, 8-11, ... and 4-7, 12-15, ...), then dwords are transposed.
inline void pack_features(const HeadView& view, std::int64_t row, int step, bf16* tiles) {
  __m512i low[16], high[16];
  for (int i = 0; i < 16; ++i) {
    const __m512i a = view.load(row + 2 * i, 32 * step), b = view.load(row + 2 * i + 1, 32 * step);
    low[i] = _mm512_unpacklo_epi16(a, b);
    high[i] = _mm512_unpackhi_epi16(a, b);
  }
  transpose16(low);
  transpose16(high);
  for (int i = 0; i < 16; ++i) {
    const int feature = 8 * (i / 4) + i % 4;
    _mm512_store_si512(tiles + 32 * feature, low[i]);
    _mm512_store_si512(tiles + 32 * (feature + 4), high[i]);
  }
}

// 32 rows from `row`, features [32 step, +32): two tiles (features 0-15, 16-31).
inline void pack_row_pairs(const HeadView& view, std::int64_t row, int step, bf16* tiles) {
  alignas(64) std::uint16_t index[2][32];
  for (int i = 0; i < 16; ++i) {
    index[0][2 * i] = static_cast<std::uint16_t>(i);
    index[0][2 * i + 1] = static_cast<std::uint16_t>(32 + i);
    index[1][2 * i] = static_cast<std::uint16_t>(16 + i);
    index[1][2 * i + 1] = static_cast<std::uint16_t>(48 + i);
  }
  const __m512i first = _mm512_load_si512(index[0]), second = _mm512_load_si512(index[1]);
  for (int i = 0; i < 16; ++i) {
    const __m512i a = view.load(row + 2 * i, 32 * step), b = view.load(row + 2 * i + 1, 32 * step);
    _mm512_store_si512(tiles + 32 * i, _mm512_permutex2var_epi16(a, first, b));
    _mm512_store_si512(tiles + kTileHalves + 32 * i, _mm512_permutex2var_epi16(a, second, b));
  }
}

// 2^r on [-1/2, 1/2], degree 3, minimax: relative error 7.5e-5, far below the bf16 rounding of P that follows.
inline __m512 exp2_fraction(__m512 r) {
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.05517166909261008f), r, _mm512_set1_ps(0.24261112222375328f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6932609854542462f));
  return _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.9999280735351597f));
}

constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: a sum with it holds the nearest integer in its low mantissa bits

// p * 2^n where `shifted` is kRound + n.
inline __m512 scale_by_exponent(__m512 p, __m512 shifted) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

// Two f32 vectors -> 32 bf16, `low` first.
inline __m512i to_bf16(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// Two rows of 32 queries -> the two B tiles' rows. In-lane interleaving, so a tile's column c holds query
// 8 (c / 4) + c % 4 (low) or 4 more (high); pair_query gives it, and outputs undo it.
inline __m512i pair_low(__m512i a, __m512i b) { return _mm512_unpacklo_epi16(a, b); }
inline __m512i pair_high(__m512i a, __m512i b) { return _mm512_unpackhi_epi16(a, b); }
inline int pair_query(int half, int column) { return 8 * (column / 4) + column % 4 + 4 * half; }

// Two vectors over queries 0-15 and 16-31 -> the same values in the column order of pair_low / pair_high.
inline __m512 pair_order(int half, __m512 first, __m512 second) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  return _mm512_permutex2var_ps(first, half ? _mm512_add_epi32(low, _mm512_set1_epi32(4)) : low, second);
}

// Writes 16 consecutive features of a row as bf16, as far as they exist.
inline void store_features(bf16* row, int first, int head_dim, __m512 values) {
  const int left = head_dim - first;
  if (left <= 0) return;
  const __mmask16 mask = left >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << left) - 1);
  _mm256_mask_storeu_epi16(row + first, mask, (__m256i)_mm512_cvtneps_pbh(values));
}

}  // namespace
}  // namespace fathom::cpu::detail
