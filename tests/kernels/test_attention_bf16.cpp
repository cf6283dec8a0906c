// bf16 attention forward against the double reference, on every instruction set this machine can execute.
#if FATHOM_CPU
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/cpu/attention_bf16.hpp"
#include "tests/kernels/attention_reference.hpp"

namespace fathom::cpu::testing {
namespace {

constexpr std::uint16_t kSentinel = 0x4321;
constexpr float kLseSentinel = 12345.0f;

struct Forward {
  std::vector<bf16> out;
  std::vector<float> lse;
};

Forward run_forward(const AttentionProblem& p, int threads, Isa level, bool lse = true) {
  Forward f;
  bf16 sentinel;
  sentinel.bits = kSentinel;
  f.out.assign(static_cast<std::size_t>((p.total + 1) * p.out_stride), sentinel);
  f.lse.assign(static_cast<std::size_t>((p.total + 1) * p.in.heads), kLseSentinel);
  const auto bytes = static_cast<std::size_t>(attention_forward_scratch_bytes(p.in, threads, level));
  std::vector<unsigned char> scratch(bytes + 64, 0xff);  // NaN everywhere: a stale value cannot pass for a result
  attention_forward(p.in, f.out.data(), p.out_stride, lse ? f.lse.data() : nullptr, scratch.data(), threads, level);
  for (std::size_t i = bytes; i < scratch.size(); ++i) REQUIRE(scratch[i] == 0xff);
  return f;
}

TEST_CASE("attention_bf16 forward equals the double reference and writes nothing else") {
  for (const AttentionCase& c : attention_cases()) {
    const AttentionProblem p(c);
    DoubleAttention reference(p);
    reference.forward();
    const std::int64_t width = std::int64_t{c.heads} * c.head_dim;
    for (const Isa level : executable_levels()) {
      INFO(c.name() << " on " << isa_name(level));
      const Forward f = run_forward(p, 1, level);
      // The output is rounded to bf16 (2^-9 at most, about 1.7e-3 in the mean); with tiles P is rounded as well.
      CHECK(relative_error(f.out.data(), p.out_stride, p.total, width, reference.out) < 4e-3);
      double worst = 0;
      for (std::size_t i = 0; i < reference.lse.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(f.lse[i]) - reference.lse[i]));
      }
      CHECK(worst < 2e-4);
      for (std::int64_t r = 0; r <= p.total; ++r) {
        for (std::int64_t i = r < p.total ? width : 0; i < p.out_stride; ++i) {
          REQUIRE(f.out[static_cast<std::size_t>(r * p.out_stride + i)].bits == kSentinel);
        }
      }
      for (std::size_t i = reference.lse.size(); i < f.lse.size(); ++i) REQUIRE(f.lse[i] == kLseSentinel);
    }
  }
}

TEST_CASE("attention_bf16 forward is bit-equal between runs and thread counts, and without lse") {
  for (const AttentionCase& c : {AttentionCase{{300, 77, 1}, 6, 2, 64, 0, false}, AttentionCase{{401}, 4, 2, 128, 90, true}}) {
    const AttentionProblem p(c);
    for (const Isa level : executable_levels()) {
      INFO(c.name() << " on " << isa_name(level));
      const Forward one = run_forward(p, 1, level);
      for (const int threads : {1, 2, 3}) {
        const Forward again = run_forward(p, threads, level, threads != 3);
        CHECK(std::memcmp(one.out.data(), again.out.data(), one.out.size() * sizeof(bf16)) == 0);
        if (threads != 3) CHECK(one.lse == again.lse);
      }
    }
  }
}

TEST_CASE("attention_bf16 hand-worked: equal scores average the visible values") {
  // q = 0, so every visible key weighs the same. v of row a is a (all features): causal out_b = b / 2 (mean of 0..b);
  // window 2 on positions 0, 1, 4, 5: row 2 sees only itself (4 - 1 = 3 >= 2), row 3 sees rows 2 and 3.
  for (const Isa level : executable_levels()) {
    AttentionProblem p(AttentionCase{{4}, 1, 1, 32, 0, false});
    for (std::int64_t r = 0; r < 4; ++r) {
      for (int d = 0; d < 32; ++d) {
        p.qkv[static_cast<std::size_t>(r * p.qkv_stride + d)] = bf16(0.0f);
        p.qkv[static_cast<std::size_t>(r * p.qkv_stride + 64 + d)] = bf16(static_cast<float>(r));
      }
    }
    const Forward causal = run_forward(p, 1, level);
    const std::vector<std::int32_t> positions = {0, 1, 4, 5};
    p.in.positions = positions.data();
    p.in.window = 2;
    const Forward windowed = run_forward(p, 1, level);
    const float expected_causal[] = {0.0f, 0.5f, 1.0f, 1.5f}, expected_window[] = {0.0f, 0.5f, 2.0f, 2.5f};
    const float keys_seen[] = {1, 2, 1, 2};
    for (std::int64_t r = 0; r < 4; ++r) {
      for (int d = 0; d < 32; ++d) {
        const auto i = static_cast<std::size_t>(r * p.out_stride + d);
        CHECK(float{causal.out[i]} == Approx(expected_causal[r]).epsilon(1e-3).margin(1e-6));
        CHECK(float{windowed.out[i]} == Approx(expected_window[r]).epsilon(1e-3).margin(1e-6));
      }
      CHECK(windowed.lse[static_cast<std::size_t>(r)] == Approx(std::log(keys_seen[r])).margin(2e-4));
    }
  }
}

TEST_CASE("attention_bf16 survives scores of any size and keeps a NaN visible") {
  for (const Isa level : executable_levels()) {
    INFO(isa_name(level));
    AttentionProblem p(AttentionCase{{150}, 1, 1, 64, 0, false});
    for (auto& x : p.qkv) x = bf16(float{x} * 30.0f);  // scores of +-7000: one key takes all
    DoubleAttention reference(p);
    reference.forward();
    const Forward f = run_forward(p, 1, level);
    CHECK(relative_error(f.out.data(), p.out_stride, p.total, 64, reference.out) < 4e-3);
    p.qkv[static_cast<std::size_t>(40 * p.qkv_stride + 64)] = bf16(std::nanf(""));  // a key of row 40
    const Forward broken = run_forward(p, 1, level);
    CHECK(std::isfinite(float{broken.out[static_cast<std::size_t>(39 * p.out_stride)]}));
    CHECK(std::isnan(float{broken.out[static_cast<std::size_t>(40 * p.out_stride)]}));
    CHECK(std::isnan(float{broken.out[static_cast<std::size_t>(149 * p.out_stride)]}));
  }
}

TEST_CASE("attention_bf16 refuses impossible shapes") {
  AttentionProblem p(AttentionCase{{4}, 2, 2, 32, 0, false});
  p.in.kv_heads = 3;
  CHECK_THROWS(attention_forward_scratch_bytes(p.in, 1));
  p.in.kv_heads = 2;
  CHECK_THROWS(attention_forward_scratch_bytes(p.in, 0));
  p.in.scale = 0;
  CHECK_THROWS(attention_forward_scratch_bytes(p.in, 1));
}

}  // namespace
}  // namespace fathom::cpu::testing
#endif
