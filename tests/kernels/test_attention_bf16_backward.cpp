// bf16 attention backward: the double reference against central differences, the kernels against the double reference.
#if FATHOM_CPU
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/cpu/attention_bf16.hpp"
#include "tests/kernels/attention_reference.hpp"

namespace fathom::cpu::testing {
namespace {

constexpr std::uint16_t kSentinel = 0x4321;

// Forward by the kernel (as in training), then backward into one dqkv buffer laid out as qkv.
std::vector<bf16> run_backward(const AttentionProblem& p, int threads, Isa level) {
  bf16 sentinel;
  sentinel.bits = kSentinel;
  std::vector<bf16> out(static_cast<std::size_t>(p.total * p.out_stride));
  std::vector<float> lse(static_cast<std::size_t>(p.total * p.in.heads));
  std::vector<unsigned char> forward_scratch(static_cast<std::size_t>(attention_forward_scratch_bytes(p.in, threads, level)), 0xff);
  attention_forward(p.in, out.data(), p.out_stride, lse.data(), forward_scratch.data(), threads, level);

  std::vector<bf16> dqkv(static_cast<std::size_t>((p.total + 1) * p.qkv_stride), sentinel);
  const auto bytes = static_cast<std::size_t>(attention_backward_scratch_bytes(p.in, threads, level));
  std::vector<unsigned char> scratch(bytes + 64, 0xff);
  const AttentionGradInputs grad{out.data(), p.dout.data(), p.out_stride, p.out_stride, lse.data()};
  AttentionGrads grads;
  grads.dq = dqkv.data();
  grads.dk = grads.dq + (p.in.k - p.in.q);
  grads.dv = grads.dq + (p.in.v - p.in.q);
  grads.dq_stride = grads.dk_stride = grads.dv_stride = p.qkv_stride;
  attention_backward(p.in, grad, grads, scratch.data(), threads, level);
  for (std::size_t i = bytes; i < scratch.size(); ++i) REQUIRE(scratch[i] == 0xff);
  return dqkv;
}

TEST_CASE("the double reference's attention gradient equals central differences") {
  for (const AttentionCase& c : {AttentionCase{{9}, 2, 1, 4, 0, false}, AttentionCase{{5, 8}, 2, 2, 3, 6, true}}) {
    const AttentionProblem p(c);
    DoubleAttention reference(p);
    reference.forward();
    reference.backward();
    const double h = 1e-5;
    for (const auto& [values, gradient] : {std::pair{&reference.q, &reference.dq}, std::pair{&reference.k, &reference.dk},
                                           std::pair{&reference.v, &reference.dv}}) {
      for (std::size_t i = 0; i < values->size(); ++i) {
        const double kept = (*values)[i];
        (*values)[i] = kept + h;
        const double above = reference.objective();
        (*values)[i] = kept - h;
        const double below = reference.objective();
        (*values)[i] = kept;
        REQUIRE((*gradient)[i] == Approx((above - below) / (2 * h)).epsilon(1e-6).margin(1e-8));
      }
    }
  }
}

TEST_CASE("attention_bf16 backward equals the double reference and writes nothing else") {
  for (const AttentionCase& c : attention_cases()) {
    const AttentionProblem p(c);
    DoubleAttention reference(p);
    reference.forward();
    reference.backward();
    const std::int64_t width = std::int64_t{c.heads} * c.head_dim, kv_width = std::int64_t{c.kv_heads} * c.head_dim;
    for (const Isa level : executable_levels()) {
      INFO(c.name() << " on " << isa_name(level));
      const std::vector<bf16> dqkv = run_backward(p, 1, level);
      // bf16 rounding of the output, of P and dS (tiles), and of the stored forward output inside D.
      CHECK(relative_error(dqkv.data(), p.qkv_stride, p.total, width, reference.dq) < 8e-3);
      CHECK(relative_error(dqkv.data() + width, p.qkv_stride, p.total, kv_width, reference.dk) < 8e-3);
      CHECK(relative_error(dqkv.data() + width + kv_width, p.qkv_stride, p.total, kv_width, reference.dv) < 5e-3);
      for (std::int64_t r = 0; r <= p.total; ++r) {
        for (std::int64_t i = r < p.total ? width + 2 * kv_width : 0; i < p.qkv_stride; ++i) {
          REQUIRE(dqkv[static_cast<std::size_t>(r * p.qkv_stride + i)].bits == kSentinel);
        }
      }
    }
  }
}

TEST_CASE("attention_bf16 backward is bit-equal between runs and thread counts") {
  for (const AttentionCase& c : {AttentionCase{{300, 77, 1}, 6, 2, 64, 0, false}, AttentionCase{{401}, 4, 4, 128, 90, true}}) {
    const AttentionProblem p(c);
    for (const Isa level : executable_levels()) {
      INFO(c.name() << " on " << isa_name(level));
      const std::vector<bf16> one = run_backward(p, 1, level);
      for (const int threads : {1, 2, 3}) {
        const std::vector<bf16> again = run_backward(p, threads, level);
        CHECK(std::memcmp(one.data(), again.data(), one.size() * sizeof(bf16)) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu::testing
#endif
