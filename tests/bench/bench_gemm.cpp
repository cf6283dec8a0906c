// Contenders for one product, alternating in one run, against the ceiling probed around every sample.
//
//   bench_gemm [f32|bf16] [threads] [seconds] [m n k [t] [x]]...      t: transposed weights, x: transposed X
//
// Prints per contender the best, median and p10-p90 spread in GFLOP/s (useful FLOPs), and the median over rounds of its
// rate divided by the mean of the two ceiling probes around it: f32 FMA registers, or the AMX loop over tiles in L2.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/probe_compute.hpp"
#include "tests/bench/clock.hpp"

using namespace fathom;
using namespace fathom::cpu;

namespace {

using fathom::testing::seconds;

struct Contender {
  std::string name;
  GemmPlan plan;
  Buffer packed, scratch;
  std::vector<double> rates, fractions;
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void fill(Buffer& buffer, std::int64_t count, DType type) {
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<std::int32_t>(state)) * (1.0f / 2147483648.0f);
    if (type == DType::kBF16) {
      buffer.as<bf16>()[i] = bf16(value);
    } else {
      buffer.as<float>()[i] = value;
    }
  }
}

void bench(const GemmShape& shape, bool transpose_w, bool transpose_x, DType type, int threads, double budget) {
  const auto [m, n, k] = shape;
  const std::int64_t room = m + 32, size = dtype_bytes(type);
  Buffer x(room * k * size, threads), w(k * n * size, threads), y(room * n * size, threads);
  fill(x, m * k, type);
  fill(w, k * n, type);
  std::vector<Contender> contenders;
  const auto add = [&](const std::string& name, bool packed, GemmPath path, std::int64_t panel) {
    GemmOptions o;
    o.dtype = o.out = type;
    o.transpose_w = transpose_w;
    o.transpose_x = transpose_x;
    o.packed = packed;
    o.threads = threads;
    o.path = path;
    o.panel_rows = panel;
    GemmPlan plan(shape, o);
    Buffer weights(plan.packed_bytes(), threads), scratch(plan.scratch_bytes(), threads);
    plan.pack(w.data(), weights.data());
    const std::string impl = plan.impl();
    contenders.push_back({name + " [" + impl + "]", std::move(plan), std::move(weights), std::move(scratch), {}, {}});
  };
  add("chosen, packed", true, GemmPath::kAuto, 0);
  add("chosen, plain", false, GemmPath::kAuto, 0);
  add("matmul, packed, one panel", true, GemmPath::kMatmul, m + 32);
  add("matmul, plain, one panel", false, GemmPath::kMatmul, m + 32);
  for (const std::int64_t panel : {128, 240, 480}) {
    if (panel < m) add("matmul, packed, panels of " + std::to_string(panel), true, GemmPath::kMatmul, panel);
  }
  if (type == DType::kF32) {
    add("sgemm, plain", false, GemmPath::kGemm, m + 32);
    add("own, packed", true, GemmPath::kOwn, 0);
    add("own, plain", false, GemmPath::kOwn, 0);
  }

  StateProbe state;
  const bool amx = type == DType::kBF16 && isa() == Isa::kAmx;
  const auto ceiling = [&] {
    return amx ? probe_amx_tiles(threads, kTilesInL2, 1).value : probe_f32_fma(threads, 1).value;
  };
  const auto run = [&](Contender& c) {
    c.plan.run(x.data(), c.plan.options().packed ? c.packed.data() : w.data(), y.data(), c.scratch.data());
  };
  for (Contender& c : contenders) run(c);  // first execution is slower: discard
  std::vector<double> ceilings;
  const double flops = static_cast<double>(contenders[0].plan.useful_flops());
  const double begin = seconds();
  int rounds = 0;
  for (; rounds < 3 || (seconds() - begin < budget && rounds < 300); ++rounds) {
    double before = ceiling();
    for (Contender& c : contenders) {
      // Short products are batched to about 0.2 ms.
      const int repeat = std::max(1, static_cast<int>(2e-4 * (amx ? 8e11 : 1.3e11) / flops));
      const double start = seconds();
      for (int i = 0; i < repeat; ++i) run(c);
      const double rate = flops * repeat / (seconds() - start);
      const double after = ceiling();
      c.rates.push_back(rate);
      c.fractions.push_back(rate / (0.5 * (before + after)));
      ceilings.push_back(after);
      before = after;
    }
  }
  std::printf(
      "\n%s m=%lld n=%lld k=%lld%s, %d thread(s), %d rounds; ceiling (%s) median %.0f, p10 %.0f, p90 %.0f GFLOP/s\n",
      std::string(dtype_name(type)).c_str(), static_cast<long long>(m), static_cast<long long>(n),
      static_cast<long long>(k), transpose_x ? (transpose_w ? " transposed W and X" : " transposed X") : transpose_w ? " transposed W" : "", threads, rounds,
      amx ? "AMX tiles in L2" : "f32 FMA", quantile(ceilings, 0.5) / 1e9, quantile(ceilings, 0.1) / 1e9,
      quantile(ceilings, 0.9) / 1e9);
  std::printf("  %-62s %8s %8s %7s %9s %9s\n", "contender", "best", "median", "spread", "of peak", "p90");
  for (const Contender& c : contenders) {
    const double median = quantile(c.rates, 0.5);
    std::printf("  %-62s %8.1f %8.1f %6.0f%% %8.1f%% %8.1f%%\n", c.name.c_str(), quantile(c.rates, 1) / 1e9,
                median / 1e9, 100 * (quantile(c.rates, 0.9) - quantile(c.rates, 0.1)) / median,
                100 * quantile(c.fractions, 0.5), 100 * quantile(c.fractions, 0.9));
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const DType type = argc > 1 ? parse_dtype(argv[1]) : DType::kF32;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const double budget = argc > 3 ? std::atof(argv[3]) : 1.0;
  const CpuInfo& info = cpu_info();
  std::printf("%s, family %d model %d, %d core(s), %s\n", info.model_name.c_str(), info.family, info.model, info.cores,
              std::string(isa_name(isa())).c_str());
  const auto show = [](const char* name, const ProbeResult& r, double unit) {
    std::printf("  %-26s median %9.2f best %9.2f spread %4.0f%% (%d samples)\n", name, r.value / unit, r.best / unit,
                100 * r.spread, r.samples);
  };
  show("clock, GHz", probe_clock(), 1e9);
  show("scalar, Gop/s", probe_scalar(), 1e9);
  show("f32 FMA, GFLOP/s", probe_f32_fma(threads), 1e9);
  show("AMX registers, GFLOP/s", probe_amx_registers(threads), 1e9);
  show("AMX tiles L1, GFLOP/s", probe_amx_tiles(threads, kTilesInL1), 1e9);
  show("AMX tiles L2, GFLOP/s", probe_amx_tiles(threads, kTilesInL2), 1e9);
  for (int i = 4; i + 2 < argc;) {
    const GemmShape shape{std::atoll(argv[i]), std::atoll(argv[i + 1]), std::atoll(argv[i + 2])};
    i += 3;
    const auto flag = [&](const char* name) {
      const bool given = i < argc && std::string(argv[i]) == name;
      if (given) ++i;
      return given;
    };
    const bool w = flag("t"), x = flag("x");
    bench(shape, w, x, type, threads, budget);
  }
  return 0;
}
