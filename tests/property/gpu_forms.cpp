// Laws of the physics forms.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "lib/gpu/attention_form.hpp"
#include "lib/gpu/gemm_tile.hpp"
#include "lib/gpu/physics_fit.hpp"
#include "lib/gpu/table.hpp"
#include "tests/hash_random.hpp"

using namespace fathom::gpu;

namespace {

struct Random : fathom::testing::HashRandom {
  using HashRandom::HashRandom;
  double integer(double low, double high) { return std::floor(std::exp(std::log(low) + uniform() * (std::log(high) - std::log(low)))); }
};

constexpr double kSlack = 1 + 1e-12;

}  // namespace

TEST_CASE("gemm time does not fall as m, n or g grow; in k only where one more split becomes admissible") {
  Random random{1};
  for (int i = 0; i < 20000; ++i) {
    const GpuDevice& device = known_devices()[i % 5];
    const GemmParams p = gemm_prior(device);
    const GemmShape s{random.integer(1, 20000), random.integer(1, 20000), random.integer(1, 20000), random.integer(1, 5)};
    const double t = predict_gemm(s, device, p);
    auto grown = s;
    grown.m += random.integer(1, 400);
    REQUIRE(predict_gemm(grown, device, p) * kSlack >= t);
    grown = s, grown.n += random.integer(1, 400);
    REQUIRE(predict_gemm(grown, device, p) * kSlack >= t);
    grown = s, grown.groups += 1;
    REQUIRE(predict_gemm(grown, device, p) * kSlack >= t);
    grown = s, grown.k += random.integer(1, 400);
    if (tile_shape(grown, device.sms).splits == tile_shape(s, device.sms).splits) REQUIRE(predict_gemm(grown, device, p) * kSlack >= t);
  }
}

// Continuity: one more row adds at most one row of blocks of any tile and, where waves are whole, one wave more. With
// 256 rows in the tallest tile, time can jump by a factor of at most (waves + 1 row of tiles and one wave)/waves.
TEST_CASE("gemm time from m to m+1 jumps by at most one tile row and one wave") {
  for (const GpuDevice& device : known_devices()) {
    const GemmParams p = gemm_prior(device);
    for (const auto& [n, k] : {std::pair{4096.0, 4096.0}, {1024.0, 3072.0}, {51200.0, 4096.0}}) {
      for (double m = 1; m < 4200; ++m) {
        const GemmEstimate a = explain_gemm({m, n, k}, device, p);
        const double b = predict_gemm({m + 1, n, k}, device, p);
        const double rows = std::ceil(m / a.tile_m), blocks = a.blocks * (rows + 1) / rows, v = std::max(1.0, blocks / device.sms);
        const double waves = p.w * std::ceil(v) + (1 - p.w) * v;
        const double bytes = (m + 1) / m;
        REQUIRE(b >= a.seconds / kSlack);
        REQUIRE(b <= a.seconds * std::max(waves / a.waves, bytes) * 1.35);  // 1.35: power term and cache hits move with it
      }
    }
  }
}

TEST_CASE("attention time does not fall as batch, heads or length grow") {
  Random random{2};
  for (int i = 0; i < 20000; ++i) {
    const GpuDevice& device = known_devices()[i % 5];
    const double group = random.integer(1, 17), kv = random.integer(1, 33);
    const AttentionShape s{random.integer(1, 257), random.integer(1, 20000), kv * group, kv, 128};
    const PrefillParams prefill;
    const DecodeParams decode;
    auto grown = s;
    grown.batch += 1;
    REQUIRE(predict_prefill(grown, device, prefill) * kSlack >= predict_prefill(s, device, prefill));
    REQUIRE(predict_decode(grown, device, decode) * kSlack >= predict_decode(s, device, decode));
    grown = s, grown.heads += kv;
    REQUIRE(predict_prefill(grown, device, prefill) * kSlack >= predict_prefill(s, device, prefill));
    grown = s, grown.seq += random.integer(1, 300);
    REQUIRE(predict_prefill(grown, device, prefill) * kSlack >= predict_prefill(s, device, prefill));
  }
}

TEST_CASE("decode time falls with longer KV only where one more split becomes admissible") {
  const GpuDevice& device = device_named("h200");
  const DecodeParams p;
  for (double kv = 1; kv < 20000; kv += 7) {
    const double blocks = std::ceil(kv / 128);
    if (std::ceil((kv + 7) / 128) != blocks) continue;
    REQUIRE(predict_decode({16, kv + 7, 32, 8, 128}, device, p) * kSlack >= predict_decode({16, kv, 32, 8, 128}, device, p));
  }
}

TEST_CASE("batch 192 to 193 is continuous; 1 and 2,048 prefill tokens differ") {
  for (const GpuDevice& device : known_devices()) {
    const double a = predict_decode({192, 4096, 32, 8, 128}, device, {}), b = predict_decode({193, 4096, 32, 8, 128}, device, {});
    CHECK(b >= a);
    CHECK(b < a * 1.02);
    CHECK(predict_prefill({1, 2048, 32, 8, 128}, device, {}) > 1.5 * predict_prefill({1, 1, 32, 8, 128}, device, {}));
  }
}

TEST_CASE("every device number matters and more of it never slows a prediction") {
  Random random{3};
  const GpuDevice& base = device_named("h100");
  const GemmParams p = gemm_prior(base);
  bool faster_w = false, faster_l2 = false, faster_sms = false, decode_w = false, decode_sms = false, prefill_sms = false;
  for (int i = 0; i < 5000; ++i) {
    const GemmShape s{random.integer(1, 20000), random.integer(16, 20000), random.integer(16, 20000)};
    const AttentionShape a{random.integer(1, 257), random.integer(1, 20000), 32, 8, 128};
    auto wide = base, cached = base, more = base;
    wide.dram_bytes_per_s *= 2;
    cached.l2_bytes *= 2;
    more.sms *= 2, more.peak_flops *= 2;  // equal rate per SM
    const double t = predict_gemm(s, base, p);
    REQUIRE(predict_gemm(s, wide, p) <= t * kSlack);
    REQUIRE(predict_gemm(s, cached, p) <= t * kSlack);
    REQUIRE(predict_gemm(s, more, p) <= t * kSlack);
    faster_w |= predict_gemm(s, wide, p) < t * 0.9;
    faster_l2 |= predict_gemm(s, cached, p) < t * 0.95;
    faster_sms |= predict_gemm(s, more, p) < t * 0.9;
    REQUIRE(predict_decode(a, wide, {}) <= predict_decode(a, base, {}) * kSlack);
    REQUIRE(predict_decode(a, more, {}) <= predict_decode(a, base, {}) * kSlack);
    REQUIRE(predict_prefill(a, more, {}) <= predict_prefill(a, base, {}) * kSlack);
    decode_w |= predict_decode(a, wide, {}) < predict_decode(a, base, {}) * 0.9;
    decode_sms |= predict_decode(a, more, {}) < predict_decode(a, base, {}) * 0.9;
    prefill_sms |= predict_prefill(a, more, {}) < predict_prefill(a, base, {}) * 0.9;
  }
  CHECK(faster_w);
  CHECK(faster_l2);
  CHECK(faster_sms);
  CHECK(decode_w);
  CHECK(decode_sms);
  CHECK(prefill_sms);
}

TEST_CASE("each dimension of a shape enters the time") {
  const GpuDevice& d = device_named("h200");
  const GemmParams p = gemm_prior(d);
  const double t = predict_gemm({2048, 4096, 4096}, d, p);
  CHECK(predict_gemm({4096, 4096, 4096}, d, p) > 1.5 * t);
  CHECK(predict_gemm({2048, 8192, 4096}, d, p) > 1.5 * t);
  CHECK(predict_gemm({2048, 4096, 8192}, d, p) > 1.5 * t);
  CHECK(predict_gemm({2048, 4096, 4096, 2}, d, p) > 1.5 * t);
  const double a = predict_decode({64, 8192, 32, 8, 128}, d, {});
  CHECK(predict_decode({128, 8192, 32, 8, 128}, d, {}) > 1.3 * a);
  CHECK(predict_decode({64, 16384, 32, 8, 128}, d, {}) > 1.3 * a);
  CHECK(predict_decode({64, 8192, 32, 16, 128}, d, {}) > 1.3 * a);  // KV bytes follow KV heads
  CHECK(predict_decode({64, 8192, 64, 8, 128}, d, {}) < 1.05 * a);  // not query heads
  CHECK(predict_decode({64, 8192, 32, 8, 256}, d, {}) > 1.3 * a);
}

// Recovery: 400 rows of a known parameter set with 3 % log-normal noise predict the truth within 1 % mean on other shapes;
// tripling 5 % of the rows adds less than one point.
TEST_CASE("gemm fit recovers a known parameter set, with and without outliers") {
  const GpuDevice& d = device_named("h100");
  GemmParams truth = gemm_prior(device_named("b200"));
  truth.e = 1.1;
  for (const bool outliers : {false, true}) {
    Random random{outliers ? 9u : 4u};
    std::vector<TableRow> rows;
    for (int i = 0; i < 400; ++i) {
      TableRow row;
      row.key = {static_cast<std::int64_t>(random.integer(1, 16384)), static_cast<std::int64_t>(random.integer(128, 16384)),
                 static_cast<std::int64_t>(random.integer(128, 16384)), 0, 0};
      const double normal = std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
      row.time_us = predict_gemm(row.gemm(), d, truth) * 1e6 * std::exp(0.03 * normal);
      if (outliers && i % 20 == 0) row.time_us *= 3;
      rows.push_back(row);
    }
    std::vector<double> losses;
    const GemmParams fit = fit_gemm(rows, d, {}, &losses);
    CHECK(losses.size() == 2);
    double error = 0;
    for (int i = 0; i < 1000; ++i) {
      const GemmShape s{random.integer(1, 16384), random.integer(128, 16384), random.integer(128, 16384)};
      error += std::abs(predict_gemm(s, d, fit) / predict_gemm(s, d, truth) - 1) / 1000;
    }
    CHECK(error < (outliers ? 0.02 : 0.01));
  }
}
