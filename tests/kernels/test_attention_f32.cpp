// f32 attention against a naive double reference: every twin, odd shapes, gaps in positions, windows, chunks, grouped heads,
// prefix offsets; sentinels around every output; gradients against the reference and against central differences.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_f32.hpp"
#include "kernels/cpu/vector_isa.hpp"
#include "lib/error.hpp"
#include "tests/kernels/attention_f32_reference.hpp"

namespace {

using namespace fathom;
using namespace fathom::cpu;
using namespace fathom::testing::attention_f32;

constexpr float kSentinel = -12345.0f;

// Forces one twin and goes back to the one before.
struct Forced {
  VectorIsa before = active_vector_isa();
  explicit Forced(VectorIsa isa) { force_vector_isa(isa); }
  ~Forced() { force_vector_isa(before); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;
};

struct Result {
  std::vector<float> out, lse, dq, dkv;
};

// Runs both passes; scratch has exactly the promised size, starts as NaN, and the bytes behind it must survive.
Result run(const Problem& p, VectorIsa isa, int threads, bool backward = true) {
  const AttentionShape& s = p.shape;
  const Forced forced(isa);
  Result r;
  r.out.assign(s.batch * s.q_rows * p.out_width, kSentinel);
  r.lse.assign(s.batch * s.q_rows * s.heads, kSentinel);
  r.dq.assign(p.q.size(), kSentinel);
  r.dkv.assign(p.kv.size(), kSentinel);
  const auto with_scratch = [](std::size_t bytes, auto&& f) {
    std::vector<unsigned char> scratch(bytes + 64, 0xff);
    f(scratch.data());
    for (std::size_t i = bytes; i < scratch.size(); ++i) REQUIRE(scratch[i] == 0xff);
  };
  with_scratch(attention_f32_scratch_bytes(s, threads), [&](void* scratch) {
    attention_f32(s, p.q_view(), p.k_view(), p.v_view(), {r.out.data(), p.out_width, 0}, r.lse.data(), scratch, threads);
  });
  if (backward) {
    with_scratch(attention_f32_backward_scratch_bytes(s, threads), [&](void* scratch) {
      attention_f32_backward(s, p.q_view(), p.k_view(), p.v_view(), {r.out.data(), p.out_width, 0}, r.lse.data(),
                             {p.d_out.data(), p.out_width, 0}, {r.dq.data(), p.q_width, 0}, {r.dkv.data(), p.kv_width, 0},
                             {r.dkv.data() + s.kv_heads * s.d_qk, p.kv_width, 0}, scratch, threads);
    });
  }
  return r;
}

// Columns [0, columns) of `got` against the dense reference, the columns behind them untouched.
void check_rows(const char* what, const std::vector<float>& got, Index width, const std::vector<double>& want, Index columns,
                double tolerance) {
  INFO(what);
  REQUIRE(got.size() / width == want.size() / columns);
  double worst = 0.0;
  for (Index r = 0; r < static_cast<Index>(got.size()) / width; ++r)
    for (Index c = 0; c < width; ++c) {
      const double x = got[r * width + c];
      if (c >= columns) {
        REQUIRE(x == kSentinel);
        continue;
      }
      const double error = std::abs(x - want[r * columns + c]);
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    }
  CHECK(worst <= tolerance);
}

void check(const Problem& p, VectorIsa isa, int threads = 1, bool backward = true) {
  const AttentionShape& s = p.shape;
  CAPTURE(static_cast<int>(isa), threads, s.batch, s.q_rows, s.kv_rows, s.heads, s.kv_heads, s.d_qk, s.d_v, s.causal,
          s.window, s.chunk, s.q_offset);
  const Reference want = reference(p);
  const Result got = run(p, isa, threads, backward);
  check_rows("out", got.out, p.out_width, want.out, s.heads * s.d_v, 4e-6);
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    if (std::isinf(want.lse[i])) {
      CHECK(got.lse[i] == -std::numeric_limits<float>::infinity());
    } else {
      CHECK(got.lse[i] == Approx(want.lse[i]).epsilon(0).margin(3e-6));
    }
  }
  if (!backward) return;
  check_rows("dq", got.dq, p.q_width, want.dq, s.heads * s.d_qk, 3e-5);
  check_rows("dk, dv", got.dkv, p.kv_width, want.dkv, s.kv_heads * (s.d_qk + s.d_v), 3e-5);
}

std::vector<VectorIsa> twins() { return supported_vector_isas(); }

AttentionShape self_attention(Index batch, Index rows, Index heads, Index kv_heads, Index d_qk, Index d_v) {
  AttentionShape s;
  s.batch = batch;
  s.q_rows = s.kv_rows = rows;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.d_qk = d_qk;
  s.d_v = d_v;
  return s;
}

}  // namespace

TEST_CASE("two queries, worked by hand", "[attention]") {
  // d = 1, scale 1, k = (0, ln 3), v = (4, 8), q = (1, 1). Query 0 sees key 0: out 4, lse 0. Query 1: weights 1/4 and 3/4,
  // out 1 + 6 = 7, lse ln 4.
  AttentionShape s = self_attention(1, 2, 1, 1, 1, 1);
  s.scale = 1.0f;
  const float ln3 = std::log(3.0f);
  const std::vector<float> qkv = {1, 0, 4, 1, ln3, 8};  // rows of (q, k, v)
  for (const VectorIsa isa : twins()) {
    const Forced forced(isa);
    std::vector<float> out(2), lse(2);
    std::vector<char> scratch(attention_f32_scratch_bytes(s, 1));
    attention_f32(s, {qkv.data(), 3, 0}, {qkv.data() + 1, 3, 0}, {qkv.data() + 2, 3, 0}, {out.data(), 1, 0}, lse.data(),
                  scratch.data(), 1);
    CHECK(out[0] == Approx(4.0f).epsilon(1e-6));
    CHECK(out[1] == Approx(7.0f).epsilon(1e-6));
    CHECK(lse[0] == Approx(0.0f).margin(2e-7));
    CHECK(lse[1] == Approx(std::log(4.0f)).epsilon(1e-6));
  }
}

TEST_CASE("causal self-attention of any length and head size", "[attention]") {
  for (const VectorIsa isa : twins()) {
    for (const Index rows : {0, 1, 2, 5, 15, 16, 17, 63, 64, 65, 97, 150, 201}) check(Problem(self_attention(1, rows, 2, 1, 16, 16)), isa);
    for (const Index d : {1, 3, 8, 16, 32, 64, 80, 96, 128}) check(Problem(self_attention(2, 70, 2, 2, d, d)), isa);
    check(Problem(self_attention(1, 130, 2, 1, 24, 40)), isa);
    check(Problem(self_attention(1, 130, 2, 2, 96, 64)), isa);
    check(Problem(self_attention(3, 33, 6, 2, 8, 8)), isa, 2);
    check(Problem(self_attention(1, 600, 3, 1, 16, 16)), isa, 2);  // keys in several parts
    check(Problem(self_attention(1, 600, 9, 9, 8, 8)), isa, 2);
  }
}

TEST_CASE("full attention and other key counts", "[attention]") {
  for (const VectorIsa isa : twins()) {
    AttentionShape s = self_attention(2, 37, 2, 1, 16, 16);
    s.causal = false;
    for (const Index keys : {0, 1, 2, 40, 100, 200}) {
      s.kv_rows = keys;
      check(Problem(s), isa);
    }
    s.q_rows = 0;
    check(Problem(s), isa);
  }
}

TEST_CASE("chunked prefill: new queries after cached keys", "[attention]") {
  for (const VectorIsa isa : twins()) {
    for (const Index cached : {0, 1, 31, 64, 100}) {
      for (const Index fresh : {1, 3, 20, 70}) {
        AttentionShape s = self_attention(2, fresh, 4, 2, 32, 32);
        s.kv_rows = cached + fresh;
        s.q_offset = cached;
        check(Problem(s), isa);
      }
    }
    AttentionShape before = self_attention(1, 80, 1, 1, 16, 16);  // the first 30 queries see nothing
    before.q_offset = -30;
    check(Problem(before), isa);
    before.chunk = 7;
    check(Problem(before), isa);
  }
}

TEST_CASE("windows and chunks act on original positions", "[attention]") {
  for (const VectorIsa isa : twins()) {
    for (const bool routed : {false, true}) {
      for (const Index window : {0, 1, 2, 7, 40, 100, 1000}) {
        for (const Index chunk : {0, 1, 5, 64, 1000}) {
          AttentionShape s = self_attention(2, 140, 1, 1, 8, 8);
          s.window = window;
          s.chunk = chunk;
          Problem p(s);
          if (routed) p.gaps(static_cast<unsigned>(window + chunk));
          check(p, isa);
          if (window == 0) {
            p.shape.causal = false;
            check(p, isa);
          }
        }
      }
    }
  }
}

TEST_CASE("a routed block equals the dense block with the other rows hidden", "[attention]") {
  // Positions {2, 5, 6} of a window-4 block: 5 and 6 see each other's neighbourhood, 2 is at distance 3 from 5 and 4 from 6.
  AttentionShape s = self_attention(1, 3, 1, 1, 4, 4);
  s.window = 4;
  const std::int32_t positions[] = {2, 5, 6};
  s.q_positions = s.kv_positions = positions;
  REQUIRE(visible(s, 0, 1, 0));
  REQUIRE_FALSE(visible(s, 0, 2, 0));
  for (const VectorIsa isa : twins()) check(Problem(s), isa);
}

TEST_CASE("key rows that no query sees never matter", "[attention]") {
  AttentionShape s = self_attention(1, 20, 2, 1, 16, 16);
  s.kv_rows = 50;  // causal: keys 20.. are in the future of every query
  for (const VectorIsa isa : twins()) {
    Problem p(s);
    const Result clean = run(p, isa, 1);
    for (Index j = 20; j < 50; ++j)
      for (Index c = 0; c < p.kv_width; ++c) p.kv[j * p.kv_width + c] = std::numeric_limits<float>::quiet_NaN();
    const Result dirty = run(p, isa, 1);
    CHECK(clean.out == dirty.out);
    CHECK(clean.dq == dirty.dq);
    for (Index j = 20; j < 50; ++j) CHECK(dirty.dkv[j * p.kv_width] == 0.0f);
  }
}

TEST_CASE("large scores neither overflow nor lose the maximum", "[attention]") {
  for (const VectorIsa isa : twins()) {
    AttentionShape s = self_attention(1, 150, 1, 1, 16, 16);
    s.scale = 1.0f;
    Problem p(s);
    for (float& x : p.q) x *= 30.0f;
    const Result got = run(p, isa, 1, false);
    const Reference want = reference(p);
    check_rows("out", got.out, p.out_width, want.out, 16, 2e-4);
  }
}

TEST_CASE("results do not depend on threads or on the call", "[attention]") {
  for (const VectorIsa isa : twins()) {
    for (const Index rows : {100, 530}) {
      Problem p(self_attention(1, rows, 5, 5, 32, 32));
      const Result one = run(p, isa, 1);
      for (const int threads : {1, 2, 3}) {
        const Result again = run(p, isa, threads);
        CHECK(one.out == again.out);
        CHECK(one.lse == again.lse);
        CHECK(one.dq == again.dq);
        CHECK(one.dkv == again.dkv);
      }
    }
  }
}

TEST_CASE("a sequence gives the same bits alone and in a batch", "[attention]") {
  for (const VectorIsa isa : twins()) {
    Problem both(self_attention(2, 90, 3, 1, 16, 16));
    const Result together = run(both, isa, 2, false);
    Problem second = both;
    second.shape.batch = 1;
    second.q.erase(second.q.begin(), second.q.begin() + 90 * second.q_width);
    second.kv.erase(second.kv.begin(), second.kv.begin() + 90 * second.kv_width);
    const Result alone = run(second, isa, 1, false);
    CHECK(std::vector<float>(together.out.begin() + 90 * both.out_width, together.out.end()) == alone.out);
  }
}

TEST_CASE("gradients agree with central differences of the forward pass", "[attention]") {
  for (const VectorIsa isa : twins()) {
    AttentionShape s = self_attention(1, 40, 2, 1, 12, 20);
    s.window = 17;
    Problem p(s, 5);
    p.gaps(3);
    const Result at = run(p, isa, 1);
    const auto loss = [&](const Problem& x) {
      const Result r = run(x, isa, 1, false);
      double sum = 0.0;
      for (Index row = 0; row < s.q_rows; ++row)
        for (Index c = 0; c < s.heads * s.d_v; ++c) {
          sum += static_cast<double>(r.out[row * p.out_width + c]) * p.d_out[row * p.out_width + c];
        }
      return sum;
    };
    const auto slope = [&](std::vector<float> Problem::*buffer, Index i) {
      Problem up = p, down = p;
      up.shape.q_positions = down.shape.q_positions = p.q_positions.data();
      up.shape.kv_positions = down.shape.kv_positions = p.kv_positions.data();
      (up.*buffer)[i] += 0.02f;
      (down.*buffer)[i] -= 0.02f;
      return (loss(up) - loss(down)) / (static_cast<double>((up.*buffer)[i]) - (down.*buffer)[i]);
    };
    for (const Index row : {0, 1, 16, 31, 39}) {
      const Index column = row % 12, value = s.kv_heads * s.d_qk + row % 20;
      CHECK(at.dq[row * p.q_width + column] == Approx(slope(&Problem::q, row * p.q_width + column)).margin(2e-3));
      CHECK(at.dkv[row * p.kv_width + column] == Approx(slope(&Problem::kv, row * p.kv_width + column)).margin(2e-3));
      CHECK(at.dkv[row * p.kv_width + value] == Approx(slope(&Problem::kv, row * p.kv_width + value)).margin(2e-3));
    }
  }
}

TEST_CASE("impossible shapes are refused", "[attention]") {
  AttentionShape s = self_attention(1, 4, 3, 2, 8, 8);
  CHECK_THROWS_AS(attention_f32_scratch_bytes(s, 1), Error);  // 3 heads on 2 key heads
  s = self_attention(1, 4, 2, 2, 8, 8);
  CHECK_THROWS_AS(attention_f32_scratch_bytes(s, 0), Error);
  s.window = 3;
  s.causal = false;
  CHECK_THROWS_AS(attention_f32_scratch_bytes(s, 1), Error);
  Problem p(self_attention(1, 3, 1, 1, 8, 8));
  const std::int32_t falling[] = {4, 2, 7};
  p.shape.q_positions = p.shape.kv_positions = falling;
  CHECK_THROWS_AS(run(p, active_vector_isa(), 1, false), Error);
}
