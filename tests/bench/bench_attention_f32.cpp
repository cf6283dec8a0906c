// f32 attention against the FMA register peak, forward and backward.
//   bench_attention_f32 [rounds] [filter, for example 2048x12] [instruction set]
// Every sample is bracketed by a register-only FMA probe run on as many threads; a fraction is useful causal FLOPs (both
// products over visible pairs, 2.5 times that for the backward) per second over the mean of the two probes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention_f32.hpp"
#include "kernels/cpu/vector_isa.hpp"
#include "tests/bench/clock.hpp"

namespace {

using namespace fathom::cpu;

using fathom::testing::seconds;

// FLOP/s of sixteen independent chains of vector FMA per thread, in assembly so that nothing can be hoisted. About 0.3 ms.
double fma_peak(int threads) {
#if defined(__x86_64__)
  const bool wide = vector_isa_supported(VectorIsa::kAvx512);
  if (!wide && !vector_isa_supported(VectorIsa::kAvx2)) return 0.0;
  const int loops = 50000 / 4;
  double rate = 0.0;
#pragma omp parallel num_threads(threads) reduction(+ : rate)
  {
#pragma omp barrier
    const double start = seconds();  // each thread times itself: waking the other one is not part of the peak
    int n = loops;  // the registers start at zero: left-over subnormals would make each FMA a hundred times slower
#define EACH(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)
#define CLEAR(r) "vpxor %%xmm" #r ", %%xmm" #r ", %%xmm" #r "\n"
#define ZERO EACH(CLEAR)
    if (wide) {
      asm volatile(
          ZERO "1:\n"
#define FMA(r) "vfmadd231ps %%zmm" #r ", %%zmm" #r ", %%zmm" #r "\n"
          EACH(FMA) EACH(FMA) EACH(FMA) EACH(FMA) "sub $1, %0\n jnz 1b\n"
#undef FMA
          : "+r"(n)
          :
          : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
            "xmm13", "xmm14", "xmm15", "cc");
    } else {
      asm volatile(
          ZERO "1:\n"
#define FMA(r) "vfmadd231ps %%ymm" #r ", %%ymm" #r ", %%ymm" #r "\n"
          EACH(FMA) EACH(FMA) EACH(FMA) EACH(FMA) "sub $1, %0\n jnz 1b\n"
#undef FMA
          : "+r"(n)
          :
          : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
            "xmm13", "xmm14", "xmm15", "cc");
    }
    asm volatile("vzeroupper");
    rate += loops * 64.0 * 2 * (wide ? 16 : 8) / (seconds() - start);
  }
  return rate;
#else
  (void)threads;
  return 0.0;
#endif
}

struct Case {
  std::int64_t rows, heads, kv_heads, d;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}
double quantile(std::vector<double> x, double q) {
  std::sort(x.begin(), x.end());
  return x[static_cast<std::size_t>(q * static_cast<double>(x.size() - 1))];
}

struct Stats {
  std::vector<double> ms, fraction;
};

void print(const char* what, const Case& c, int threads, double flops, const Stats& s) {
  const double ms = median(s.ms);
  std::printf("%-9s S=%-5ld heads=%ld/%ld d=%-4ld %dT  %8.3f ms (p10 %.3f p90 %.3f)  %6.1f GF/s  peak fraction %.3f (p10 %.3f p90 %.3f)\n",
              what, static_cast<long>(c.rows), static_cast<long>(c.heads), static_cast<long>(c.kv_heads),
              static_cast<long>(c.d), threads, ms, quantile(s.ms, .1), quantile(s.ms, .9), flops / ms * 1e-6,
              median(s.fraction), quantile(s.fraction, .1), quantile(s.fraction, .9));
}

void run(const Case& c, int rounds) {
  AttentionShape s;
  s.q_rows = s.kv_rows = c.rows;
  s.heads = c.heads;
  s.kv_heads = c.kv_heads;
  s.d_qk = s.d_v = c.d;
  const std::int64_t width = (c.heads + 2 * c.kv_heads) * c.d, out_width = c.heads * c.d;
  std::vector<float> qkv(c.rows * width), dqkv(qkv.size()), out(c.rows * out_width), d_out(out.size()), lse(c.rows * c.heads);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& x : qkv) x = normal(random);
  for (float& x : d_out) x = normal(random);
  std::vector<char> scratch(std::max(attention_f32_scratch_bytes(s, 2), attention_f32_backward_scratch_bytes(s, 2)));
  const std::int64_t k_at = c.heads * c.d, v_at = k_at + c.kv_heads * c.d;
  const ConstView q{qkv.data(), width, 0}, k{qkv.data() + k_at, width, 0}, v{qkv.data() + v_at, width, 0};
  const double pairs = 0.5 * static_cast<double>(c.rows) * static_cast<double>(c.rows + 1) * static_cast<double>(c.heads);
  const double flops = pairs * 4.0 * static_cast<double>(c.d);
  const auto forward = [&](int threads) {
    attention_f32(s, q, k, v, {out.data(), out_width, 0}, lse.data(), scratch.data(), threads);
  };
  const auto backward = [&](int threads) {
    attention_f32_backward(s, q, k, v, {out.data(), out_width, 0}, lse.data(), {d_out.data(), out_width, 0},
                           {dqkv.data(), width, 0}, {dqkv.data() + k_at, width, 0}, {dqkv.data() + v_at, width, 0},
                           scratch.data(), threads);
  };
  Stats stats[2][2];
  std::vector<double> ratio[2];
  for (int threads = 1; threads <= 2; ++threads) forward(threads), backward(threads);
  const int repeats = std::max(1, static_cast<int>(1e8 / flops));  // short calls are batched to about a millisecond
  for (int round = 0; round < rounds; ++round) {
    for (int threads = 1; threads <= 2; ++threads) {
      for (int direction = 0; direction < 2; ++direction) {
        const double before = fma_peak(threads);
        const double start = seconds();
        for (int i = 0; i < repeats; ++i) direction == 0 ? forward(threads) : backward(threads);
        const double time = (seconds() - start) / repeats;
        const double after = fma_peak(threads);
        Stats& to = stats[direction][threads - 1];
        to.ms.push_back(time * 1e3);
        to.fraction.push_back(flops * (direction == 0 ? 1.0 : 2.5) / time / (0.5 * (before + after)));
      }
      ratio[threads - 1].push_back(stats[1][threads - 1].ms.back() / stats[0][threads - 1].ms.back());
    }
  }
  for (int threads = 1; threads <= 2; ++threads) print("forward", c, threads, flops, stats[0][threads - 1]);
  for (int threads = 1; threads <= 2; ++threads) print("backward", c, threads, 2.5 * flops, stats[1][threads - 1]);
  std::printf("          2T over 1T: forward %.2f, backward %.2f; backward over forward: %.2f (1T), %.2f (2T)\n",
              median(stats[0][0].ms) / median(stats[0][1].ms), median(stats[1][0].ms) / median(stats[1][1].ms),
              median(ratio[0]), median(ratio[1]));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 11;
  const std::string filter = argc > 2 ? argv[2] : "";
  if (argc > 3) {
    for (const VectorIsa isa : supported_vector_isas()) {
      if (vector_isa_name(isa) == argv[3]) force_vector_isa(isa);
    }
  }
  std::printf("FMA register peak: %.1f GF/s on 1 thread, %.1f on 2\n", (fma_peak(1), fma_peak(1) * 1e-9), fma_peak(2) * 1e-9);
  for (const Case& c : {Case{2048, 12, 12, 64}, Case{2048, 9, 9, 64}, Case{2048, 10, 10, 128}, Case{2048, 12, 4, 64},
                        Case{256, 12, 12, 64}, Case{256, 10, 10, 128}, Case{128, 12, 12, 64}, Case{2048, 1, 1, 64}}) {
    const std::string name = std::to_string(c.rows) + "x" + std::to_string(c.heads) + "x" + std::to_string(c.d);
    if (name.find(filter) != std::string::npos) run(c, rounds);
  }
}
