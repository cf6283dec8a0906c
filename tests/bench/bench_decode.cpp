// Decode kernels against a streaming read of the same bytes, and gemv against the matrix product of gemm.hpp.
//
//   bench_decode [threads [rounds]]      defaults 1, 15
//
// Every contender of a table runs once per round, in turn. Weights come from a pool larger than any cache (each call takes
// the next copy), as in a decode step. "stream" is a prefetched AVX-512-free read (sum of 64-bit words) of the same bytes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/decode_attention.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/gemv.hpp"
#include "kernels/cpu/memory.hpp"
#include "tests/bench/clock.hpp"

#if FATHOM_CPU

#include <omp.h>

namespace {

using namespace fathom;
using namespace fathom::cpu;

using fathom::testing::seconds;

// Reads bytes [0, size) on `threads` threads; the sum keeps the loads alive.
volatile std::uint64_t sink;
void stream(const char* data, std::int64_t size, int threads) {
  std::uint64_t total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
  {
    typedef std::uint64_t V8 __attribute__((vector_size(64)));
    const std::int64_t lines = size / 64, team = omp_get_num_threads(), self = omp_get_thread_num();
    const V8* p = reinterpret_cast<const V8*>(data) + lines * self / team;
    const V8* const end = reinterpret_cast<const V8*>(data) + lines * (self + 1) / team;
    V8 a = {}, b = {};
    for (; p + 2 <= end; p += 2) {
      __builtin_prefetch(reinterpret_cast<const char*>(p) + 6144);
      __builtin_prefetch(reinterpret_cast<const char*>(p) + 6208);
      a += p[0];
      b += p[1];
    }
    a += b;
    for (int i = 0; i < 8; ++i) total += a[i];
  }
  sink = total;
}

struct Contender {
  std::string name;
  std::function<void(int)> run;  // the argument counts calls: which copy of the pool to use
  std::vector<double> samples = {};
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void race(std::vector<Contender>& contenders, int rounds) {
  int copy = 0;
  for (int round = -1; round < rounds; ++round) {
    for (Contender& c : contenders) {
      const double start = seconds();
      c.run(copy++);
      if (round >= 0) c.samples.push_back(seconds() - start);
    }
  }
}

// Median of the per-round ratio to contender 0, the streaming read.
double fraction(const std::vector<Contender>& contenders, std::size_t i) {
  std::vector<double> ratios;
  for (std::size_t r = 0; r < contenders[i].samples.size(); ++r) ratios.push_back(contenders[0].samples[r] / contenders[i].samples[r]);
  return median(ratios);
}

void report(const std::vector<Contender>& contenders, double bytes) {
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto& s = contenders[i].samples;
    std::printf("  %-22s min %9.1f us  median %9.1f us  %6.2f GB/s  %5.1f %% of stream\n", contenders[i].name.c_str(),
                *std::min_element(s.begin(), s.end()) * 1e6, median(s) * 1e6, bytes / median(s) * 1e-9, 100 * fraction(contenders, i));
  }
}

constexpr std::int64_t kPool = std::int64_t{768} << 20;

void gemv_table(const Buffer& pool, DType dtype, std::int64_t n, std::int64_t k, int threads, int rounds) {
  const std::int64_t size = n * k * dtype_bytes(dtype), copies = kPool / size;
  std::printf("gemv %s n %ld k %ld, %d thread(s), %.1f MB per call, cold\n", std::string(dtype_name(dtype)).c_str(), static_cast<long>(n),
              static_cast<long>(k), threads, static_cast<double>(size) * 1e-6);
  Buffer x(64 * k * 4), y(64 * n * 4);
  std::vector<Contender> contenders;
  const auto weights = [&, copies, size](int copy) { return pool.as<char>(copy % copies * size); };
  contenders.push_back({"stream", [&, size](int c) { stream(weights(c), size, threads); }});
  const auto add = [&](std::int64_t m, GemvLayout layout) {
    Gemv g;
    g.m = m;
    g.n = n;
    g.k = k;
    g.dtype = dtype;
    g.layout = layout;
    g.x = x.data();
    g.y = y.data();
    g.x_stride = k;
    g.w_stride = layout == GemvLayout::kNK ? k : n;
    g.y_stride = n;
    contenders.push_back({std::string(layout == GemvLayout::kNK ? "gemv [n][k] m " : "gemv [k][n] m ") + std::to_string(m),
                          [g, &weights, threads](int c) mutable {
                            g.w = weights(c);
                            gemv(g, threads);
                          }});
  };
  for (const std::int64_t m : {1, 2, 4, 8}) add(m, GemvLayout::kNK);
  for (const std::int64_t m : {1, 2, 4, 8}) add(m, GemvLayout::kKN);
  std::vector<GemmPlan> plans;
  std::vector<Buffer> scratch;
  const std::int64_t rows[] = {1, 2, 4, 8};
  plans.reserve(std::size(rows));
  for (const std::int64_t m : rows) {
    GemmOptions options;
    options.dtype = dtype;
    options.packed = true;
    options.threads = threads;
    plans.emplace_back(GemmShape{m, n, k}, options);
    if (plans.back().packed_bytes() > size + size / 8) {  // bf16 that is computed, and so packed, in f32 reads twice the bytes: no contender
      plans.pop_back();
      break;
    }
    scratch.emplace_back(std::max<std::int64_t>(64, plans.back().scratch_bytes()));
    contenders.push_back({"gemm packed m " + std::to_string(m), [&, i = plans.size() - 1](int c) {
                            plans[i].run(x.data(), weights(c), y.data(), scratch[i].data());
                          }});
  }
  race(contenders, rounds);
  report(contenders, static_cast<double>(size));
}

void attention_table(const Buffer& pool, DType dtype, std::int64_t context, std::int64_t rows, int heads, int kv_heads, int head_dim,
                     int threads, int rounds) {
  DecodeAttention call;
  call.cache = KvCache{dtype, kv_heads, head_dim, context, nullptr, nullptr};
  call.heads = heads;
  call.scale = 0.125f;
  call.rows = rows;
  const std::int64_t half = call.cache.bytes(rows), copies = kPool / (2 * half);
  std::vector<std::int32_t> counts(static_cast<std::size_t>(rows), static_cast<std::int32_t>(context));
  call.counts = counts.data();
  Buffer q(rows * heads * head_dim * 4), out(rows * heads * head_dim * 4), scratch(decode_attention_scratch_bytes(call, threads));
  call.q = q.data();
  call.out = out.data();
  call.q_stride = call.out_stride = std::int64_t{heads} * head_dim;
  std::printf("decode attention %s context %ld, rows %ld, heads %d/%d x %d, %d thread(s), %.1f MB per call, cold\n",
              std::string(dtype_name(dtype)).c_str(), static_cast<long>(context), static_cast<long>(rows), heads, kv_heads, head_dim, threads,
              static_cast<double>(2 * half) * 1e-6);
  std::vector<Contender> contenders;
  contenders.push_back({"stream", [&](int c) { stream(pool.as<char>(c % copies * 2 * half), 2 * half, threads); }});
  contenders.push_back({"decode_attention", [&](int c) {
                          call.cache.k = const_cast<char*>(pool.as<char>(c % copies * 2 * half));
                          call.cache.v = static_cast<char*>(call.cache.k) + half;
                          decode_attention(call, scratch.data(), threads);
                        }});
  race(contenders, rounds);
  report(contenders, static_cast<double>(2 * half));
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1, rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  std::printf("%s, %s\n", cpu_info().model_name.c_str(), std::string(isa_name(isa())).c_str());
  Buffer pool(kPool + (1 << 20), threads);
  // Small numbers of both signs in either type: f32 words whose upper and lower halves are ordinary bf16 values.
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < kPool / 4; ++i) {
    state = state * 1664525u + 1013904223u;
    pool.as<std::uint32_t>()[i] = (state & 0x807f807fu) | 0x3c003c00u;
  }
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    gemv_table(pool, dtype, 4096, 768, threads, rounds);
    gemv_table(pool, dtype, 768, 2048, threads, rounds);
    gemv_table(pool, dtype, 50304, 768, threads, rounds);  // a vocabulary
  }
  struct Shape {
    std::int64_t context, rows;
    int heads, kv_heads, head_dim;
  };
  const Shape shapes[] = {{128, 16, 12, 12, 64}, {2048, 4, 12, 12, 64},  {8192, 1, 12, 12, 64},  {4096, 1, 16, 16, 80},
                          {4096, 1, 16, 16, 96}, {4096, 1, 16, 16, 128}, {8192, 1, 32, 8, 128},  {8192, 1, 32, 4, 128},
                          {4096, 1, 16, 8, 256}, {32768, 1, 8, 1, 128},  {16384, 1, 16, 1, 256}};
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Shape& s : shapes) attention_table(pool, dtype, s.context, s.rows, s.heads, s.kv_heads, s.head_dim, threads, rounds);
  }
}

#else
int main() { std::puts("built without the CPU backend"); }
#endif
