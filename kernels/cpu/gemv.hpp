// Products with very few rows, bound by reading the weights once: the linear layers of decode.
//
//   y[m, n] (+)= x[m, k] W + bias[n]        f32 accumulation, m = 1..8 rows share one pass over W
//
// W is stored [n][k] (one output per row: a stream of its own) or [k][n] (as training keeps it; partial sums of a column block stay in L1). [n][k] is the layout to keep where
// weights do not change: one or two rows of x read it as fast as memory gives it, since the hardware's own prefetching, which reaches further than ours, follows a few long
// streams; [k][n] reaches 60 to 90 % of that. With more rows of x the sums over lanes show (tests/bench/bench_decode.cpp; reports/samples/kernel_rates.md): f32 of more than
// two rows reads packed weights where it can (gemm_f32.hpp), and from 8 rows on (bf16 without vdpbf16ps: 6) a matrix product of gemm.hpp is as fast.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_info.hpp"
#include "lib/dtype.hpp"

namespace fathom::cpu {

enum class GemvLayout : std::uint8_t { kNK, kKN };

struct Gemv {
  std::int64_t m = 1;  // rows; more than 8 read W once per 8
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::kBF16;  // of x and W: kBF16 or kF32
  DType out = DType::kF32;     // of y: kF32 or kBF16
  GemvLayout layout = GemvLayout::kNK;
  bool accumulate = false;     // add to what y holds (one rounding where y is bf16)
  const void* x = nullptr;
  const void* w = nullptr;
  void* y = nullptr;
  const float* bias = nullptr;  // [n] or null
  std::int64_t x_stride = 0;    // elements between rows of x; likewise below
  std::int64_t w_stride = 0;    // between stored rows of W: >= k for kNK, >= n for kKN
  std::int64_t y_stride = 0;
};

// Computes on `threads` OpenMP threads, each a contiguous share of the outputs; the result does not depend on their number.
// Allocates nothing. Throws an internal Error for an impossible request; zero sizes are legal (k = 0 gives bias or 0).
void gemv(const Gemv& call, int threads, Isa level = isa());

}  // namespace fathom::cpu
