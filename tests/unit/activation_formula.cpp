// The published closed form of activation memory: its integer, and the named way to what the op list keeps.
#include <catch2/catch.hpp>

#include "models/count/activation_formula.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

Scenario train(std::int64_t length, std::int64_t batch, DType dtype = DType::kBF16) {
  Scenario s;
  s.phase = Phase::kTrain;
  s.length = length;
  s.batch = batch;
  s.dtype = s.kv_dtype = s.grad_dtype = dtype;
  return s;
}

Rational sum(const ActivationFormula& f) {
  Rational total;
  for (const Reason& reason : f.reasons) {
    CHECK_FALSE(reason.flops.zero());
    total += reason.flops;
  }
  return total;
}

}  // namespace

TEST_CASE("34 S B h + 5 n S^2 B bytes, and why the list keeps less", "[activation_formula]") {
  const Network gpt2 = builtin_network("gpt2-124m");
  // S = 128, B = 3, h = 768, n = 12: 34 * 384 * 768 = 10,027,008; 5 * 12 * 128 * 384 = 2,949,120.
  ActivationFormula f = activation_formula(gpt2, train(128, 3));
  CHECK(f.published.str() == "12976128");
  // 32 S B h = 9,437,184; two LayerNorms of two f32 statistics per row and 12 log-sum-exps: 384 * (16 + 48) = 24,576.
  CHECK(f.counted.str() == "9461760");
  CHECK(f.published + sum(f) == f.counted);
  REQUIRE(f.reasons.size() == 5);
  CHECK(f.reasons[0].flops.str() == "-589824");   // 2 S B h
  CHECK(f.reasons[1].flops.str() == "-1769472");  // 3 n S^2 B
  CHECK(f.reasons[2].flops.str() == "-1179648");  // 2 n S^2 B
  CHECK(f.reasons[3].flops.str() == "18432");     // 4 n S B
  CHECK(f.reasons[4].flops.str() == "6144");      // 16 S B
  // Unfused over the whole square: all that is left is dropout and statistics.
  Scenario square = train(128, 3);
  square.fusions.attention = false;
  square.full_mask = true;
  f = activation_formula(gpt2, square);
  CHECK(f.reasons.size() == 3);
  CHECK(f.published + sum(f) == f.counted);
  CHECK(f.counted.str() == "10622976");  // 32 S B h + 2 n S^2 B + 16 S B
}

TEST_CASE("other architectures and types: every byte has a reason", "[activation_formula]") {
  for (const char* name : {"gpt2-124m", "llama-2-7b", "llama-3-8b", "dense-220m"})
    for (const DType dtype : {DType::kBF16, DType::kF32})
      for (const bool fused : {true, false}) {
        Scenario s = train(64, 2, dtype);
        s.fusions.attention = fused;
        CAPTURE(name, dtype_name(dtype), fused);
        const ActivationFormula f = activation_formula(builtin_network(name), s);
        REQUIRE(f.unavailable.empty());
        CHECK(f.published + sum(f) == f.counted);
        for (const Reason& reason : f.reasons) CHECK(reason.text.find("further tensors") == std::string::npos);
      }
  // Llama 3 8B, bf16, 2048 tokens: 139,400 bytes per token and layer.
  CHECK(activation_formula(builtin_network("llama-3-8b"), train(2048, 1)).counted.str() == "285491200");
  CHECK_FALSE(activation_formula(builtin_network("mixtral-8x7b"), train(8, 1)).unavailable.empty());
  Scenario again = train(8, 1);
  again.recompute = Recompute::kFull;
  CHECK(activation_formula(builtin_network("gpt2-124m"), again).unavailable.find("recomputation") != std::string::npos);
}
