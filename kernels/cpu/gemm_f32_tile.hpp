// The inner part of the f32 product, one translation unit per instruction set: register tiles and the copies that lay operands
// out for them.
//
// A tile is up to 14 rows by two vectors (32 columns): 28 accumulators, two vectors of W and one broadcast element of X are 31
// of AVX-512's 32 registers. A step of k takes 28 fused multiply-adds, 14 cycles on two units. What else it takes decides how
// the tile fares when a neighbour on the same core takes half of the issue slots and load ports: so X is laid out for it
// ([k][rows]: one stream instead of 14), and half of its elements are broadcast by the multiply-adds themselves, twice, which
// costs a load more and an instruction less. On a 2-core Xeon (family 6 model 207), tile alone, operands in L1 (X from L2),
// fraction of the register peak with a busy neighbour: 0.95 (0.91); all elements broadcast apart 0.89 (0.87), all twice 0.95
// (0.90), rows of X in place 0.89 (0.85), with prefetches of W into L1 another 0.01 less; alone all reach 0.99. AMD's cores load
// less at once, but have the slots: on a 2-core EPYC (family 26) 0.975 with all elements broadcast apart, 0.945 with half of
// them, 0.93 to 0.945 with rows of X in place. So F32Tile::apart.
//
// AVX2 has 16 registers: 6 rows by two vectors (16 columns) are 12 accumulators, beside two vectors of W and an element of X. A step of k takes
// 12 multiply-adds in 6 cycles, and 8 loads, for which two ports have 12.
#pragma once

#include <cstdint>

namespace fathom::cpu {

// Of a full tile.
struct F32TileSize {
  std::int64_t rows, columns;
};
inline constexpr F32TileSize kTileAvx512{14, 32}, kTileAvx2{6, 16};

// C[rows, columns] = A[rows, k] B[k, columns] (+ bias) (+ C); at most a full tile.
struct F32Tile {
  const float* a = nullptr;  // [k][rows]
  const float* b = nullptr;  // [k][columns]
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0, columns = 0, k = 0;
  const float* bias = nullptr;
  bool accumulate = false;
  const void* ahead = nullptr;  // prefetched into L2 meanwhile, twice per four steps of k; may point anywhere
  std::int64_t ahead_step = 0;  // bytes from one such prefetch to the next; less than a line spreads few lines over the tile
  const float* row_ahead = nullptr;  // k floats, prefetched into L2 too; may point anywhere
  bool stream = false;               // W comes from memory and no other tile uses it: its own lines are prefetched instead, into L1
  bool apart = false;                // every element of X is broadcast by an instruction of its own; read by AVX-512 only
};
void f32_tile_avx512(const F32Tile& tile);
void f32_tile_avx2(const F32Tile& tile);

// to[i, j] = from[i, j]. Strides in floats.
void copy_rows_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);
void copy_rows_avx2(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);
// to[j, i] = from[i, j].
void transpose_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);
void transpose_avx2(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);

}  // namespace fathom::cpu
