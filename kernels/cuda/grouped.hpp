// Products of experts as one launch: every expert's rows times its own weights (a grouped GEMM). Arguments and launch shapes.
//
//   rows      C[r, n] = A[r, k] op(B_e) (+ bias_e) (+ C) for the rows r of every expert e; forward, and with B stored [n, k] the input gradient
//   weights   C_e[m, n] = sum over the rows r of expert e of A[r, m] B[r, n] (+ C_e); zeros where an expert has no rows
// Rows of expert e are offsets[e] .. offsets[e + 1] - 1, read on the device, so that the host waits for no count and one captured graph serves all.
// bf16 with rows of whole 16-byte packs runs on tensor cores (tiles of 128 x 128, or of 32 rows where experts have few), the rest on plain cores in f32.
// Sums run over ascending k (rows), in one block: the same bits every time.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct GroupedArgs {
  DType type = DType::kF32;     // of A, B and the bias
  DType result = DType::kF32;   // of C
  bool weights = false;
  bool transpose_b = false;     // rows: B_e is stored [n, k] instead of [k, n]
  bool accumulate = false;
  int experts = 0;
  std::int64_t rows = 0;        // of all experts, at most
  std::int64_t m = 0;           // weights only
  std::int64_t n = 0;
  std::int64_t k = 0;           // rows only
  const std::int32_t* offsets = nullptr;  // [experts + 1]
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;   // [experts, n] or null; rows only
};

// db_e[n] = column sums of expert e's rows of dY.
struct GroupedBiasArgs {
  DType type = DType::kF32;
  DType grad_type = DType::kF32;
  bool accumulate = false;
  int experts = 0;
  std::int64_t n = 0;
  const std::int32_t* offsets = nullptr;
  const void* dy = nullptr;
  void* db = nullptr;
};

inline constexpr int kGroupedThreads = 256;
inline constexpr int kGroupedN = 128;      // columns of a tile
inline constexpr int kGroupedK = 32;       // terms per stage
inline constexpr int kGroupedStages = 3;
inline constexpr int kGroupedPad = 8;      // elements behind each row of a tile: matrix loads without bank conflicts
inline constexpr int kGroupedPlain = 64;   // rows and columns of a tile on plain cores
inline constexpr int kGroupedPlainK = 16;

inline bool grouped_tensor_ready(const GroupedArgs& a) {
  const std::int64_t steps = a.n | (a.weights ? a.m : a.k);
  return a.type == DType::kBF16 && vector_width(a.type, steps, a.a, a.b, a.c) > 1;
}
// Rows of a tile of C.
inline int grouped_tile_rows(const GroupedArgs& a) {
  if (!grouped_tensor_ready(a)) return kGroupedPlain;
  return !a.weights && a.rows <= std::int64_t{32} * a.experts ? 32 : 128;
}
inline int grouped_tile_columns(const GroupedArgs& a) { return grouped_tensor_ready(a) ? kGroupedN : kGroupedPlain; }

inline std::int64_t grouped_shared(const GroupedArgs& a) {
  if (!grouped_tensor_ready(a)) return std::int64_t{2} * kGroupedPlainK * (kGroupedPlain + 1) * 4;
  const std::int64_t rows = grouped_tile_rows(a);
  const std::int64_t left = a.weights ? kGroupedK * (rows + kGroupedPad) : rows * (kGroupedK + kGroupedPad);
  const std::int64_t right = !a.weights && a.transpose_b ? kGroupedN * (kGroupedK + kGroupedPad) : kGroupedK * (kGroupedN + kGroupedPad);
  return kGroupedStages * (left + right) * 2;
}
// Tiles of rows first, so that blocks which run together share columns of the weights. Experts begin tiles of their own: at most one more tile each.
inline LaunchShape grouped_launch(const GroupedArgs& a) {
  const int rows = grouped_tile_rows(a);
  const std::int64_t columns = ceil_div(a.n, grouped_tile_columns(a));
  if (a.weights) return {ceil_div(a.m, rows), columns, a.experts, kGroupedThreads, grouped_shared(a)};
  return {a.rows / rows + (a.rows < a.experts ? a.rows : a.experts), columns, 1, kGroupedThreads, grouped_shared(a)};
}
inline LaunchShape grouped_bias_launch(const GroupedBiasArgs& a) { return {ceil_div(a.n, 32), a.experts, 1, kGroupedThreads, kGroupedThreads * 4}; }

// FLOPs of one run, tile padding included: `rows` are those of each expert.
inline double grouped_flops(const GroupedArgs& a, const std::int32_t* offsets) {
  const auto padded = [](std::int64_t size, int tile) { return static_cast<double>(ceil_div(size, tile) * tile); };
  double flops = 0;
  for (int e = 0; e < a.experts; ++e) {
    const std::int64_t rows = offsets[e + 1] - offsets[e];
    const int step = grouped_tensor_ready(a) ? kGroupedK : kGroupedPlainK;
    flops += a.weights ? 2 * padded(rows, step) * padded(a.m, grouped_tile_rows(a)) * padded(a.n, grouped_tile_columns(a))
                       : 2 * padded(rows, grouped_tile_rows(a)) * padded(a.n, grouped_tile_columns(a)) * padded(a.k, step);
  }
  return flops;
}

}  // namespace fathom::cuda
