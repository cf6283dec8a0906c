// GEMM plans against a naive double product, with sentinels around every buffer.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/gemm.hpp"
#include "lib/error.hpp"

#if FATHOM_CPU

using namespace fathom;
using namespace fathom::cpu;

namespace {

constexpr int kGuard = 64;            // sentinel elements on both sides
constexpr float kSentinel = -777.0f;  // exact in bf16? 777 = 0b1100001001 needs 10 bits: it rounds, so compare rounded

// An operand in f32 or bf16 with guards, 64-byte aligned data.
class Operand {
 public:
  Operand(std::int64_t count, DType type) : count_(count), type_(type), raw_((count + 2 * kGuard + 32) * 4) {
    for (std::int64_t i = -kGuard; i < count_ + kGuard; ++i) set(i, kSentinel);
  }
  void* data() { return base() + kGuard * 4; }
  float get(std::int64_t i) {
    if (type_ == DType::kF32) return static_cast<float*>(data())[i];
    return static_cast<bf16*>(data())[i];
  }
  void set(std::int64_t i, float value) {
    if (type_ == DType::kF32) {
      static_cast<float*>(data())[i] = value;
    } else {
      static_cast<bf16*>(data())[i] = bf16(value);
    }
  }
  bool guards_intact() {
    const float expected = type_ == DType::kF32 ? kSentinel : float(bf16(kSentinel));
    for (std::int64_t i = 1; i <= kGuard; ++i) {
      if (get(-i) != expected || get(count_ + i - 1) != expected) return false;
    }
    return true;
  }

 private:
  char* base() { return raw_.data() + (64 - reinterpret_cast<std::uintptr_t>(raw_.data()) % 64) % 64; }
  std::int64_t count_;
  DType type_;
  std::vector<char> raw_;
};

struct Scratch {
  explicit Scratch(std::int64_t bytes) : raw(static_cast<std::size_t>(bytes) + 128, char(0xff)) {}  // NaN patterns
  void* data() { return raw.data() + (64 - reinterpret_cast<std::uintptr_t>(raw.data()) % 64) % 64; }
  std::vector<char> raw;
};

// Runs one plan on random data of both signs and compares every element. The padding rows of X hold NaN: they must not
// reach a real output.
//
// Tolerance: f32 sums of k products err by at most about k eps sum|x w|; eps = 2^-24 and |x|,|w| <= 1 give
// k^2 2^-24 / 4 at the very worst and sqrt(k) eps typically; 2e-6 sqrt(k) + 1e-6 is generous for the latter. bf16
// operands are exact in the reference (it reads the rounded values), products are exact in f32, so the same bound holds
// for an f32 result; a bf16 result adds half an ulp, 2^-8 relative (8 significant bits).
void check_plan(const GemmPlan& plan, std::uint32_t seed, const GemmPlan* packer = nullptr) {
  const auto [m, n, k] = plan.shape();
  const GemmOptions& o = plan.options();
  const std::int64_t rows = plan.padded_rows();
  INFO("m=" << m << " n=" << n << " k=" << k << " " << dtype_name(o.dtype) << "->" << dtype_name(o.out)
            << " tx=" << o.transpose_x << " tw=" << o.transpose_w << " acc=" << o.accumulate << " bias=" << o.bias
            << " packed=" << o.packed << " threads=" << o.threads << " padded=" << rows << " impl=" << plan.impl());
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Operand x(rows * k, o.dtype), w(k * n, o.dtype), y(rows * n, o.out), bias(n, DType::kF32);
  for (std::int64_t i = 0; i < rows * k; ++i) {
    const bool padding = !o.transpose_x && i >= m * k;
    x.set(i, padding ? std::numeric_limits<float>::quiet_NaN() : uniform(random));
  }
  for (std::int64_t i = 0; i < k * n; ++i) w.set(i, uniform(random));
  for (std::int64_t i = 0; i < rows * n; ++i) y.set(i, uniform(random));
  for (std::int64_t i = 0; i < n; ++i) bias.set(i, uniform(random));

  // X as [m, k] and W as [n, k] in double, so that the naive loop stays a plain dot product.
  std::vector<double> xd(static_cast<std::size_t>(m * k)), wd(static_cast<std::size_t>(n * k));
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t i = 0; i < k; ++i) xd[size_t(r * k + i)] = x.get(o.transpose_x ? i * m + r : r * k + i);
  }
  for (std::int64_t c = 0; c < n; ++c) {
    for (std::int64_t i = 0; i < k; ++i) wd[size_t(c * k + i)] = w.get(o.transpose_w ? c * k + i : i * n + c);
  }
  std::vector<double> expected(static_cast<std::size_t>(m * n));
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      double sum = (o.accumulate ? y.get(r * n + c) : 0.0f) + (o.bias ? double(bias.get(c)) : 0.0);
      for (std::int64_t i = 0; i < k; ++i) sum += xd[size_t(r * k + i)] * wd[size_t(c * k + i)];
      expected[static_cast<std::size_t>(r * n + c)] = sum;
    }
  }

  Scratch scratch(plan.scratch_bytes());
  Scratch packed((packer ? *packer : plan).packed_bytes());
  const void* weights = w.data();
  if (o.packed) {
    (packer ? *packer : plan).pack(w.data(), packed.data());
    weights = packed.data();
  }
  plan.run(x.data(), weights, y.data(), scratch.data(), o.bias ? static_cast<float*>(bias.data()) : nullptr);

  const double absolute = 2e-6 * std::sqrt(double(k)) + 1e-6;
  const double relative = o.out == DType::kBF16 ? 1.0 / 256 : 0.0;
  std::int64_t wrong = 0;
  double worst = 0;
  for (std::int64_t i = 0; i < m * n; ++i) {
    const double e = expected[static_cast<std::size_t>(i)];
    const double error = std::abs(y.get(i) - e);
    if (!(error <= absolute + relative * std::abs(e))) ++wrong;
    worst = std::max(worst, std::isnan(error) ? INFINITY : error);
  }
  INFO("worst absolute error " << worst);
  CHECK(wrong == 0);
  CHECK(x.guards_intact());
  CHECK(w.guards_intact());
  CHECK(y.guards_intact());
  CHECK(bias.guards_intact());
}

std::string self_path() {
  char path[4096];
  const auto length = readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : std::string();
}

const GemmShape kShapes[] = {{0, 5, 3},    {3, 0, 5},     {3, 5, 0},     {1, 1, 1},      {1, 64, 64},
                             {2, 17, 33},  {7, 48, 5},    {16, 96, 32},  {17, 31, 65},   {33, 128, 127},
                             {64, 64, 64}, {65, 100, 70}, {250, 72, 40}, {300, 40, 1800}};

}  // namespace

TEST_CASE("every combination of options over a table of shapes") {
  std::uint32_t seed = 1;
  for (const GemmShape& shape : kShapes) {
    // The large shape is there for its k: every fifth combination is enough.
    for (int bits = 0; bits<64; bits += shape.k> 1000 ? 5 : 1) {
      for (const auto& [in, out] : {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kBF16, DType::kBF16},
                                    std::pair{DType::kBF16, DType::kF32}}) {
        GemmOptions o;
        o.dtype = in;
        o.out = out;
        o.transpose_x = bits & 1;
        o.transpose_w = bits & 2;
        o.accumulate = bits & 4;
        o.bias = bits & 8;
        o.packed = bits & 16;
        o.pad_rows = bits & 32;
        o.threads = 1 + static_cast<int>(seed % 2);
        check_plan(GemmPlan(shape, o), ++seed);
      }
    }
  }
}

TEST_CASE("every explicit path and panel size gives the same product") {
  for (const GemmPath path : {GemmPath::kAuto, GemmPath::kMatmul, GemmPath::kGemm, GemmPath::kOwn}) {
    for (const std::int64_t panel : {0, 16, 48, 1000}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        GemmOptions o;
        o.dtype = type;
        o.path = path;
        o.panel_rows = panel;
        o.transpose_w = panel == 48;
        o.transpose_x = panel == 16;
        check_plan(GemmPlan({100, 80, 96}, o), 77);
      }
    }
  }
}

TEST_CASE("running twice gives the same result and packing again follows the weights") {
  GemmOptions o;
  o.packed = true;
  const GemmPlan plan({40, 48, 56}, o);
  check_plan(plan, 5);
  check_plan(plan, 6);
}

TEST_CASE("the work is counted on real rows and stated on executed ones") {
  // 250 rows of 64 x 32: 2*250*64*32 = 1,024,000 useful; padded to 256 in bf16: 1,048,576 executed.
  GemmOptions o;
  o.dtype = DType::kBF16;
  const GemmPlan plan({250, 64, 32}, o);
  CHECK(plan.useful_flops() == 1024000);
  if (isa() == Isa::kAmx) {
    CHECK(plan.padded_rows() == 256);
    CHECK(plan.executed_flops() == 1048576);
  }
  o.pad_rows = false;
  const GemmPlan tight({250, 64, 32}, o);
  CHECK(tight.padded_rows() == 250);
  CHECK(tight.executed_flops() == 1024000);
}

TEST_CASE("a dense bf16 product runs on AMX or fast bf16 instructions where there are any, and in f32 where not") {
  GemmOptions o;
  o.dtype = o.out = DType::kBF16;
  for (const bool packed : {false, true}) {
    o.packed = packed;
    for (const GemmShape& shape : {GemmShape{256, 768, 768}, GemmShape{512, 768, 2048}, GemmShape{16, 2304, 768}}) {
      const GemmPlan plan(shape, o);
      INFO(plan.impl());
      if (isa() == Isa::kAmx) {
        CHECK(plan.impl() == "brg:avx512_core_amx_bf16");
      } else if (bf16_products(isa())) {
        CHECK(plan.impl() == "brg:avx512_core_bf16");
      } else {
        CHECK(plan.impl().find("f32 instead of bf16: no AMX") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a cache serves every row count from one packed copy") {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    GemmOptions o;
    o.dtype = o.out = type;
    o.packed = true;
    const GemmCache cache(100, 80, 96, o);
    for (std::int64_t rows = 0; rows <= 100; ++rows) {
      const GemmPlan& plan = cache.plan(rows);
      CHECK(plan.padded_rows() >= rows);
      CHECK(plan.padded_rows() <= cache.padded_rows());
      CHECK(plan.scratch_bytes() <= cache.scratch_bytes());
      CHECK((rows == 0 || plan.padded_rows() < rows + 32));
    }
    const GemmPlan& largest = cache.plan(100);
    for (const std::int64_t rows : {0, 1, 16, 17, 33, 64, 65, 97, 100}) {
      if (rows > 0) CHECK(cache.plan(rows).packed_bytes() == largest.packed_bytes());
      check_plan(cache.plan(rows), 9, &largest);
    }
    CHECK_THROWS_AS(cache.plan(101), Error);
  }
}

TEST_CASE("the choice of path follows the measured rules") {
  GemmOptions o;
  CHECK(choose_gemm({256, 3072, 768}, o, Isa::kBase).path == GemmPath::kGemm);
  CHECK(choose_gemm({256, 3072, 768}, o, Isa::kAvx2).path == GemmPath::kOwn);
  CHECK(choose_gemm({128, 2304, 576}, o, Isa::kAvx2).path == GemmPath::kGemm);
  CHECK(choose_gemm({128, 3072, 768}, o, Isa::kAvx2).path == GemmPath::kOwn);  // rows 12 KiB apart
  CHECK(choose_gemm({16, 3072, 768}, o, Isa::kAvx2).path != GemmPath::kOwn);   // too few to lay W out for
  CHECK(choose_gemm({256, 3072, 768}, o, Isa::kAvx512).path == GemmPath::kGemm);
  CHECK(choose_gemm({2048, 3072, 768}, o, Isa::kAvx512).path == GemmPath::kOwn);  // 6.3 million results
  CHECK(choose_gemm({2048, 3072, 768}, o, Isa::kBase).path == GemmPath::kGemm);
  CHECK(choose_gemm({2048, 768, 3072}, o, Isa::kAvx512).path == GemmPath::kGemm);  // 1.6 million, but k is large
  CHECK(choose_gemm({8, 200000, 768}, o, Isa::kAvx512).path == GemmPath::kMatmul);
  CHECK(choose_gemm({8, 3072, 768}, o, Isa::kAvx512).path == GemmPath::kMatmul);
  // Narrow tiles lay transposed weights out for few rows already; a gradient's operands pay only over many rows.
  o.transpose_w = true;
  CHECK(choose_gemm({16, 50304, 768}, o, Isa::kAvx2).path == GemmPath::kOwn);
  CHECK(choose_gemm({15, 50304, 768}, o, Isa::kAvx2).path == GemmPath::kMatmul);
  o.transpose_w = false;
  o.transpose_x = true;
  CHECK(choose_gemm({256, 1024, 88}, o, Isa::kAvx2).path == GemmPath::kOwn);
  CHECK(choose_gemm({1024, 256, 88}, o, Isa::kAvx2).path == GemmPath::kOwn);
  CHECK(choose_gemm({576, 2304, 88}, o, Isa::kAvx2).path == GemmPath::kGemm);
  CHECK(choose_gemm({576, 2304, 2048}, o, Isa::kAvx2).path == GemmPath::kOwn);
  CHECK(choose_gemm({768, 2304, 512}, o, Isa::kAvx2).path == GemmPath::kOwn);
  CHECK(choose_gemm({768, 2304, 511}, o, Isa::kAvx2).path == GemmPath::kGemm);
  o.transpose_x = false;
  o.packed = true;
  CHECK(choose_gemm({256, 3072, 768}, o, Isa::kBase).path == GemmPath::kMatmul);
  for (const std::int64_t rows : {1, 8, 256}) CHECK(choose_gemm({rows, 3072, 768}, o, Isa::kAvx2).path == GemmPath::kOwn);
  // One layout for all row counts: packed weights are always our own product's.
  for (const std::int64_t rows : {1, 8, 256}) CHECK(choose_gemm({rows, 3072, 768}, o, Isa::kAmx).path == GemmPath::kOwn);
  o.dtype = DType::kBF16;
  // 513 rows: padded to 544 = 240 + 240 + 64 where k is large, one piece where it is not.
  CHECK(choose_gemm({513, 768, 2048}, o, Isa::kAmx).panels == std::vector<std::int64_t>{240, 240, 64});
  CHECK(choose_gemm({513, 768, 768}, o, Isa::kAmx).panels == std::vector<std::int64_t>{544});
  CHECK(choose_gemm({5, 768, 768}, o, Isa::kAmx).padded_rows == 16);
  o.pad_rows = false;
  CHECK(choose_gemm({513, 768, 768}, o, Isa::kAmx).panels == std::vector<std::int64_t>{512, 1});
  CHECK(choose_gemm({513, 768, 768}, o, Isa::kAvx512).convert != bf16_products(Isa::kAvx512));
  CHECK(choose_gemm({513, 768, 768}, o, Isa::kAvx2).convert);
  CHECK(gemm_prefers_packed({256, 768, 768}, DType::kBF16, Isa::kAmx));
  CHECK(gemm_prefers_packed({256, 768, 768}, DType::kF32, Isa::kAvx512));
  CHECK(gemm_prefers_packed({256, 768, 768}, DType::kF32, Isa::kAvx2));
  CHECK_FALSE(gemm_prefers_packed({256, 768, 768}, DType::kF32, Isa::kBase));
  CHECK(gemm_prefers_packed({8, 768, 768}, DType::kF32, Isa::kBase));
}

TEST_CASE("impossible requests are refused with a reason") {
  GemmOptions o;
  CHECK_THROWS_WITH(GemmPlan({-1, 2, 3}, o), Catch::Contains("negative"));
  o.dtype = DType::kF16;
  CHECK_THROWS_WITH(GemmPlan({1, 2, 3}, o), Catch::Contains("f16"));
  o.dtype = DType::kF32;
  o.out = DType::kBF16;
  CHECK_THROWS_WITH(GemmPlan({1, 2, 3}, o), Catch::Contains("cannot write"));
}

// The instruction set is fixed once per process, so each cap is tested in a child: this program again, with the hidden
// test below and the level in its environment.
TEST_CASE("every instruction set the machine has gives the same products") {
  for (const Isa level : {Isa::kBase, Isa::kAvx2, Isa::kAvx512}) {
    if (level > cpu_info().isa) continue;
    const std::string name(isa_name(level));
    INFO(name);
    const std::string command =
        "FATHOM_TEST_ISA=" + name + " '" + std::string(self_path()) + "' '[gemm-capped]' > /dev/null";
    CHECK(std::system(command.c_str()) == 0);
  }
}

TEST_CASE("products under the cap of FATHOM_TEST_ISA", "[.][gemm-capped]") {
  const char* const wanted = std::getenv("FATHOM_TEST_ISA");
  if (wanted == nullptr) return;  // selected by file name, not as a child
  for (const Isa level : {Isa::kBase, Isa::kAvx2, Isa::kAvx512}) {
    if (isa_name(level) == wanted) cap_isa(level);
  }
  REQUIRE(isa_name(isa()) == wanted);
  std::uint32_t seed = 1000;
  for (const GemmShape& shape : {GemmShape{1, 64, 64}, GemmShape{17, 31, 65}, GemmShape{70, 100, 96}}) {
    for (int bits = 0; bits < 64; ++bits) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        GemmOptions o;
        o.dtype = o.out = type;
        o.transpose_x = bits & 1;
        o.transpose_w = bits & 2;
        o.accumulate = bits & 4;
        o.bias = bits & 8;
        o.packed = bits & 16;
        o.threads = bits & 32 ? 2 : 1;
        const GemmPlan plan(shape, o);
        CHECK(plan.impl().find("amx") == std::string::npos);
        CHECK((type == DType::kF32 || bf16_products(isa()) || plan.impl().find("f32 instead of bf16: no AMX") != std::string::npos));
        check_plan(plan, ++seed);
      }
    }
  }
  // Too late now: a primitive exists.
  CHECK_THROWS_AS(cap_isa(Isa::kBase == isa() ? Isa::kAvx2 : Isa::kBase), Error);
}

#endif
