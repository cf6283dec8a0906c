#include "lib/gpu/gemm_tile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/error.hpp"

namespace fathom::gpu {
namespace {

constexpr double kMicro = 1e-6;

double hit(double touched, double capacity) {
  const double x = touched / capacity;
  const double x2 = x * x;
  return 1.0 / (1.0 + x2 * x2);
}

double norm4(double a, double b) {
  const double a2 = a * a, b2 = b * b;
  return std::sqrt(std::sqrt(a2 * a2 + b2 * b2));
}

// (a^q + b^q)^(1/q), scaled by the larger so that nothing under- or overflows.
double norm_q(double a, double b, double q) {
  const double large = std::max(a, b), small = std::min(a, b);
  if (large <= 0) return 0;
  return large * std::pow(1.0 + std::pow(small / large, q), 1.0 / q);
}

struct Bytes {
  double weights, inputs, outputs, hit_weights, hit_activations, dram, memory_s;
};

Bytes memory_terms(const GemmShape& s, const GpuDevice& d, const GemmParams& p, Reuse reuse) {
  Bytes b{};
  b.weights = s.groups * s.n * s.k * s.input_bytes;
  b.inputs = s.groups * s.m * s.k * s.input_bytes;
  b.outputs = s.groups * s.m * s.n * s.output_bytes;
  const double x_w = reuse.weights >= 0 ? reuse.weights : 6 * b.weights + b.inputs + b.outputs;
  const double x_a = reuse.activations >= 0 ? reuse.activations : b.weights + b.inputs + b.outputs;
  b.hit_weights = hit(x_w, p.c * d.l2_bytes);
  b.hit_activations = hit(x_a, p.c * d.l2_bytes);
  b.dram = b.weights * (1 - b.hit_weights) + (b.inputs + b.outputs) * (1 - b.hit_activations);
  b.memory_s = norm4(b.dram / (p.b_eff * d.dram_bytes_per_s), (b.weights + b.inputs + b.outputs) / (p.l * d.dram_bytes_per_s));
  return b;
}

double flops_of(const GemmShape& s) { return 2.0 * s.m * s.n * s.k * s.groups; }

// The power term and the fixed cost around the overlapped time t.
double finish(double t, double flops, const GpuDevice& d, const GemmParams& p) {
  const double u = std::min(1.0, flops / (d.peak_flops * t));
  return t * (1 + p.theta * u * u * t / (t + p.tau * kMicro)) + p.t0 * kMicro;
}

bool admissible(double k, int split) { return split == 1 || std::ceil(k / (64.0 * split)) >= 4; }

void check(const GemmShape& s) {
  if (!(s.m >= 1 && s.n >= 1 && s.k >= 1 && s.groups >= 1)) throw_input("a matrix product needs m, n, k and groups of at least 1");
}

// Smallest compute time without (first) and with (second) a split of k, and which candidates they are.
struct Best {
  double single = std::numeric_limits<double>::infinity(), split = std::numeric_limits<double>::infinity();
  int single_at = 0, split_at = 0;
};

Best best_candidates(const GemmTiling& t, const GpuDevice& d, const GemmParams& p) {
  Best best;
  // 2ab·64 / rate with ab = 16384·alpha: the division by alpha cancels.
  const double unit = 2.0 * 64.0 * 16384.0 / ((d.peak_flops / d.sms) * p.e);
  for (int i = 0; i < kTileCount; ++i) {
    const double alpha = static_cast<double>(kTiles[i][0] * kTiles[i][1]) * (1.0 / 16384.0);
    const double scale = unit * (alpha + p.h);
    for (int s = 0; s < t.splits; ++s) {
      const int at = i * 5 + s;
      const double waves = p.w * t.ceil_v[at] + (1 - p.w) * t.v[at];
      const double seconds = waves * (t.k_steps[s] + p.p) * scale;
      if (s == 0) {
        if (seconds < best.single) best.single = seconds, best.single_at = at;
      } else if (seconds < best.split) {
        best.split = seconds, best.split_at = at;
      }
    }
  }
  return best;
}

// What follows from the chosen tile: `e` with tile, split, blocks, waves and compute time, which together with memory and split took `t` seconds.
GemmEstimate completed(GemmEstimate e, double t, const Bytes& b, const GemmShape& s, const GpuDevice& d, const GemmParams& p) {
  e.flops = flops_of(s);
  e.weight_bytes = b.weights, e.activation_bytes = b.inputs, e.output_bytes = b.outputs;
  e.hit_weights = b.hit_weights, e.hit_activations = b.hit_activations, e.dram_bytes = b.dram;
  e.memory_s = b.memory_s;
  e.split_s = e.split > 1 ? p.r * kMicro : 0;
  e.fixed_s = p.t0 * kMicro;
  e.seconds = finish(t, e.flops, d, p);
  e.power_s = e.seconds - t - e.fixed_s;
  e.binding = e.fixed_s >= std::max(e.compute_s, e.memory_s) ? "fixed" : e.compute_s >= e.memory_s ? "compute" : "memory";
  return e;
}

}  // namespace

const std::array<const char*, GemmParams::kCount>& GemmParams::names() {
  static const std::array<const char*, kCount> names = {"e", "h", "p_steps", "b_eff", "w", "r_us", "q", "theta", "tau_us", "l", "c", "t0_us"};
  return names;
}

GemmEstimate reference_gemm(const GemmShape& s, const GpuDevice& d, const GemmParams& p, Reuse reuse) {
  check(s);
  const Bytes b = memory_terms(s, d, p, reuse);
  GemmEstimate best;
  double best_t = std::numeric_limits<double>::infinity();
  for (const auto& tile : kTiles) {
    for (int split : kSplits) {
      if (!admissible(s.k, split)) continue;
      const double blocks = std::ceil(s.m / tile[0]) * std::ceil(s.n / tile[1]) * split * s.groups;
      const double v = std::max(1.0, blocks / d.sms);
      const double waves = p.w * std::ceil(v) + (1 - p.w) * v;
      const double area = static_cast<double>(tile[0]) * tile[1], alpha = area / 16384.0;
      const double rate = (d.peak_flops / d.sms) * p.e * alpha / (alpha + p.h);
      const double compute = waves * 2.0 * area * 64.0 * (std::ceil(s.k / (64.0 * split)) + p.p) / rate;
      const double t = norm_q(compute, b.memory_s, p.q) + (split > 1 ? p.r * kMicro : 0.0);
      if (t < best_t) {
        best_t = t;
        best.tile_m = tile[0], best.tile_n = tile[1], best.split = split;
        best.blocks = blocks, best.waves = waves, best.compute_s = compute;
      }
    }
  }
  return completed(best, best_t, b, s, d, p);
}

GemmTiling tile_shape(const GemmShape& s, double sms) {
  check(s);
  GemmTiling t;
  t.splits = 1;
  for (int i = 1; i < 5 && admissible(s.k, kSplits[i]); ++i) t.splits = i + 1;
  for (int i = 0; i < t.splits; ++i) t.k_steps[i] = std::ceil(s.k / (64.0 * kSplits[i]));
  // Tile counts per edge length; divisors are constants, so that no integer division is left.
  const auto m = static_cast<std::uint64_t>(s.m), n = static_cast<std::uint64_t>(s.n);
  auto counts = [](std::uint64_t x, int edge) -> std::uint64_t {
    switch (edge) {
      case 256: return (x + 255) / 256;
      case 192: return (x + 191) / 192;
      case 128: return (x + 127) / 128;
      case 64: return (x + 63) / 64;
      case 32: return (x + 31) / 32;
      case 16: return (x + 15) / 16;
      default: return (x + 7) / 8;
    }
  };
  const double per_sm = 1 / sms;
  for (int i = 0; i < kTileCount; ++i) {
    const double tiles = static_cast<double>(counts(m, kTiles[i][0]) * counts(n, kTiles[i][1])) * s.groups;
    for (int j = 0; j < t.splits; ++j) {
      const double blocks = tiles * kSplits[j];
      // v by a product with 1/N; its ceiling is corrected with the exact integer products, so it equals ceil(blocks/N).
      const double v = blocks * per_sm;
      auto up = static_cast<double>(static_cast<std::int64_t>(v));
      up -= up * sms >= blocks ? 1 : 0;
      up += up * sms < blocks ? 1 : 0;
      t.v[i * 5 + j] = std::max(1.0, v);
      t.ceil_v[i * 5 + j] = std::max(1.0, up);
    }
  }
  return t;
}

double predict_gemm(const GemmTiling& tiling, const GemmShape& s, const GpuDevice& d, const GemmParams& p, Reuse reuse) {
  const Bytes b = memory_terms(s, d, p, reuse);
  const Best best = best_candidates(tiling, d, p);
  double t = norm_q(best.single, b.memory_s, p.q);
  if (best.split < best.single && std::max(best.split, b.memory_s) + p.r * kMicro < t) t = std::min(t, norm_q(best.split, b.memory_s, p.q) + p.r * kMicro);
  return finish(t, flops_of(s), d, p);
}

double predict_gemm(const GemmShape& s, const GpuDevice& d, const GemmParams& p, Reuse reuse) {
  return predict_gemm(tile_shape(s, d.sms), s, d, p, reuse);
}

std::array<double, kTileCount> tile_compute_times(const GemmShape& s, const GpuDevice& d, const GemmParams& p) {
  const GemmTiling t = tile_shape(s, d.sms);
  std::array<double, kTileCount> times{};
  for (int i = 0; i < kTileCount; ++i) {
    const double area = static_cast<double>(kTiles[i][0]) * kTiles[i][1], alpha = area / 16384.0;
    const double rate = (d.peak_flops / d.sms) * p.e * alpha / (alpha + p.h);
    times[i] = std::numeric_limits<double>::infinity();
    for (int j = 0; j < t.splits; ++j) {
      const int at = i * 5 + j;
      times[i] = std::min(times[i], (p.w * t.ceil_v[at] + (1 - p.w) * t.v[at]) * (t.k_steps[j] + p.p) * 2.0 * area * 64.0 / rate);
    }
  }
  return times;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FATHOM_TILES __attribute__((target_clones("avx512f", "avx2", "default")))  // whichever the machine has
#else
#define FATHOM_TILES
#endif

// The candidates of reference_gemm() by its very expressions, so that the times are the same to the last bit (this file is compiled without fused multiply-adds). Loops run
// over the tiles without branches, so that compilers turn them into vector code.
FATHOM_TILES GemmCandidates gemm_candidates(const GemmShape& s, const GpuDevice& d, const GemmParams& p) {
  check(s);
  constexpr double kWhole = 4503599627370496.0;  // 2^52: from here on every number is whole
  // ceil(x) of x >= 0: adding 2^52 rounds to a whole number, less than one away.
  const auto up = [](double x) {
    const double near = (x + kWhole) - kWhole, above = near + (near < x ? 1.0 : 0.0);
    return x < kWhole ? above : x;
  };
  int splits = 1;
  while (splits < 5 && admissible(s.k, kSplits[static_cast<std::size_t>(splits)])) ++splits;
  double area[kTileCount], tiles[kTileCount], rate[kTileCount], seconds[5][kTileCount];
  const double per_sm = d.peak_flops / d.sms;
  for (int i = 0; i < kTileCount; ++i) {
    const double a = kTiles[static_cast<std::size_t>(i)][0], b = kTiles[static_cast<std::size_t>(i)][1];
    area[i] = a * b;
    tiles[i] = up(s.m / a) * up(s.n / b);
    const double alpha = area[i] / 16384.0;
    rate[i] = per_sm * p.e * alpha / (alpha + p.h);
  }
  GemmCandidates c;
  for (int j = 0; j < splits; ++j) {
    const double split = kSplits[static_cast<std::size_t>(j)], steps = up(s.k / (64.0 * split)) + p.p;
    for (int i = 0; i < kTileCount; ++i) {
      const double v = std::max(1.0, tiles[i] * split * s.groups / d.sms);
      const double waves = p.w * up(v) + (1 - p.w) * v;
      seconds[j][i] = waves * 2.0 * area[i] * 64.0 * steps / rate[i];
    }
    double& best = j == 0 ? c.single : c.split;
    for (int i = 0; i < kTileCount; ++i) best = std::min(best, seconds[j][i]);
  }
  // The first in order of those that take as long; and whether one takes all but as long: it may come out equal after the norm, and then the first in order wins.
  constexpr double kClose = 1 + 1e-9;
  int close = 0;
  for (int j = 0; j < splits; ++j) {
    const double best = j == 0 ? c.single : c.split, limit = best * kClose;
    for (int i = 0; i < kTileCount; ++i) close |= static_cast<int>(seconds[j][i] != best) & static_cast<int>(seconds[j][i] < limit);
  }
  c.close = close != 0;
  const auto find = [&](double best, int first, int last) {
    for (int i = 0; i < kTileCount; ++i)
      for (int j = first; j < last; ++j)
        if (seconds[j][i] == best) return i * 5 + j;
    return 0;
  };
  c.single_at = find(c.single, 0, 1);
  if (splits > 1) c.split_at = find(c.split, 1, splits);
  return c;
}

GemmEstimate explain_gemm(const GemmCandidates& c, const GemmShape& s, const GpuDevice& d, const GemmParams& p, Reuse reuse) {
  const Bytes b = memory_terms(s, d, p, reuse);
  const double least = std::min(c.single, c.split);
  if (c.close || !(least > 1e-3 * b.memory_s)) return reference_gemm(s, d, p, reuse);
  const double single = norm_q(c.single, b.memory_s, p.q);
  double t = single;
  int at = c.single_at;
  // The norm is at least the larger of its terms: most splits are out of the race by that alone.
  if (std::max(c.split, b.memory_s) + p.r * kMicro < single * (1 + 1e-12)) {
    const double split = norm_q(c.split, b.memory_s, p.q) + p.r * kMicro;
    if (split < single || (split == single && c.split_at < c.single_at)) t = split, at = c.split_at;
  }
  const auto tile = static_cast<std::size_t>(at / 5), divided = static_cast<std::size_t>(at % 5);
  GemmEstimate e;
  e.tile_m = kTiles[tile][0], e.tile_n = kTiles[tile][1], e.split = kSplits[divided];
  e.blocks = std::ceil(s.m / e.tile_m) * std::ceil(s.n / e.tile_n) * e.split * s.groups;
  const double v = std::max(1.0, e.blocks / d.sms);
  e.waves = p.w * std::ceil(v) + (1 - p.w) * v;
  e.compute_s = at == c.single_at ? c.single : c.split;
  return completed(e, t, b, s, d, p);
}

GemmEstimate explain_gemm(const GemmShape& s, const GpuDevice& d, const GemmParams& p, Reuse reuse) {
  return explain_gemm(gemm_candidates(s, d, p), s, d, p, reuse);
}

}  // namespace fathom::gpu
