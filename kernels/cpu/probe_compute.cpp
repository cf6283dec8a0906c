#include "kernels/cpu/probe_compute.hpp"

#if FATHOM_CPU

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/probe_loops.hpp"

namespace fathom::cpu {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds that all threads together need for one `loop` each: they start at a barrier, the last one's end counts.
template <class Loop>
double once(int threads, const Loop& loop) {
  double begin = 0, end = 0;
#pragma omp parallel num_threads(threads) reduction(max : end)
  {
    const int thread = omp_get_thread_num();
#pragma omp barrier
#pragma omp master
    begin = seconds();
#pragma omp barrier
    loop(thread);
    end = seconds();
  }
  return end - begin;
}

// Rates of `work` per thread and sample. The first sample warms up and is dropped.
ProbeResult measure(int threads, int samples, double work, const std::function<void(int thread)>& loop) {
  std::vector<double> rates;
  for (int sample = 0; sample <= samples; ++sample) {
    const double each = once(threads, loop);
    if (sample > 0) rates.push_back(threads * work / each);
  }
  return summarize_rates(std::move(rates));
}

#if defined(__x86_64__)
constexpr std::int64_t kChain = 16;

void multiply_chain(std::int64_t steps) {
  std::uint64_t x = 7;
  for (std::int64_t i = 0; i < steps; ++i) asm volatile(".rept 16\n imul $3, %0, %0\n .endr" : "+r"(x));
}

void add_chains(std::int64_t steps) {
  std::uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
  const std::uint64_t one = 1;
  for (std::int64_t i = 0; i < steps; ++i) {
    asm volatile(
        ".rept 4\n"
        "add %8, %0\n add %8, %1\n add %8, %2\n add %8, %3\n add %8, %4\n add %8, %5\n add %8, %6\n add %8, %7\n"
        ".endr"
        : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h)
        : "r"(one)
        : "cc");
  }
}

bool run_fma(std::int64_t flops, std::int64_t* executed) {
  if (isa() >= Isa::kAvx512) {
    const std::int64_t steps = std::max<std::int64_t>(1, flops / kFmaStepFlopsAvx512);
    fma_loop_avx512(steps);
    *executed = steps * kFmaStepFlopsAvx512;
    return true;
  }
  if (isa() >= Isa::kAvx2) {
    const std::int64_t steps = std::max<std::int64_t>(1, flops / kFmaStepFlopsAvx2);
    fma_loop_avx2(steps);
    *executed = steps * kFmaStepFlopsAvx2;
    return true;
  }
  return false;
}

constexpr std::int64_t kDotSteps = 1 << 15;  // 34 MFLOP, 0.1 ms at 340 GFLOP/s

// Products of bf16 are computed by vdpbf16ps.
bool dot_products() { return isa() == Isa::kAvx512 && bf16_products(isa()); }
#endif

}  // namespace

ProbeResult summarize_rates(std::vector<double> rates) {
  ProbeResult result;
  if (rates.empty()) return result;
  std::sort(rates.begin(), rates.end());
  const auto at = [&](double q) {
    return rates[static_cast<std::size_t>(q * static_cast<double>(rates.size() - 1) + 0.5)];
  };
  result.value = at(0.5);
  result.best = rates.back();
  result.spread = (at(0.9) - at(0.1)) / result.value;
  result.samples = static_cast<int>(rates.size());
  return result;
}

#if defined(__x86_64__)

ProbeResult probe_clock(int samples) {
  constexpr std::int64_t kSteps = 4000;  // 192,000 cycles, about 75 us
  return measure(1, samples, kSteps * kChain * 3.0, [](int) { multiply_chain(kSteps); });
}

ProbeResult probe_scalar(int samples) {
  constexpr std::int64_t kSteps = 20000;  // 640,000 additions
  return measure(1, samples, kSteps * 32.0, [](int) { add_chains(kSteps); });
}

ProbeResult probe_f32_fma(int threads, int samples) {
  if (isa() < Isa::kAvx2) return {};
  constexpr std::int64_t kFlops = std::int64_t{1} << 25;  // 0.2 ms at 160 GFLOP/s
  std::int64_t executed = isa() >= Isa::kAvx512 ? kFlops / kFmaStepFlopsAvx512 * kFmaStepFlopsAvx512
                                                : kFlops / kFmaStepFlopsAvx2 * kFmaStepFlopsAvx2;
  return measure(threads, samples, static_cast<double>(executed), [](int) {
    std::int64_t ignored = 0;
    run_fma(kFlops, &ignored);
  });
}

ProbeResult probe_bf16_dot(int threads, int samples) {
  if (!dot_products()) return {};
  return measure(threads, samples, static_cast<double>(kDotSteps * kDotStepFlops), [](int) { dot_loop_avx512(kDotSteps); });
}

ProbeResult probe_amx_registers(int threads, int samples) {
  if (isa() < Isa::kAmx) return {};
  constexpr std::int64_t kSteps = 5000;  // 0.49 GFLOP, 0.2 ms
  return measure(threads, samples, static_cast<double>(kSteps * 6 * kTileFlops),
                 [](int) { amx_register_loop(kSteps); });
}

ProbeResult probe_amx_tiles(int threads, std::int64_t bytes, int samples) {
  if (isa() < Isa::kAmx || bytes < 4096) return {};
  bytes = bytes / 4096 * 4096;
  std::vector<Buffer> tiles;
  for (int i = 0; i < threads; ++i) tiles.emplace_back(bytes);
  const std::int64_t pass_flops = bytes / 1024 * kTileFlops;
  const std::int64_t passes = std::max<std::int64_t>(1, (std::int64_t{1} << 28) / pass_flops);  // 0.27 GFLOP, 0.15 ms
  return measure(threads, samples, static_cast<double>(passes * pass_flops),
                 [&](int thread) { amx_tile_loop(tiles[static_cast<std::size_t>(thread)].data(), bytes, passes); });
}

StateProbe::StateProbe() : amx_(isa() == Isa::kAmx), tiles_(amx_ ? kTilesInL2 : 0) {
  flops_per_second();
}

double StateProbe::flops_per_second() {
  if (amx_) {
    constexpr std::int64_t kPasses = 40;  // 0.17 GFLOP: 100 us at 1700 GFLOP/s
    const double begin = seconds();
    amx_tile_loop(tiles_.data(), kTilesInL2, kPasses);
    return static_cast<double>(kPasses * (kTilesInL2 / 1024) * kTileFlops) / (seconds() - begin);
  }
  std::int64_t flops = 0;
  const double begin = seconds();
  if (!run_fma(std::int64_t{1} << 24, &flops)) return 0;
  return static_cast<double>(flops) / (seconds() - begin);
}

CeilingProbe::CeilingProbe(int threads, bool bf16) : threads_(threads), amx_(bf16 && isa() == Isa::kAmx), dot_(bf16 && dot_products()) {
  for (int i = 0; amx_ && i < threads; ++i) tiles_.emplace_back(kTilesInL2);
}

double CeilingProbe::flops_per_second() {
  if (amx_) {
    constexpr std::int64_t kPasses = 40;  // 0.17 GFLOP per thread
    const double each = once(threads_, [&](int thread) { amx_tile_loop(tiles_[static_cast<std::size_t>(thread)].data(), kTilesInL2, kPasses); });
    return static_cast<double>(threads_) * static_cast<double>(kPasses * (kTilesInL2 / 1024) * kTileFlops) / each;
  }
  if (dot_) return static_cast<double>(threads_) * static_cast<double>(kDotSteps * kDotStepFlops) / once(threads_, [](int) { dot_loop_avx512(kDotSteps); });
  if (isa() < Isa::kAvx2) return 0;
  constexpr std::int64_t kFlops = std::int64_t{1} << 24;
  std::vector<std::int64_t> executed(static_cast<std::size_t>(threads_));
  const double each = once(threads_, [&](int thread) { run_fma(kFlops, &executed[static_cast<std::size_t>(thread)]); });
  return static_cast<double>(threads_) * static_cast<double>(executed[0]) / each;
}

#else

ProbeResult probe_clock(int) {
  return {};
}
ProbeResult probe_scalar(int) {
  return {};
}
ProbeResult probe_f32_fma(int, int) {
  return {};
}
ProbeResult probe_bf16_dot(int, int) {
  return {};
}
ProbeResult probe_amx_registers(int, int) {
  return {};
}
ProbeResult probe_amx_tiles(int, std::int64_t, int) {
  return {};
}
CeilingProbe::CeilingProbe(int threads, bool) : threads_(threads), amx_(false), dot_(false) {}
double CeilingProbe::flops_per_second() {
  return 0;
}
StateProbe::StateProbe() : amx_(false) {}
double StateProbe::flops_per_second() {
  return 0;
}

#endif

}  // namespace fathom::cpu

#endif
