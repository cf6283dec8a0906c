// Own f32 product for AVX-512 and AVX2, for the shapes where the library stays below 90 % of the arithmetic peak (gemm_choice.cpp).
//
//   Y[m, n] (+)= X[m, k] W[k, n] (+ bias[n])          row-major; transposes as in gemm.hpp
//
// k is cut in blocks of equal length (F32Blocks::k); within one, rows in blocks that keep their part of X in L2, and under these
// panels of 32 columns of W (AVX2: 16), each multiplied with all tiles of at most 14 rows (6) before the next (gemm_f32_tile.hpp). Packed
// weights hold the panels one after the other, each [k][32] (the last as narrow as it is): as many bytes as the plain matrix,
// and the same for every number of rows. Up to 14 rows (6) read them once, as one stream from memory. Plain weights, and X always, are laid out for the tiles block by
// block, in the plan's scratch.
//
// Every element of Y is a sum in the same order whatever the rows, threads and tile heights: rows of a batch do not influence
// each other, and one thread's result is that of many.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_info.hpp"

namespace fathom::cpu {

struct F32Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_x = false, transpose_w = false, accumulate = false, packed = false;
  int threads = 1;
  Isa level = isa();  // kAvx2 or more; decides the tiles, and with them the layout of packed weights
};

// Sizes of the blocks, and how threads share the work: a grid of row ranges by column ranges. Blocks of rows of packed products without column
// ranges are dealt out: who is done takes the last of another's.
struct F32Blocks {
  std::int64_t k = 0, rows = 0, columns = 0;
  int row_parts = 1, column_parts = 1;
  // Plain weights with AVX2: the blocks of X are long and stay laid out in L3, those of W are a few panels in L2, and pass by.
  bool x_stays = false;
};
// By the sizes of the caches and of the product; unit-tested. All sizes > 0.
F32Blocks f32_blocks(const F32Product& product);

// Whether there are tiles for `level`, and to run them: a CPU of that level.
bool f32_has_tiles(Isa level);
std::int64_t f32_scratch_bytes(const F32Product& product, const F32Blocks& blocks);
// packed: k * n floats. threads share the panels.
void f32_pack(const F32Product& product, const float* w, float* packed);
void f32_run(const F32Product& product, const F32Blocks& blocks, const float* x, const float* w, float* y, void* scratch, const float* bias);

}  // namespace fathom::cpu
