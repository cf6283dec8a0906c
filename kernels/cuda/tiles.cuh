// Addresses for matrix loads (ldmatrix x4) from tiles in shared memory whose rows are kLine elements apart.
#pragma once

#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

// A operand (16 rows x 16 columns at row, column); B operand from a tile stored [n][k] (16 n x 16 k), and, transposed,
// from one stored [k][n] (16 k x 16 n): each gives the fragments of two column tiles of 8. The A operand from a tile stored [k][m] is
// b_rows(tile, k, m), loaded transposed.
template <int kLine>
FATHOM_DEV const bf16* a_rows(const bf16* tile, int row, int column) {
  return tile + (row + dev::lane() % 16) * kLine + column + dev::lane() / 16 * 8;
}
template <int kLine>
FATHOM_DEV const bf16* b_rows(const bf16* tile, int n, int k) {
  return tile + (n + dev::lane() / 16 * 8 + dev::lane() % 8) * kLine + k + dev::lane() / 8 % 2 * 8;
}
template <int kLine>
FATHOM_DEV const bf16* b_rows_transposed(const bf16* tile, int k, int n) {
  return tile + (k + dev::lane() % 16) * kLine + n + dev::lane() / 16 * 8;
}

}  // namespace fathom::cuda
