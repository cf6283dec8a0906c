// Row buckets of products whose rows are known at run time, the products that an op becomes, and throttle reasons in words.
#include <catch2/catch.hpp>

#include <algorithm>

#include "kernels/cuda_host/lower.hpp"
#include "kernels/cuda_host/rows.hpp"
#include "kernels/cuda_host/throttle.hpp"

using namespace fathom;
using namespace fathom::cuda;

TEST_CASE("a bucket holds its rows with at most an eighth of padding", "[cuda]") {
  CHECK(row_bucket(0, 100) == 0);
  CHECK(row_bucket(1, 100) == 1);
  CHECK(row_bucket(16, 100) == 16);
  CHECK(row_bucket(17, 100) == 18);   // octave 17 .. 32 in steps of 2
  CHECK(row_bucket(33, 100) == 36);   // 33 .. 64 in steps of 4
  CHECK(row_bucket(65, 2048) == 72);  // 65 .. 128 in steps of 8
  CHECK(row_bucket(100, 100) == 104);
  CHECK(row_bucket(127, 127) == 128);
  CHECK(row_bucket(1000, 1000) == 1024);
  for (std::int64_t rows = 1; rows <= 5000; ++rows) {
    const std::int64_t bucket = row_bucket(rows, 5000);
    REQUIRE(bucket >= rows);
    REQUIRE(bucket <= 5024);  // 157 tiles of 32 rows: what the arena has room for
    REQUIRE(8 * (bucket - rows) <= rows);
    REQUIRE(row_bucket(bucket, 5024) == bucket);
  }
}

TEST_CASE("few buckets cover every count", "[cuda]") {
  for (const std::int64_t declared : {1, 2, 31, 32, 33, 256, 5000}) {
    const std::vector<std::int64_t> buckets = row_buckets(declared);
    REQUIRE_FALSE(buckets.empty());
    CHECK(buckets.back() >= declared);
    CHECK(std::is_sorted(buckets.begin(), buckets.end()));
    for (std::int64_t rows = 1; rows <= declared; ++rows) REQUIRE(std::binary_search(buckets.begin(), buckets.end(), row_bucket(rows, declared)));
  }
  CHECK(row_buckets(0).empty());
  CHECK(row_buckets(5000).size() == 16 + 8 * 8 + 2);  // 1 .. 16, eight octaves to 4096, then 4608 and 5024
}

TEST_CASE("an op becomes the product that its role says", "[cuda]") {
  Gemm op;
  op.rows = Rows{48};
  op.in = 24, op.out = 40;
  Matmul p = product_of(op, 48);  // Y[48,40] = X[48,24] W[24,40]
  CHECK((p.m == 48 && p.n == 40 && p.k == 24));
  CHECK((p.lda == 24 && p.ldb == 40 && p.ldc == 40));
  CHECK_FALSE((p.transpose_a || p.transpose_b));
  op.transposed = true;  // W stored [40,24]
  p = product_of(op, 48);
  CHECK((p.ldb == 24 && p.transpose_b));

  op.transposed = false;
  op.role = GemmRole::kInputGradient;  // dX[48,24] = dY[48,40] W'
  p = product_of(op, 48);
  CHECK((p.m == 48 && p.n == 24 && p.k == 40));
  CHECK((p.lda == 40 && p.ldb == 40 && p.ldc == 24 && p.transpose_b));

  op.role = GemmRole::kWeightGradient;  // dW[24,40] = X' dY
  op.accumulate = true;
  p = product_of(op, 48);
  CHECK((p.m == 24 && p.n == 40 && p.k == 48));
  CHECK((p.lda == 24 && p.ldb == 40 && p.ldc == 40 && p.transpose_a && p.beta == 1.0f));
  op.transposed = true;  // dW[40,24] = dY' X
  p = product_of(op, 48);
  CHECK((p.m == 40 && p.n == 24 && p.lda == 40 && p.ldb == 24 && p.ldc == 24 && p.transpose_a));
}

TEST_CASE("parts of rows have their own weights and strides", "[cuda]") {
  Gemm op;  // absorbed queries: 3 heads of 16 of which 8 columns count, to 32 each
  op.rows = Rows{5};
  op.in = 8, op.out = 32, op.batch = 3, op.batch_stride = 16, op.in_stride = 48;
  const Matmul p = product_of(op, 5);
  CHECK((p.batch == 3 && p.batch_a == 16 && p.batch_b == 256 && p.batch_c == 32));
  CHECK((p.lda == 48 && p.ldb == 32 && p.ldc == 96));
  CHECK(p.alignment == 64);  // 16 floats
  op.batch_stride = 10;
  CHECK(product_of(op, 5).alignment == 8);  // 10 floats: 40 bytes
}

TEST_CASE("throttling is named, other reasons are not throttling", "[cuda]") {
  CHECK(throttle_text(0).empty());
  CHECK(throttle_text(1 | 2 | 16 | 256).empty());
  CHECK(throttle_text(4) == "power limit");
  CHECK(throttle_text(1 | 4 | 64) == "power limit, temperature (hardware)");
}

namespace {

template <std::size_t... I>
void every_kind(std::index_sequence<I...>) {
  const auto one = [](const OpSpec& spec) {
    CAPTURE(kind_name(spec));
    const Support support = supported(spec);
    CHECK(support.ok);
  };
  (one(OpSpec(std::in_place_index<I>)), ...);
}

void refused(const OpSpec& spec, const std::string& words) {
  CAPTURE(kind_name(spec));
  const Support support = supported(spec);
  CHECK_FALSE(support.ok);
  CHECK(support.reason.find(words) != std::string::npos);
}

}  // namespace

TEST_CASE("every op kind has a CUDA kernel in its plain form", "[cuda]") { every_kind(std::make_index_sequence<std::variant_size_v<OpSpec>>()); }

TEST_CASE("what the CUDA kernels do not do is refused with its reason", "[cuda]") {
  Gemm half;
  half.act = half.weight = DType::kF16;
  refused(half, "f32 or bf16");
  Gemm mixed;
  mixed.act = DType::kBF16;
  refused(mixed, "one type");
  Gemm heads;
  heads.batch = 4, heads.transposed = true;
  refused(heads, "transposed");
  Attention cache;
  cache.cached = true, cache.kv = DType::kBF16;
  refused(cache, "cache of the compute type");
  Attention window;
  window.cached = true, window.mask.window = 8, window.rows = Rows{4, Fraction{1, 4}};
  CHECK(supported(window).ok);  // by the kept positions of the cache
  ExpertSelect picks;
  picks.picks = 40;
  refused(picks, "32 experts");
  AttentionBackward absorbed;
  absorbed.forward.shared_kv = true;
  refused(absorbed, "not trained");
}
