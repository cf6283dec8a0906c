// bf16 attention, forward and backward, one and two threads: ns per score element and useful causal FLOP rate.
//
//   bench_attention_bf16 [rows [heads [head_dim [kv_heads [rounds [level]]]]]]      defaults 2048 12 64 12 15, isa()
//
// Contenders alternate in every round. Score elements are the visible (query, key) pairs, S (S + 1) / 2 per head; forward
// counts 4 d FLOPs per element, backward 10 d (five products).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention_bf16.hpp"
#include "kernels/cpu/memory.hpp"
#include "tests/bench/clock.hpp"

#if FATHOM_CPU

namespace {

using namespace fathom;
using namespace fathom::cpu;

using fathom::testing::seconds;

long argument(int argc, char** argv, int i, long fallback) { return argc > i ? std::atol(argv[i]) : fallback; }

}  // namespace

int main(int argc, char** argv) {
  AttentionInputs in;
  in.rows = argument(argc, argv, 1, 2048);
  in.heads = static_cast<int>(argument(argc, argv, 2, 12));
  in.head_dim = static_cast<int>(argument(argc, argv, 3, 64));
  in.kv_heads = static_cast<int>(argument(argc, argv, 4, in.heads));
  const int rounds = static_cast<int>(argument(argc, argv, 5, 15));
  const Isa level = std::min(isa(), static_cast<Isa>(argument(argc, argv, 6, static_cast<long>(Isa::kAmx))));
  in.scale = 1.0f / std::sqrt(static_cast<float>(in.head_dim));
  const std::int64_t width = std::int64_t{in.heads} * in.head_dim, stride = std::int64_t{in.heads + 2 * in.kv_heads} * in.head_dim;

  Buffer qkv(in.rows * stride * 2), dqkv(in.rows * stride * 2), out(in.rows * width * 2), dout(in.rows * width * 2);
  Buffer lse(in.rows * in.heads * 4);
  Buffer scratch(std::max(attention_forward_scratch_bytes(in, 2, level), attention_backward_scratch_bytes(in, 2, level)));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < in.rows * stride; ++i) qkv.as<bf16>()[i] = bf16(normal(random));
  for (std::int64_t i = 0; i < in.rows * width; ++i) dout.as<bf16>()[i] = bf16(normal(random));
  in.q = qkv.as<bf16>();
  in.k = in.q + width;
  in.v = in.k + in.kv_heads * in.head_dim;
  in.q_stride = in.k_stride = in.v_stride = stride;
  const AttentionGradInputs grad{out.as<bf16>(), dout.as<bf16>(), width, width, lse.as<float>()};
  bf16* const dq = dqkv.as<bf16>();
  const AttentionGrads grads{dq, dq + width, dq + width + in.kv_heads * in.head_dim, stride, stride, stride};

  struct Contender {
    const char* name;
    bool backward;
    int threads;
    std::vector<double> samples = {};
  };
  std::vector<Contender> contenders = {{"forward 1T", false, 1}, {"forward 2T", false, 2}, {"backward 1T", true, 1}, {"backward 2T", true, 2}};
  for (int round = -1; round < rounds; ++round) {
    for (Contender& c : contenders) {
      const double start = seconds();
      if (c.backward) {
        attention_backward(in, grad, grads, scratch.data(), c.threads, level);
      } else {
        attention_forward(in, out.as<bf16>(), width, lse.as<float>(), scratch.data(), c.threads, level);
      }
      if (round >= 0) c.samples.push_back(seconds() - start);
    }
  }
  const double elements = 0.5 * static_cast<double>(in.rows) * static_cast<double>(in.rows + 1) * in.heads;
  std::printf("%s, %s: S %ld, heads %d/%d x %d, %d rounds\n", cpu_info().model_name.c_str(), std::string(isa_name(level)).c_str(),
              static_cast<long>(in.rows), in.heads, in.kv_heads, in.head_dim, rounds);
  std::printf("%-12s %9s %9s %9s %12s %12s %10s\n", "", "min ms", "median", "p90", "min ns/elem", "med ns/elem", "GF/s best");
  for (Contender& c : contenders) {
    std::sort(c.samples.begin(), c.samples.end());
    const auto at = [&](double q) { return c.samples[static_cast<std::size_t>(q * static_cast<double>(c.samples.size() - 1))]; };
    std::printf("%-12s %9.3f %9.3f %9.3f %12.3f %12.3f %10.0f\n", c.name, at(0) * 1e3, at(.5) * 1e3, at(.9) * 1e3,
                at(0) / elements * 1e9, at(.5) / elements * 1e9, elements * in.head_dim * (c.backward ? 10 : 4) / at(0) * 1e-9);
  }
}

#else
int main() { std::puts("built without the CPU backend"); }
#endif
