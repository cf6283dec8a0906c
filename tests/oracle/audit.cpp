// The figures of the claim audit, from models and not from tables.
#include <catch2/catch.hpp>

#include <array>
#include <string>

#include "lib/error.hpp"
#include "models/count/audit.hpp"
#include "models/count/depth.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

const std::vector<AuditClaim>& standard() {
  static const std::vector<AuditClaim> claims = audit(AuditSetting(builtin_network("dense-220m")));
  return claims;
}

double figure(const std::vector<AuditClaim>& claims, int number, size_t index) {
  for (const AuditClaim& claim : claims)
    if (claim.number == number) return claim.figures.at(index).value;
  FAIL("no claim " << number);
  return 0;
}
void check(int number, size_t index, double value, double margin) {
  INFO("claim " << number << ", figure " << index);
  CHECK(figure(standard(), number, index) == Approx(value).margin(margin));
}

Network shape(std::int64_t width, std::int64_t layers, std::int64_t heads, std::int64_t mlp, bool gated, std::int64_t vocab) {
  Network network = builtin_network("dense-220m");
  network.width = width;
  network.vocab = vocab;
  network.layers.assign(static_cast<size_t>(layers), network.layers[0]);
  BlockConfig& kind = network.kinds[static_cast<size_t>(network.layers[0])];
  kind.attention->heads = kind.attention->kv_heads = heads;
  kind.attention->head_dim = kind.attention->rope_dim = 64;
  kind.mlp->width = mlp;
  kind.mlp->gated = gated;
  return network;
}

}  // namespace

TEST_CASE("forward ratios of alternating blocks at 1/8 under A, B, C and D") {
  struct Row {
    Network dense;
    std::array<double, 4> ratios;
  };
  const std::vector<Row> rows = {
      {shape(896, 18, 14, 3584, false, 32000), {.5473, .5956, .6345, .6082}},
      {shape(1024, 12, 16, 4096, false, 50257), {.5487, .6404, .7011, .6554}},
      {shape(768, 24, 12, 3072, false, 50257), {.5456, .6071, .6540, .6227}},
      {shape(1024, 16, 16, 2816, true, 32000), {.5489, .5972, .6362, .6085}},
      {shape(896, 18, 14, 3584, false, 50257), {.5473, .6188, .6707, .6337}},
      {shape(896, 18, 14, 3584, false, 128256), {.5473, .6938, .7686, .7133}},
      {shape(896, 18, 14, 3584, false, 256000), {.5473, .7684, .8444, .7886}},
  };
  const std::array<std::string, 4> modes = {"mod-a", "mod-b", "mod-c", "exact"};
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t mode = 0; mode < modes.size(); ++mode) {
      INFO("shape " << row << " " << modes[mode]);
      CHECK(forward_ratio(alternate(rows[row].dense, 2, {1, 8}), modes[mode], 2048).value() == Approx(rows[row].ratios[mode]).margin(5.1e-5));
    }
}

TEST_CASE("ratios over the capacity, 217M") {
  struct Row {
    Fraction capacity;
    std::array<double, 3> every, alternating;  // A, B, D
  };
  const std::vector<Row> rows = {
      {{1, 8}, {.0946, .1912, .2164}, {.5473, .5956, .6082}},  {{1, 4}, {.1979, .2834, .3152}, {.5990, .6417, .6576}},
      {{1, 2}, {.4305, .4912, .5259}, {.7153, .7456, .7630}},  {{3, 4}, {.6979, .7301, .7542}, {.8490, .8651, .8771}},
      {{19, 20}, {.9365, .9433, .9492}, {.9682, .9716, .9746}},
  };
  const Network dense = builtin_network("dense-220m");
  const std::array<std::string, 3> modes = {"mod-a", "mod-b", "exact"};
  for (const Row& row : rows)
    for (size_t mode = 0; mode < modes.size(); ++mode) {
      INFO(row.capacity.str() << " " << modes[mode]);
      CHECK(forward_ratio(alternate(dense, 1, row.capacity), modes[mode], 2048).value() == Approx(row.every[mode]).margin(5.1e-5));
      CHECK(forward_ratio(alternate(dense, 2, row.capacity), modes[mode], 2048).value() == Approx(row.alternating[mode]).margin(5.1e-5));
    }
}

TEST_CASE("decode, dense time over MoD time") {
  struct Row {
    std::string dense;
    std::int64_t context;
    std::array<double, 8> gains;  // B = 1, 4, 8, 16, 32, 64, 128, 256
  };
  const std::vector<Row> rows = {
      {"dense-220m", 0, {1.60, 1.34, 1.17, 1.05, 1.01, 1.00, 1.00, 1.22}},   {"dense-220m", 2048, {1.68, 1.63, 1.66, 1.73, 1.82, 1.89, 1.93, 1.94}},
      {"llama-3-8b", 0, {1.69, 1.37, 1.19, 1.06, 1.01, 1.00, 1.00, 1.24}},   {"llama-3-8b", 2048, {1.69, 1.40, 1.25, 1.18, 1.22, 1.36, 1.52, 1.67}},
      {"llama-3-8b", 8192, {1.70, 1.47, 1.39, 1.41, 1.53, 1.68, 1.80, 1.87}}, {"llama-2-7b", 2048, {1.77, 1.51, 1.42, 1.44, 1.56, 1.70, 1.81, 1.88}},
  };
  for (const Row& row : rows) {
    const Network routed = alternate(builtin_network(row.dense), 2, {1, 8});
    for (size_t i = 0; i < row.gains.size(); ++i) {
      const std::int64_t batch = i == 0 ? 1 : std::int64_t{2} << i;
      INFO(row.dense << " T=" << row.context << " B=" << batch);
      CHECK(decode_gain(routed, batch, row.context) == Approx(row.gains[i]).margin(5.1e-3));
    }
  }
}

TEST_CASE("rows and weights of a routed block in a decode batch") {
  const std::array<std::int64_t, 7> batches = {1, 2, 4, 8, 16, 32, 64};
  const std::array<double, 7> eighth = {.125, .2344, .4138, .6564, .8819, .9861, .9998};
  const std::array<double, 7> half = {.5, .75, .9375, .9961, 1, 1, 1};
  for (size_t i = 0; i < batches.size(); ++i) {
    CHECK(weights_read(batches[i], .125) == Approx(eighth[i]).margin(5.1e-5));
    CHECK(weights_read(batches[i], .5) == Approx(half[i]).margin(5.1e-5));
  }
  const std::array<std::int64_t, 5> sizes = {8, 32, 64, 128, 256};
  const std::array<std::int64_t, 5> p99 = {4, 9, 15, 25, 45};
  for (size_t i = 0; i < sizes.size(); ++i) CHECK(binomial_quantile(sizes[i], .125, .99) == p99[i]);
  const std::array<double, 4> powers = {1.0597, 5.0669, 10.9247, 22.8125}, eights = {5.2511, 8.0011, 11.2708, 19.4642};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(expected_bucket_rows(sizes[i], .125, 0) == Approx(powers[i]).margin(5.1e-5));
    CHECK(expected_bucket_rows(sizes[i], .125, 8) == Approx(eights[i]).margin(5.1e-5));
  }
}

TEST_CASE("the 31 claims for the 217M shape") {
  REQUIRE(standard().size() == 31);
  for (int number = 1; number <= 31; ++number) CHECK(standard()[static_cast<size_t>(number - 1)].number == number);
  check(1, 0, .015678, 5e-7);
  check(1, 1, .2692, 5e-5);
  check(2, 0, .5625, 0);
  check(2, 1, .5078125, 0);
  check(2, 2, .50784, 5e-6);
  check(2, 3, .5473, 5e-5);
  check(2, 4, .5956, 5e-5);
  check(3, 0, .60241, 5e-6);
  check(3, 1, .3976, 5e-5);
  check(3, 2, .375, 1e-12);
  check(4, 0, .875, 0);
  check(4, 1, .78125, 0);
  check(5, 0, .095, 1e-12);
  check(5, 1, .155, 1e-12);
  check(6, 0, .76, 1e-12);
  check(6, 1, .24, 1e-12);
  check(7, 0, 0, 0);
  check(7, 1, 1, 0);
  check(8, 0, 1, 0);
  check(8, 1, 0, 0);
  check(9, 0, 2, 0);
  check(9, 1, 5, 0);
  check(9, 2, .65, 1e-12);
  check(10, 0, 524288000, 0);
  check(12, 0, .60, 5e-3);
  check(12, 1, .69, 5e-3);
  check(12, 2, .75, 6e-3);
  check(12, 3, .05, 5e-3);
  check(12, 4, .00, 5e-3);
  check(13, 0, .509, 5e-4);   // every block at 1/2: B
  check(13, 1, .570, 6e-4);   // A
  check(13, 2, .254, 5e-4);
  check(13, 3, .285, 5e-4);
  check(13, 4, .404, 5e-4);
  check(13, 5, .453, 5e-4);
  check(15, 0, 1792, 0);
  check(16, 0, 1, 0);
  check(16, 1, 2, 0);
  check(17, 0, 4, 1e-12);
  check(17, 1, 9, 0);
  check(18, 0, .4375, 0);
  check(18, 3, .241, 5e-4);
  check(18, 4, .422, 5e-4);
  check(18, 5, .569, 5e-4);
  check(18, 6, .802, 5e-4);
  check(18, 7, .905, 5e-4);
  check(20, 0, .4375, 0);
  check(20, 2, .40, 1e-12);
  check(20, 3, .375, 1e-12);
  check(20, 4, .25, 1e-12);
  check(20, 5, .5, 1e-12);
  check(20, 6, .875, 1e-12);
  check(20, 7, 0, 0);
  check(20, 8, .125, 1e-12);
  check(20, 9, .031, 5e-4);
  check(21, 1, 1.778, 5e-4);
  check(21, 2, 1.333, 5e-4);
  check(21, 3, 2.0, 1e-12);
  check(22, 0, .155, 1e-12);
  check(22, 1, 3.74, 5e-3);
  check(22, 2, 25, 0);
  check(23, 0, .000067, 5e-7);
  check(23, 1, 84, 0);
  check(23, 2, .00071, 5e-6);
  check(23, 3, .00120, 5e-6);
  check(23, 4, .0039, 5e-5);
  check(23, 5, .030, 5e-4);
  check(23, 6, .32, 5e-3);
  check(24, 0, .499, 1e-12);
  check(24, 5, .809, 5e-4);   // every block at 1/8: B
  check(24, 6, .905, 5e-4);   // A
  check(25, 0, .231, 5e-4);
  check(25, 1, .095, 5e-4);
  check(25, 2, .615, 5e-4);
  check(25, 3, .547, 5e-4);
  check(27, 0, 9 * 896, 0);
  check(29, 0, .4375, 0);
  check(29, 1, .5, 0);
  check(31, 1, 1.68, 5e-3);
  check(31, 2, .98, 5e-3);
  check(31, 3, 1.25, 5e-3);
  check(31, 4, .63, 5e-3);
  check(31, 5, .50, 5e-3);
}

TEST_CASE("nothing in the audit is a constant: another model moves the numbers") {
  const std::vector<AuditClaim> half = audit(AuditSetting(alternate(builtin_network("dense-220m"), 2, {1, 2})));
  CHECK(figure(half, 2, 0) == Approx(.75));
  CHECK(half[1].verdict == AuditVerdict::kConditional);  // no longer 56.25 %
  CHECK(figure(half, 4, 0) == Approx(.5));
  CHECK(half[3].verdict == AuditVerdict::kConditional);
  CHECK(figure(half, 20, 0) == Approx(.25));
  const std::vector<AuditClaim> wide = audit(AuditSetting(builtin_network("dense-3b"), 4096));
  for (const auto& [number, index] : std::vector<std::pair<int, size_t>>{{1, 0}, {2, 2}, {2, 3}, {2, 4}, {2, 5}, {12, 0}, {13, 0}, {14, 0}, {15, 0}, {15, 2}, {18, 3}, {18, 5}, {19, 0}, {19, 2}, {23, 0}, {23, 5}, {24, 1}, {25, 0}, {26, 0}, {27, 0}, {31, 0}}) {
    INFO("claim " << number << ", figure " << index);
    CHECK(figure(wide, number, index) != figure(standard(), number, index));
  }
  // An odd number of layers: 33 has 17 full and 16 routed blocks.
  const std::vector<AuditClaim> odd = audit(AuditSetting(shape(896, 33, 14, 3584, false, 32000)));
  CHECK(figure(odd, 2, 0) == Approx(1 - 16.0 / 33 * .875));
  CHECK_THROWS_AS(AuditSetting(builtin_network("dense-60m"), 1), Error);
}

TEST_CASE("the audit follows schedules, all-token keys, routed MLPs and MLP routers") {
  const auto triangle = [](double c) { return c * (c + 1); };
  const double whole = triangle(2048);
  const auto of = [](const char* name, std::int64_t tokens = 2048) { return audit(AuditSetting(builtin_network(name), tokens)); };
  // Capacities - 3/4 1/2 1/4 1/4 1/2 3/4 -: (2 + 2 (9/16 + 1/4 + 1/16)) / 8 of the square; 1536, 1024 and 512 slots.
  const auto schedule = of("mod-schedule");
  CHECK(figure(schedule, 2, 1) == Approx(.46875).margin(1e-12));
  CHECK(figure(schedule, 2, 2) == Approx((2 + 2 * (triangle(1536) + triangle(1024) + triangle(512)) / whole) / 8).margin(1e-12));
  CHECK(figure(schedule, 1, 0) == Approx(triangle(1536) / whole).margin(1e-12));
  CHECK(figure(schedule, 1, 1) == Approx(triangle(1024) / whole).margin(1e-12));
  CHECK(figure(schedule, 1, 2) == Approx(triangle(512) / whole).margin(1e-12));
  CHECK(figure(schedule, 4, 0) == Approx((.75 + .5 + .75) / 3).margin(1e-12));
  // Five passes with 2048, 2048, 1365, 682 and 2048 tokens; the second leaves none out.
  const auto recursion = of("mod-recursion");
  CHECK(figure(recursion, 2, 1) == Approx((3 * 2048. * 2048 + 1365. * 1365 + 682. * 682) / (5 * 2048. * 2048)).margin(1e-12));
  CHECK(figure(recursion, 2, 2) == Approx((3 + (triangle(1365) + triangle(682)) / whole) / 5).margin(1e-12));
  CHECK(figure(recursion, 29, 1) == Approx(.4));
  // Attention of every token; MLPs, two thirds of a block's products (1,048,576 of 1,572,864 FLOP per token), at a half in every second block.
  const auto mlp_only = of("mod-mlp-only");
  CHECK(figure(mlp_only, 2, 0) == Approx(1 - .25 * 2 / 3).margin(1e-12));
  CHECK(figure(mlp_only, 2, 1) == Approx(1));
  CHECK(figure(mlp_only, 2, 2) == Approx(1));
  // 6 of 12 queries in every block, keys of all: half of the square, and half of the triangle whichever six they are on average.
  const auto demo = of("demo-8x12", 12);
  CHECK(figure(demo, 1, 0) == Approx(.5));
  CHECK(demo[0].verdict == AuditVerdict::kConditional);
  CHECK(figure(demo, 2, 1) == Approx(.5));
  CHECK(figure(demo, 2, 2) == Approx(.5));
  CHECK(figure(of("mod-adapter"), 15, 0) == 2 * (256 * 32 + 32));
  CHECK(figure(of("mod-tiny", 128), 15, 0) == 2 * 64);
  CHECK(figure(of("mod-tiny", 128), 15, 1) == 2 * (64 * 32 + 32));
}

TEST_CASE("an audit of too few tokens is refused with the least number") {
  const auto least = [](const Network& network, std::int64_t length) -> std::string {
    try {
      audit(AuditSetting(network, length));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.hint();
    }
    return "";
  };
  for (std::int64_t length = 2; length < 8; ++length) CHECK(least(builtin_network("dense-60m"), length) == "fathom audit MODEL --seq 8");  // floor(S / 8) = 0
  CHECK(least(builtin_network("dense-60m"), 8).empty());
  // floor(S / 20) >= 1 from 20 tokens on.
  CHECK(least(alternate(builtin_network("dense-60m"), 2, {1, 20}), 19) == "fathom audit MODEL --seq 20");
  CHECK(least(alternate(builtin_network("dense-60m"), 2, {1, 20}), 20).empty());
}

TEST_CASE("shared weights stay shared in the audit's variants") {
  const Network recursion = builtin_network("mod-recursion");
  REQUIRE_FALSE(recursion.weights_of.empty());
  const std::vector<AuditClaim> claims = audit(AuditSetting(recursion));
  CHECK(claims.size() == 31);
  // However the weights are shared, every second of 5 alike layers (2 of them) at 1/8 saves 2/5 x 7/8 = .35 of the cache.
  REQUIRE(recursion.layer_count() == 5);
  CHECK(figure(claims, 20, 1) == Approx(.35));
  const Network variant = alternate(dense_twin(recursion), 2, {1, 8});
  for (std::int64_t a = 0; a < variant.layer_count(); ++a)
    for (std::int64_t b = 0; b < a; ++b) {
      const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
      CHECK((variant.weights_of[i] == variant.weights_of[j]) == (recursion.weights_of[i] == recursion.weights_of[j] && a % 2 == b % 2));
    }
}

TEST_CASE("top slots and percentiles") {
  CHECK(top_slots({1, 1, 1, 1}, 2) == std::vector<std::int64_t>{0, 1});  // ties to the lower position
  CHECK(top_slots({0.0, -0.0, 1}, 2) == std::vector<std::int64_t>{0, 2});
  CHECK(top_slots({.5}, 4) == std::vector<std::int64_t>{0});
  CHECK(interpolated_percentile({3, 1, 2}, .5) == 2);
}

TEST_CASE("claims of blocks that are routed in part, or hold a window") {
  const std::vector<AuditClaim> windows = audit(AuditSetting(builtin_network("local-global")));
  // 2048 tokens: six layers hold 128 rows, two hold 2048, of which a quarter is selected: 1 - (6 x 128 + 2 x 512) / (6 x 128 + 2 x 2048).
  CHECK(figure(windows, 20, 0) == Approx(1 - 1792.0 / 4864).epsilon(1e-12));
  CHECK(figure(windows, 21, 0) == Approx(4864.0 / 1792).epsilon(1e-12));
  const std::vector<AuditClaim> mlp = audit(AuditSetting(builtin_network("mod-mlp-only")));
  // Two of four layers leave out half of their MLP: 2 x 256 x 1024 of 4 (4 x 256 x 256 + 2 x 256 x 1024) products per token.
  CHECK(figure(mlp, 18, 0) == Approx(2 * 262144 / (4 * 786432.0)).epsilon(1e-12));
  CHECK(figure(mlp, 20, 0) == 0);
  CHECK(figure(mlp, 12, 5) == 0);  // every sequence reads its keys, and somebody of 128 takes the MLP
  // 64 slots of 2048 tokens: a 32nd takes the routed blocks, none of 128 sequences with an empty context can be left out.
  const std::vector<AuditClaim> slots = audit(AuditSetting(builtin_network("mod-adapter")));
  CHECK(figure(slots, 12, 4) == 0);
  CHECK(figure(slots, 12, 5) > 0.5);
}
