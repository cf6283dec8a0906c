// Public counting bugs whose right value is a sum over an op list.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/count/utilization.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

Scenario of(Phase phase, std::int64_t length, std::int64_t batch = 1, bool full = false) {
  Scenario s;
  s.phase = phase;
  s.length = length;
  s.batch = batch;
  s.full_mask = full;
  s.logits = LogitsKind::kAll;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  return s;
}
u128 flops(const Network& network, const Scenario& scenario) { return count_totals(network, scenario).total.flops.value(); }
std::string text(u128 value) { return to_string(value); }

// One attention block of n heads over m key/value heads of size d.
Network attention(std::int64_t n, std::int64_t m, std::int64_t d) {
  Network net;
  net.name = "attention";
  net.width = n * d, net.vocab = 1, net.positions = PositionKind::kNone;
  BlockConfig block;
  block.attention.emplace();
  block.attention->heads = n, block.attention->kv_heads = m, block.attention->head_dim = d;
  net.kinds = {block};
  net.layers = {0};
  return net;
}
u128 core(const Network& network, const Scenario& scenario) { return count_totals(network, scenario).part(Part::kCore).value(); }

}  // namespace

TEST_CASE("public cases: masks and windows", "[bugs]") {
  // 1: Llama 2 7B, S=8192, B=4, one training step: attention 422.21 T of 1721.22 T with the full square.
  const Network llama2 = builtin_network("llama-2-7b");
  const ListTotals full = count_totals(llama2, of(Phase::kTrain, 8192, 4, true));
  CHECK(full.total.flops.to_double() == Approx(1721.22e12).epsilon(1e-5));
  CHECK(full.part(Part::kCore).to_double() == Approx(422.21e12).epsilon(1e-4));
  CHECK(count_totals(llama2, of(Phase::kTrain, 8192, 4)).total.flops.to_double() == Approx(1510.11e12 + 0.0258e12).epsilon(1e-5));
  // 5: window 512 of 2048: 448.125 keys per query.
  Network window = attention(4, 4, 8);
  window.kinds[0].attention->window = 512;
  CHECK(text(core(window, of(Phase::kPrefill, 2048))) == text(u128{4} * 4 * 8 * 917'760));
  // 20: (B, n, S, d) = (2, 5, 9, 4), full: 12,960. 22: n=32, S=2048, d=128: 68,719,476,736. 23: GQA n=8, m=2, S=256, d=64: 134,217,728.
  CHECK(text(core(attention(5, 5, 4), of(Phase::kPrefill, 9, 2, true))) == "12960");
  CHECK(text(core(attention(32, 32, 128), of(Phase::kPrefill, 2048, 1, true))) == "68719476736");
  CHECK(text(core(attention(8, 2, 64), of(Phase::kPrefill, 256, 1, true))) == "134217728");
  CHECK(text(core(attention(32, 8, 128), of(Phase::kPrefill, 2048, 1, true))) == "68719476736");  // 21: by query heads
  // 32: multi-head module h=768, S=197: 4 h^2 S + 2 S^2 h multiply-adds.
  const ListTotals module = count_totals(attention(12, 12, 64), of(Phase::kPrefill, 197, 1, true));
  CHECK(text((module.part(Part::kProjection).value() + module.part(Part::kCore).value()) / 2) == "524391936");
  // 16: 12 h S per token of training for one attention block, both products.
  CHECK(text(core(attention(4, 4, 16), of(Phase::kTrain, 64, 1, true)) / 64) == text(u128{12} * 64 * 64));
  // 29: a window of 4096 at decode with 32,768 and 131,072 tokens of context.
  window.kinds[0].attention->window = 4096;
  for (std::int64_t context : {2048, 32'768, 131'072}) {
    Scenario d = of(Phase::kDecode, 1);
    d.context = context;
    CHECK(text(core(window, d)) == text(u128{4} * 4 * 8 * static_cast<u128>(std::min<std::int64_t>(context, 4096))));
  }
  // Chunks: 2048 tokens in chunks of 256 have 263,168 pairs.
  window.kinds[0].attention->window = 0, window.kinds[0].attention->chunk = 256;
  CHECK(text(core(window, of(Phase::kPrefill, 2048))) == text(u128{4} * 4 * 8 * 263'168));
}

TEST_CASE("public cases: experts, projections, logits", "[bugs]") {
  // 2: Mixtral B=1 S=1024, training, full: top-2 79.98 T.
  CHECK(to_double(flops(builtin_network("mixtral-8x7b"), of(Phase::kTrain, 1024, 1, true))) == Approx(79.98e12).epsilon(1e-4));
  // Mixtral with k=1 and k=2 differ.
  Network one = builtin_network("mixtral-8x7b");
  for (BlockConfig& kind : one.kinds) kind.mlp->moe->picks = 1;
  CHECK(text(flops(builtin_network("mixtral-8x7b"), of(Phase::kPrefill, 2048, 1, true)) / 2048) == "26570915840");
  CHECK(text((flops(builtin_network("mixtral-8x7b"), of(Phase::kPrefill, 2048)) - flops(one, of(Phase::kPrefill, 2048))) / 2048) == text(u128{32} * 352'321'536));
  // 3: a shared expert wider than the routed ones: its own width.
  Network shared = builtin_network("mixtral-8x7b");
  for (BlockConfig& kind : shared.kinds) kind.mlp->moe->shared = 1, kind.mlp->moe->shared_width = 3 * 14336;
  CHECK(text((flops(shared, of(Phase::kPrefill, 2048)) - flops(builtin_network("mixtral-8x7b"), of(Phase::kPrefill, 2048))) / 2048) == text(u128{32} * 3 * 352'321'536));
  // 6: Llama 3 8B projections: 83,886,080 per token and layer.
  CHECK(text(count_totals(builtin_network("llama-3-8b"), of(Phase::kPrefill, 64)).part(Part::kProjection).value() / 64 / 32) == "83886080");
  // 7: GPT-2 logits in training: 6 h V per token, with and without recomputation.
  Scenario t = of(Phase::kTrain, 1024);
  CHECK(text(count_totals(builtin_network("gpt2-124m"), t).part(Part::kLogits).value() / 1024) == "231584256");
  t.recompute = Recompute::kFull;
  CHECK(text(count_totals(builtin_network("gpt2-124m"), t).part(Part::kLogits).value() / 1024) == "231584256");
  // 18: tied and untied alike. 25: the ratio of doubled lengths is more than 2. 26: Llama 2's MLP.
  Network tied = builtin_network("llama-3-8b");
  tied.tied = true;
  CHECK(text(flops(tied, of(Phase::kPrefill, 2048, 1, true)) / 2048) == "16083058688");
  CHECK(flops(tied, of(Phase::kPrefill, 16'384)) > 2 * flops(tied, of(Phase::kPrefill, 8192)));
  CHECK(text(count_totals(builtin_network("llama-2-7b"), of(Phase::kPrefill, 64)).part(Part::kFfn).value() / 64 / 32) == "270532608");
  // Decode attends to the whole context: 4000 prompt + 96 new tokens.
  Scenario d = of(Phase::kDecode, 1);
  d.context = 4096;
  CHECK(text(count_totals(builtin_network("llama-2-7b"), d).part(Part::kCore).value()) == text(u128{32} * 16'384 * 4096));
}

TEST_CASE("a prediction module is a layer, a projection and logits", "[bugs]") {
  Network v3 = builtin_network("deepseek-v3");
  const u128 base = flops(v3, of(Phase::kPrefill, 2048));
  v3.mtp = 1;
  const u128 layer = u128{2048} * (374'210'560 + 796'393'472) + u128{81'920} * 2'098'176;
  const u128 module = layer + u128{2048} * (4 * 7168 * 7168 + u128{1'853'358'080});
  CHECK(text(flops(v3, of(Phase::kPrefill, 2048)) - base) == text(module));
  CHECK(text(count_totals(v3, of(Phase::kPrefill, 2048)).part(Part::kMtp).value()) == text(module));
  CHECK(text(flops(v3, of(Phase::kTrain, 2048))) == text(3 * (base + module)));
}

TEST_CASE("model and hardware utilisation", "[bugs]") {
  const Network network = builtin_network("llama-3-8b");
  Scenario t = of(Phase::kTrain, 2048);
  const StepFlops plain = step_flops(build(network, t));
  CHECK(plain.model / 2048 == 46639349760);
  CHECK(plain.executed / 2048 == 46907916288);  // the fused backward repeats QK^T
  t.recompute = Recompute::kFull;
  const StepFlops again = step_flops(build(network, t));
  CHECK(again.model == plain.model);
  CHECK(again.executed - plain.executed == (61'135'126'528.0 - 46'639'349'760.0) * 2048);
  // 34: the global batch goes with all 16 devices. 1e15 FLOP in 0.5 s on 16 devices of 312 TFLOP/s: 40.06 %.
  CHECK(utilization(1e15, Seconds(0.5), 16, FlopRate(312e12)) == Approx(0.400641).epsilon(1e-5));
  CHECK_THROWS_AS(utilization(1.0, Seconds(0.0), 1, FlopRate(1e12)), Error);
}
