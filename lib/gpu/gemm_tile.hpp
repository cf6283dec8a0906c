// Time of a matrix product on a GPU from a tile model with twelve fitted parameters.
//
// y (m,n) = x (m,k) by n·k weights, g independent products. Every (tile, split of k) candidate is timed and the
// smallest wins, as a library's heuristic would choose:
//   blocks = ceil(m/a)·ceil(n/b)·s·g,  v = max(1, blocks/N),  waves = w·ceil(v) + (1-w)·v
//   t_comp = waves · 2ab·64·(ceil(k/64s) + p) / ((P/N)·e·alpha/(alpha+h)),  alpha = ab/16384
//   t_mem  = 4-norm of (DRAM bytes / (b_eff·W), all bytes / (l·W)), DRAM bytes through hit(x) = 1/(1+(x/(c·C2))^4)
//   t      = (t_comp^q + t_mem^q)^(1/q) + [s>1]·r
//   t_gemm = t·(1 + theta·u²·t/(t+tau)) + t0,  u = min(1, F/(P·t))          power term and fixed cost
// Small batches (m <= 16) use the same form: with bytes alone the five fits err by 17-31 % there, with the tile term by
// 5-13 %, because thin tiles and their pipeline fill keep short products from streaming at full bandwidth.
// Without quantisation of the last wave (w = 0) time is linear in tiles; w = 1 pays whole waves.
#pragma once

#include <array>
#include <limits>
#include <cstdint>
#include <string>

#include "lib/gpu/device.hpp"

namespace fathom::gpu {

struct GemmShape {
  double m = 1, n = 1, k = 1;
  double groups = 1;        // g: independent products of the same shape
  double input_bytes = 2;   // per element of x and of the weights
  double output_bytes = 2;  // per element of y
};

// What was touched since the operands were last touched, in bytes. The tables rotate six weight copies, so the default
// reuse distance of weights is 6·B_w + B_a + B_c and of activations B_w + B_a + B_c; a step passes its own.
struct Reuse {
  double weights = -1;      // negative: the tables' six rotating copies
  double activations = -1;
};

// Times in microseconds, the rest dimensionless.
struct GemmParams {
  double e = 1.2, h = 0.34, p = 4.3, b_eff = 0.88, w = 0.1, r = 2.5, q = 3.5, theta = 0.25, tau = 45, l = 3, c = 0.5, t0 = 2.2;

  static constexpr int kCount = 12;
  static const std::array<const char*, kCount>& names();
  std::array<double, kCount> values() const { return {e, h, p, b_eff, w, r, q, theta, tau, l, c, t0}; }
  static GemmParams from(const std::array<double, kCount>& v) {
    return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11]};
  }
};

// Everything needed to redo one prediction by hand. Seconds, bytes.
struct GemmEstimate {
  double seconds = 0;
  int tile_m = 0, tile_n = 0, split = 1;
  double blocks = 0, waves = 0;
  double flops = 0, weight_bytes = 0, activation_bytes = 0, output_bytes = 0;
  double hit_weights = 0, hit_activations = 0, dram_bytes = 0;
  double compute_s = 0, memory_s = 0, split_s = 0, power_s = 0, fixed_s = 0;  // terms; compute and memory overlap
  const char* binding = "";  // "compute", "memory" or "fixed": the largest term
};

inline constexpr int kTileCount = 14;
inline constexpr std::array<std::array<int, 2>, kTileCount> kTiles = {{{256, 128}, {128, 256}, {128, 192}, {192, 128},
    {128, 128}, {128, 64}, {64, 128}, {256, 64}, {64, 256}, {64, 64}, {128, 32}, {64, 32}, {64, 16}, {64, 8}}};
inline constexpr std::array<int, 5> kSplits = {1, 2, 4, 8, 16};

// Plain transcription of the formula: 70 candidates, each with its own norm. The oracle of predict_gemm.
GemmEstimate reference_gemm(const GemmShape& shape, const GpuDevice& device, const GemmParams& params, Reuse reuse = {});

// The same number (1e-12 relative) about twenty times faster: memory time does not depend on the candidate, so only the
// smallest compute time without and with a split can win.
double predict_gemm(const GemmShape& shape, const GpuDevice& device, const GemmParams& params, Reuse reuse = {});

// The candidates that can win whatever the memory time: seconds of arithmetic of the best tile without (single) and with (split) a split of k. A function of the shape
// alone, so a product that is met with other reuse distances is not searched again.
struct GemmCandidates {
  double single = std::numeric_limits<double>::infinity(), split = std::numeric_limits<double>::infinity();
  int single_at = 0, split_at = 0;  // 5 x tile + split
  bool close = false;               // another candidate is within 1e-9: reference_gemm() decides
};
GemmCandidates gemm_candidates(const GemmShape& shape, const GpuDevice& device, const GemmParams& params);

// reference_gemm bit for bit, without the norms of the candidates that cannot win.
GemmEstimate explain_gemm(const GemmCandidates& candidates, const GemmShape& shape, const GpuDevice& device, const GemmParams& params, Reuse reuse = {});
GemmEstimate explain_gemm(const GemmShape& shape, const GpuDevice& device, const GemmParams& params, Reuse reuse = {});

// Candidate quantities that depend on the shape alone, for evaluating one shape under many parameter sets (fits) or
// reading its tile counts (residual features).
struct GemmTiling {
  std::array<double, kTileCount * 5> v{}, ceil_v{};  // [tile][split]: max(1, blocks/N), and its ceiling
  std::array<double, 5> k_steps{};                   // ceil(k/64s) per split
  int splits = 1;  // admissible splits are the first `splits` of kSplits
};
GemmTiling tile_shape(const GemmShape& shape, double sms);
double predict_gemm(const GemmTiling& tiling, const GemmShape& shape, const GpuDevice& device, const GemmParams& params,
                    Reuse reuse = {});

// Smallest compute time over the splits, in seconds, per tile of kTiles.
std::array<double, kTileCount> tile_compute_times(const GemmShape& shape, const GpuDevice& device, const GemmParams& params);

}  // namespace fathom::gpu
