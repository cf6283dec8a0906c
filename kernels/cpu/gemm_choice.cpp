#include <algorithm>

#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/gemm_f32.hpp"

#if FATHOM_CPU

namespace fathom::cpu {
namespace {

// bf16 products cost the same for 1..16 rows and then in steps: the library works in tiles of 16 rows and chooses bad
// row blocks for counts such as 250 or 513 (up to twice the time of 256 and 512). Multiples of 32 lie on a smooth
// curve.
std::int64_t pad(std::int64_t m) {
  return m <= 16 ? 16 : (m + 31) / 32 * 32;
}

std::vector<std::int64_t> cut(std::int64_t rows, std::int64_t panel) {
  std::vector<std::int64_t> panels;
  for (std::int64_t row = 0; row < rows; row += panel) panels.push_back(std::min(panel, rows - row));
  return panels;
}

// Where our own f32 product is chosen if the CPU can run it. Packed weights: always, one layout for all numbers of rows. Medians of
// interleaved rounds on a 2-core Xeon (family 6 model 207), one thread, fraction of the FMA probe around each sample:
//   packed: 2048x2304x576 own 0.95, matmul 0.85, sgemm on plain weights 0.84; 256x1728x576 0.94, 0.86, 0.87; and with a busy neighbour on
//   the core 2048x2304x576 0.79, 0.74, 0.73.
//   plain: own 0.86, sgemm 0.79 at 2048x2304x576 (transposed weights the same), dW 576x2304x2048 0.83 and 0.81; but 0.89 and 0.93 at
//   2048x576x576 and x2304: laying W out costs 3 to 10 %, and pays where the library stalls on a result larger than L2.
// AVX2, 2-core EPYC (family 25, Zen 3), medians of the same kind. packed: 2048x2304x576 own 0.94, matmul 0.87, sgemm 0.85; 256x2304x576 0.93, 0.75,
// 0.73; 256x576x2304 0.92, 0.80, 0.80. plain: 2048x2304x576 0.93 and sgemm 0.85; 256 rows 0.89 and 0.81, 128 rows 0.80 and 0.90, 64 rows 0.66 and 0.75;
// transposed W 64 rows 0.64 and 0.58, 16 rows 0.37 and 0.32; dW 576x2304x2048 0.88 and 0.84, 576x576x256 both 0.74.
// The library stalls where rows of W, or of X^T and Y in dW, lie a multiple of 2 KiB apart (own and sgemm, two threads): 128x3072x768 0.66 and 0.32, 64x1024x256 0.55 and
// 0.38, 32x1024x256 0.39 and 0.31, 32x512x512 both 0.48; dW 256x1024x88 0.60 and 0.29, 512x512x256 0.62 and 0.38. Elsewhere not: 128x2304x576 0.71 and 0.79.
constexpr std::int64_t kStallingFloats = 512;

bool stalls(std::int64_t row_floats) { return row_floats % kStallingFloats == 0; }

bool own_is_faster(const GemmShape& shape, const GemmOptions& options, Isa isa) {
  if (options.packed) return true;
  if (isa == Isa::kAvx2) {
    if (options.transpose_x) return shape.k >= 64 && (stalls(shape.m) || stalls(shape.n) || (shape.m >= 192 && shape.k >= 512));
    return shape.m >= (options.transpose_w ? 16 : stalls(shape.n) ? 32 : 192);
  }
  const std::int64_t results = shape.m * shape.n;
  return shape.m >= 64 && results >= (options.transpose_x || shape.k <= 1024 ? 1200000 : 4000000);
}

}  // namespace

GemmChoice choose_gemm(const GemmShape& shape, const GemmOptions& options, Isa isa) {
  GemmChoice choice;
  const bool has_amx = isa == Isa::kAmx;
  const bool native = options.dtype == DType::kBF16 && bf16_products(isa);
  choice.convert = options.dtype == DType::kBF16 && !native;
  choice.padded_rows = shape.m;
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return choice;
  const bool amx = options.dtype == DType::kBF16 && has_amx;
  const bool can_pad = options.pad_rows && !options.transpose_x;
  if (amx && can_pad) choice.padded_rows = pad(shape.m);

  const bool can_own = options.dtype == DType::kF32 && f32_has_tiles(isa);
  choice.path = options.path;
  if (choice.path == GemmPath::kAuto) {
    choice.path = GemmPath::kMatmul;
    // The library's f32 on plain weights, interleaved rounds on a 2-core Xeon (family 6 model 207), best of 1 s, GFLOP/s at one
    // thread and m = 256, probed FMA peak 176: 768x768 sgemm 172, matmul 162; n=3072 k=768 151 and 71 (its row stride
    // is a multiple of 4 KiB); n=768 k=3072 167 and 139; 4096x4096 146 and 143; transposed n=32000 k=576 132 and 140.
    const bool tall_transposed = options.transpose_w && shape.n >= 8192 && shape.m <= 512;
    // bf16 by vdpbf16ps is the library's matmul, packed or not: 2-core EPYC (family 26), one thread, 1024x3072x768 540 and 500 GFLOP/s, f32 240.
    if (!native && !options.packed && shape.m >= 64 && !tall_transposed) choice.path = GemmPath::kGemm;
    if (can_own && (options.packed || isa == Isa::kAvx2 || !tall_transposed) && own_is_faster(shape, options, isa)) choice.path = GemmPath::kOwn;
  }
  if (choice.path == GemmPath::kOwn && !can_own) choice.path = options.packed || native ? GemmPath::kMatmul : GemmPath::kGemm;
  if (choice.path == GemmPath::kGemm && (native || options.packed)) choice.path = GemmPath::kMatmul;  // sgemm knows f32 and plain weights only
  if (choice.path == GemmPath::kOwn) {
    choice.panels = {shape.m};
    return choice;
  }

  std::int64_t panel = options.panel_rows > 0 ? options.panel_rows : choice.padded_rows;
  // The library cuts k >= 1792 badly (2304 excepted) for most row counts, but not for 240. Packed, one thread, best of
  // 93 interleaved rounds of 256x768x2048: 862 GFLOP/s as 240 + 16 rows, 691 whole, 653 in panels of 64, 559 of 128.
  if (options.panel_rows == 0 && amx && shape.k >= 1792 && shape.k != 2304 && !options.transpose_x) panel = 240;
  choice.panels = cut(choice.padded_rows, panel);
  // Without room to pad, the odd rows become a piece of their own, so that the rest keeps its speed.
  if (amx && !can_pad && !options.transpose_x && shape.m > 32 && shape.m % 32 != 0 && options.panel_rows == 0) {
    choice.panels = cut(shape.m / 32 * 32, panel);
    choice.panels.push_back(shape.m % 32);
  }
  return choice;
}

bool gemm_prefers_packed(const GemmShape& shape, DType dtype, Isa isa) {
  if (dtype == DType::kBF16 && bf16_products(isa)) return true;
  if (dtype == DType::kF32 && f32_has_tiles(isa)) return true;
  return shape.m < 64 || shape.n >= 4096;
}

}  // namespace fathom::cpu

#endif
