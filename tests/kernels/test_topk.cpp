// Top-k and threshold selection: the exact order of the specification (higher score first, ties to the lower position, -0 = +0).
#include "kernels/cpu/topk.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/error.hpp"
#include "tests/kernels/vector_testing.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

std::vector<std::int32_t> reference(const std::vector<float>& scores, std::int64_t k) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
  order.resize(static_cast<std::size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<std::int32_t> run(const std::vector<float>& scores, std::int64_t k) {
  const auto count = static_cast<std::int64_t>(scores.size());
  std::vector<char> workspace(static_cast<std::size_t>(cpu::topk_workspace_bytes(count, 1)));
  Buffer out(DType::kF32, k);
  REQUIRE(cpu::topk(scores.data(), count, k, out.i32(), workspace.data()).ok());
  REQUIRE(out.guards_intact());
  return {out.i32(), out.i32() + k};
}

std::vector<float> some_scores(const std::string& kind, std::int64_t count, std::uint64_t seed) {
  Values values(seed);
  std::vector<float> s(static_cast<std::size_t>(count));
  for (auto& x : s) {
    const double u = values.uniform();
    if (kind == "random") x = static_cast<float>(u * 3);
    if (kind == "equal") x = 0.25f;
    if (kind == "bf16") x = bf16(static_cast<float>(u));
    if (kind == "zeros") x = u < 0 ? -0.0f : 0.0f;
    if (kind == "few") x = static_cast<float>(std::floor(u * 2));
    if (kind == "infinite") x = u < -0.3 ? -std::numeric_limits<float>::infinity() : u > 0.8 ? std::numeric_limits<float>::infinity() : static_cast<float>(u);
    if (kind == "tiny") x = static_cast<float>(u) * 1e-41f;
  }
  return s;
}

}  // namespace

TEST_CASE("top-k agrees with a stable sort", "[topk]") {
  for_each_isa([] {
    for (const std::string kind : {"random", "equal", "bf16", "zeros", "few", "infinite", "tiny"}) {
      for (const std::int64_t count : {1, 2, 7, 15, 16, 17, 33, 300, 2048, 2049}) {
        const auto scores = some_scores(kind, count, 7 * static_cast<std::uint64_t>(count));
        for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, count / 8, count / 2, count - 1, count}) {
          INFO(kind << " count " << count << " k " << k);
          REQUIRE(run(scores, k) == reference(scores, k));
        }
      }
    }
  });
}

TEST_CASE("top-k of nothing, of all, and out of range", "[topk]") {
  REQUIRE(run({}, 0).empty());
  std::int32_t out[4];
  std::vector<char> workspace(4096);
  const float s[3] = {1, 2, 3};
  REQUIRE_THROWS_AS(cpu::topk(s, 3, 4, out, workspace.data()), Error);
  REQUIRE_THROWS_AS(cpu::topk(s, 3, -1, out, workspace.data()), Error);
}

TEST_CASE("hand-worked selections", "[topk]") {
  for_each_isa([] {
    // Scores .1 .9 .2 .3 .8 .4 .05 .6 with two slots: positions 1 and 4.
    REQUIRE(run({.1f, .9f, .2f, .3f, .8f, .4f, .05f, .6f}, 2) == std::vector<std::int32_t>{1, 4});
    // -0 equals +0, so the earlier position wins whatever the sign.
    REQUIRE(run({-1.f, -0.f, 0.f, 0.f}, 2) == std::vector<std::int32_t>{1, 2});
    // All equal, S = 2048, C = 256: 0..255.
    const auto all = run(std::vector<float>(2048, 0.f), 256);
    for (int i = 0; i < 256; ++i) REQUIRE(all[static_cast<std::size_t>(i)] == i);
  });
}

TEST_CASE("a NaN is reported with its position", "[topk]") {
  for_each_isa([] {
    for (const std::int64_t where : {0, 5, 16, 36}) {
      auto scores = some_scores("random", 37, 3);
      scores[static_cast<std::size_t>(where)] = std::numeric_limits<float>::quiet_NaN();
      std::vector<char> workspace(4096);
      std::vector<std::int32_t> out(37);
      for (const std::int64_t k : {0, 5, 37}) REQUIRE(cpu::topk(scores.data(), 37, k, out.data(), workspace.data()).nan_index == where);
      REQUIRE(cpu::select_above(scores.data(), 37, 0.f, out.data()).status.nan_index == where);
    }
  });
}

TEST_CASE("T17: batched top-k: padding is never selected, sequences do not see each other, threads agree", "[topk]") {
  for_each_isa([] {
    const std::int64_t batch = 7, stride = 1500;
    auto scores = some_scores("bf16", batch * stride, 11);
    std::vector<std::int64_t> valid, slots;
    for (std::int64_t b = 0; b < batch; ++b) {
      valid.push_back(b == 3 ? 0 : stride - 17 * b);
      slots.push_back(valid.back() / 8);
      for (std::int64_t i = valid.back(); i < stride; ++i) scores[static_cast<std::size_t>(b * stride + i)] = 1e30f;  // must not matter
    }
    std::vector<std::int32_t> positions[2], rows[2];
    for (int threads = 1; threads <= 2; ++threads) {
      std::vector<char> workspace(static_cast<std::size_t>(cpu::topk_workspace_bytes(stride, threads)));
      auto& p = positions[threads - 1];
      auto& r = rows[threads - 1];
      p.assign(static_cast<std::size_t>(batch * 200), -7);
      r = p;
      cpu::BatchSelection s;
      s.scores = scores.data();
      s.stride = stride;
      s.batch = batch;
      s.valid = valid.data();
      s.slots = slots.data();
      s.output_stride = 200;
      s.positions = p.data();
      s.rows = r.data();
      REQUIRE(cpu::topk(s, workspace.data(), threads).ok());
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::vector<float> own(scores.begin() + b * stride, scores.begin() + b * stride + valid[static_cast<std::size_t>(b)]);
        const auto expected = reference(own, slots[static_cast<std::size_t>(b)]);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          REQUIRE(p[static_cast<std::size_t>(b * 200) + i] == expected[i]);
          REQUIRE(r[static_cast<std::size_t>(b * 200) + i] == b * stride + expected[i]);
        }
        REQUIRE(p[static_cast<std::size_t>(b * 200) + expected.size()] == -7);
      }
    }
    REQUIRE(positions[0] == positions[1]);
    scores[static_cast<std::size_t>(5 * stride + 9)] = std::numeric_limits<float>::quiet_NaN();
    cpu::BatchSelection s{scores.data(), stride, batch, valid.data(), slots.data(), 0, 200, positions[0].data(), nullptr};
    std::vector<char> workspace(static_cast<std::size_t>(cpu::topk_workspace_bytes(stride, 2)));
    const auto status = cpu::topk(s, workspace.data(), 2);
    REQUIRE(status.nan_index == 9);
    REQUIRE(status.sequence == 5);
  });
}

TEST_CASE("threshold selection is strict and ascending", "[topk]") {
  for_each_isa([] {
    for (const std::int64_t count : {0, 1, 16, 17, 333}) {
      const auto scores = some_scores("few", count, 5);
      Buffer out(DType::kF32, count);
      const auto result = cpu::select_above(scores.data(), count, -1.0f, out.i32());
      std::vector<std::int32_t> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        if (scores[static_cast<std::size_t>(i)] > -1.0f) expected.push_back(static_cast<std::int32_t>(i));
      }
      REQUIRE(std::vector<std::int32_t>(out.i32(), out.i32() + result.count) == expected);
      REQUIRE(out.guards_intact());
      REQUIRE(result.status.ok());
    }
    // Bypass iff the score is not above zero: both zeros stay out.
    const float s[3] = {0.f, -0.f, 1e-30f};
    std::int32_t out[3];
    REQUIRE(cpu::select_above(s, 3, 0.f, out).count == 1);
    REQUIRE(out[0] == 2);
  });
}

TEST_CASE("selection mask has k ones", "[topk]") {
  const std::int32_t positions[2] = {1, 3};
  std::uint8_t mask[5] = {9, 9, 9, 9, 9};
  cpu::selection_mask(positions, 2, 5, mask);
  const std::uint8_t expected[5] = {0, 1, 0, 1, 0};
  REQUIRE(std::equal(mask, mask + 5, expected));
}
