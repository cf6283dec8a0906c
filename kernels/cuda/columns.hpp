// The second half of every sum over rows: partial sums of blocks, one row each, added in order.
//   out[m][c] (+)= sum over p of partials[m][p][c]
#pragma once

#include "kernels/cuda/launch.hpp"

namespace fathom::cuda {

struct ColumnSumArgs {
  DType type = DType::kF32;  // of out
  std::int64_t matrices = 1;
  std::int64_t parts = 0;    // rows of each
  std::int64_t width = 0;
  bool accumulate = false;
  float scale = 1.0f;
  const float* partials = nullptr;
  void* out = nullptr;
};

inline constexpr int kColumnThreads = 256;  // 32 columns x 8 strips of rows

inline LaunchShape column_sum_launch(const ColumnSumArgs& a) { return {ceil_div(a.width, 32), a.matrices, 1, kColumnThreads, kColumnThreads * 4}; }

}  // namespace fathom::cuda
