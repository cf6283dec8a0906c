// The inner part of the f32 product, one translation unit per instruction set: register tiles and the copies that lay operands
// out for them.
//
// A tile is up to 14 rows by two vectors (32 columns): 28 accumulators, two vectors of W and one broadcast element of X are 31
// of AVX-512's 32 registers. A step of k takes 28 fused multiply-adds (14 cycles on two units) and 16 loads (8 cycles), so the
// arithmetic is the limit as long as loads hit L1; hence the prefetches.
#pragma once

#include <cstdint>

namespace fathom::cpu {

inline constexpr std::int64_t kTileRows = 14;
inline constexpr std::int64_t kTileColumns = 32;

// C[rows, columns] = A[rows, k] B[k, columns] (+ bias) (+ C). Strides in floats. columns <= kTileColumns; rows <= kTileRows.
struct F32Tile {
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0, columns = 0, k = 0;
  const float* bias = nullptr;
  bool accumulate = false;
  const void* ahead = nullptr;  // prefetched into L2 meanwhile, one line per four steps of k; may point anywhere
  std::int64_t ahead_step = 0;  // bytes from one such line to the next
};
void f32_tile_avx512(const F32Tile& tile);

// to[row, k] with stride `to_stride` from rows of stride `from_stride`: operands whose rows would share cache sets.
void copy_rows_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);
// to[j, i] = from[i, j].
void transpose_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);

}  // namespace fathom::cpu
