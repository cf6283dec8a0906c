// gemv against a double reference: every layout, dtype, row count and tail, on every instruction set.
#if FATHOM_CPU
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/gemv.hpp"
#include "kernels/cpu/gemv_detail.hpp"
#include "tests/kernels/attention_reference.hpp"

namespace fathom::cpu::testing {
namespace {

// A matrix in f32 or bf16 with sentinels between its rows; values are exact in both types.
struct Matrix {
  DType dtype;
  std::int64_t rows, columns, stride;
  std::vector<float> values;
  std::vector<bf16> halves;

  Matrix(DType type, std::int64_t r, std::int64_t c, unsigned seed) : dtype(type), rows(r), columns(c), stride(c + 5) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < r * stride; ++i) {
      halves.push_back(bf16(i % stride < c ? normal(random) : 777.0f));
      values.push_back(float{halves.back()});
    }
    if (halves.empty()) halves.resize(1), values.resize(1);
  }
  void* data() { return dtype == DType::kBF16 ? static_cast<void*>(halves.data()) : values.data(); }
  double at(std::int64_t r, std::int64_t c) const {
    const auto i = static_cast<std::size_t>(r * stride + c);
    return static_cast<double>(dtype == DType::kBF16 ? float{halves[i]} : values[i]);
  }
};

struct Setting {
  std::int64_t m, n, k;
  DType dtype, out;
  GemvLayout layout;
  bool accumulate, bias;
};

Matrix run(const Setting& s, int threads, Isa level, std::vector<double>* expected, [[maybe_unused]] bool widens = false) {
  const bool nk = s.layout == GemvLayout::kNK;
  Matrix x(s.dtype, s.m, s.k, 1), w(s.dtype, nk ? s.n : s.k, nk ? s.k : s.n, 2), y(s.out, s.m, s.n, 3), b(DType::kF32, 1, s.n, 4);
  if (expected) {
    for (std::int64_t r = 0; r < s.m; ++r) {
      for (std::int64_t c = 0; c < s.n; ++c) {
        double sum = (s.accumulate ? y.at(r, c) : 0.0) + (s.bias ? b.at(0, c) : 0.0);
        for (std::int64_t i = 0; i < s.k; ++i) sum += x.at(r, i) * (nk ? w.at(c, i) : w.at(i, c));
        expected->push_back(sum);
      }
    }
  }
  Gemv call;
  call.m = s.m;
  call.n = s.n;
  call.k = s.k;
  call.dtype = s.dtype;
  call.out = s.out;
  call.layout = s.layout;
  call.accumulate = s.accumulate;
  call.x = x.data();
  call.w = w.data();
  call.y = y.data();
  call.bias = s.bias ? b.values.data() : nullptr;
  call.x_stride = x.stride;
  call.w_stride = w.stride;
  call.y_stride = y.stride;
#if defined(__x86_64__)
  if (widens) {
    detail::gemv_avx512(call, threads);
    return y;
  }
#endif
  gemv(call, threads, level);
  return y;
}

TEST_CASE("gemv equals the double reference, whatever the layout, dtype, rows and tails") {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 1}, {3, 31}, {64, 96}, {37, 100}, {130, 7}, {600, 65}, {5, 0}, {1100, 33}};
  for (const auto& [n, k] : sizes) {
    for (const std::int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 8, 11}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const GemvLayout layout : {GemvLayout::kNK, GemvLayout::kKN}) {
          const bool odd = (m + n + k) % 2 == 1;
          const Setting s{m, n, k, dtype, m % 2 == 0 ? DType::kF32 : DType::kBF16, layout, odd, m % 3 == 1};
          for (const Isa level : executable_levels()) {
            INFO("m " << m << " n " << n << " k " << k << " " << dtype_name(dtype) << " layout " << int(layout) << " " << isa_name(level));
            std::vector<double> expected;
            const Matrix y = run(s, 1, level, &expected);
            const double scale = std::sqrt(static_cast<double>(k) + 2);
            double worst = 0;
            for (std::int64_t r = 0; r < m; ++r) {
              for (std::int64_t c = 0; c < n; ++c) {
                const double want = expected[static_cast<std::size_t>(r * n + c)];
                const double allowed = s.out == DType::kBF16 ? std::abs(want) / 256 + 1e-5 * scale : 1e-5 * scale;
                worst = std::max(worst, std::abs(y.at(r, c) - want) / allowed);
              }
              for (std::int64_t c = n; c < y.stride; ++c) REQUIRE(y.at(r, c) == static_cast<double>(float{bf16(777.0f)}));
            }
            CHECK(worst <= 1.0);
          }
        }
      }
    }
  }
}

#if defined(__x86_64__)
// Where vdpbf16ps is fast the dispatch takes it, and the body for other AVX-512 machines is reached only by its name.
TEST_CASE("gemv that widens bf16 equals the double reference too") {
  if (cpu_info().isa < Isa::kAvx512) return;
  for (const std::int64_t m : {1, 2, 4, 7}) {
    for (const GemvLayout layout : {GemvLayout::kNK, GemvLayout::kKN}) {
      const std::int64_t n = 70, k = 131;
      std::vector<double> expected;
      const Matrix y = run({m, n, k, DType::kBF16, DType::kF32, layout, false, true}, 2, Isa::kAvx512, &expected, true);
      for (std::int64_t r = 0; r < m; ++r) {
        for (std::int64_t c = 0; c < n; ++c) CHECK(std::abs(y.at(r, c) - expected[static_cast<std::size_t>(r * n + c)]) <= 1e-5 * std::sqrt(133.0));
      }
    }
  }
}
#endif

TEST_CASE("gemv is bit-equal for any number of threads") {
  for (const GemvLayout layout : {GemvLayout::kNK, GemvLayout::kKN}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Setting s{3, 613, 259, dtype, DType::kF32, layout, true, true};
      for (const Isa level : executable_levels()) {
        const Matrix one = run(s, 1, level, nullptr);
        for (const int threads : {2, 3, 40}) {
          const Matrix more = run(s, threads, level, nullptr);
          CHECK(std::memcmp(one.values.data(), more.values.data(), one.values.size() * sizeof(float)) == 0);
        }
      }
    }
  }
}

TEST_CASE("gemv hand-worked") {
  // W rows (1 2), (3 4), (5 6); x = (1, 10): W x = 21, 43, 65; bias 100.
  const float w[] = {1, 2, 3, 4, 5, 6}, x[] = {1, 10}, bias[] = {100, 100, 100};
  float y[] = {0, 0, 0};
  Gemv call;
  call.n = 3;
  call.k = 2;
  call.dtype = DType::kF32;
  call.x = x;
  call.w = w;
  call.y = y;
  call.bias = bias;
  call.w_stride = 2;
  gemv(call, 1);
  CHECK(y[0] == 121);
  CHECK(y[1] == 143);
  CHECK(y[2] == 165);
  call.w_stride = 1;
  CHECK_THROWS(gemv(call, 1));
}

}  // namespace
}  // namespace fathom::cpu::testing
#endif
