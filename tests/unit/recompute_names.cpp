// Recomputation by op names: what is kept, what is done again, what is refused.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "lib/memory_parts.hpp"
#include "lib/plan.hpp"
#include "models/builder.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

constexpr std::int64_t kRows = 64;

Scenario train(const std::string& policy) {
  Scenario s;
  s.phase = Phase::kTrain;
  s.length = kRows;
  s.logits = LogitsKind::kAll;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  parse_recompute(policy, s);
  return s;
}
u128 saved(const Network& network, const std::string& policy) { return memory_parts(build(network, train(policy))).saved.value(); }
// What one more layer keeps, per row.
std::string kept(Network network, const std::string& policy) {
  network.layers.resize(2);
  const u128 two = saved(network, policy);
  network.layers.push_back(network.layers.back());
  return to_string((saved(network, policy) - two) / kRows);
}
// FLOPs of the recompute pass per layer and row.
std::string again(const Network& network, const std::string& policy) {
  const Workload w = build(network, train(policy));
  const Workload none = build(network, train("none"));
  CHECK(w.total(Pass::kForward).flops == none.total(Pass::kForward).flops);  // model FLOPs do not change
  CHECK(w.total(Pass::kBackward).flops == none.total(Pass::kBackward).flops);
  const ListTotals counted = count_totals(network, train(policy));
  CHECK(counted.pass(Pass::kRecompute) == w.total(Pass::kRecompute).flops);
  CHECK(counted.total == w.total());
  return to_string(w.total(Pass::kRecompute).flops.value() / static_cast<u128>(network.layer_count()) / kRows);
}
std::string text(u128 value) { return to_string(value); }

}  // namespace

TEST_CASE("named ops are not kept and are done again: GPT-2 dims", "[recompute]") {
  const Network gpt2 = builtin_network("gpt2-124m");
  const u128 h = 768;
  // A layer keeps 24,640 bytes per row: x, norm, q, k, v, attention, mid, norm (8 h), MLP 4 h + 4 h in bf16, two LayerNorms of two f32 statistics, 12 log-sum-exps.
  CHECK(kept(gpt2, "none") == "24640");
  CHECK(kept(gpt2, "mlp/act") == text(24'640 - 4 * h * 2));
  CHECK(again(gpt2, "mlp/act") == "0");  // elements, no FLOP
  CHECK(kept(gpt2, "activation") == kept(gpt2, "mlp/act"));  // by kind
  CHECK(kept(gpt2, "mlp/up,mlp/act") == text(24'640 - 8 * h * 2));
  CHECK(again(gpt2, "mlp/up,mlp/act") == text(2 * h * 4 * h));
  CHECK(again(gpt2, "mlp") == text(2 * h * 4 * h));  // nobody reads mlp/down again
  CHECK(kept(gpt2, "norm1+norm2") == text(24'640 - 2 * h * 2 - 2 * 8));
  CHECK(kept(gpt2, "layer_norm") == kept(gpt2, "norm1+norm2"));
  CHECK(kept(gpt2, "attn/qkv") == text(24'640 - 3 * h * 2));
  CHECK(again(gpt2, "attn/qkv") == text(2 * h * 3 * h));
  // The attention core alone is the selective policy.
  CHECK(kept(gpt2, "attn/core") == kept(gpt2, "selective"));
  CHECK(again(gpt2, "attn/core") == again(gpt2, "selective"));
  CHECK(build(gpt2, train("attn/core")).fingerprint() == build(gpt2, train("selective")).fingerprint());
}

TEST_CASE("everything by name keeps what full recomputation keeps, without the last product", "[recompute]") {
  const Network gpt2 = builtin_network("gpt2-124m");
  CHECK(kept(gpt2, "attn,mlp,norm1,norm2") == "1536");  // the block's input
  CHECK(kept(gpt2, "full") == "1536");
  const u128 h = 768, core = 4 * h * (kRows + 1) / 2;
  CHECK(again(gpt2, "attn,mlp,norm1,norm2") == text(2 * h * 3 * h + 2 * h * h + core + 2 * h * 4 * h));
  CHECK(again(gpt2, "full") == text(2 * h * 3 * h + 2 * h * h + core + 2 * 2 * h * 4 * h));
}

TEST_CASE("what works in place on a repeated output is repeated with it: rotation in Llama 3", "[recompute]") {
  const Network llama = builtin_network("llama-3-8b");
  // 139,400 bytes per row; q + k + v are 6144 elements.
  CHECK(kept(llama, "attn/qkv") == text(139'400 - 2 * 6144));
  CHECK(again(llama, "attn/qkv") == text(2 * 4096 * 6144));
  const Workload w = build(llama, train("attn/qkv"));
  int rotations = 0;
  for (const Op& op : w.ops()) rotations += op.pass == Pass::kRecompute && std::holds_alternative<Rope>(op.spec);
  CHECK(rotations == 1);
  // The gated product alone, and with both that it needs.
  CHECK(kept(llama, "mlp/act") == text(139'400 - 2 * 14'336));
  CHECK(kept(llama, "mlp") == text(139'400 - 3 * 2 * 14'336));
  CHECK(again(llama, "mlp") == text(2 * 2 * 4096 * 14'336));
}

TEST_CASE("experts, routed blocks, latent attention and adapters follow names too", "[recompute]") {
  CHECK(again(builtin_network("mixtral-8x7b"), "moe/act") == "0");
  CHECK(again(builtin_network("mixtral-8x7b"), "moe/gate+moe/up+moe/act") == text(2 * 2 * 2 * 4096 * 14'336));
  const Network mod = builtin_network("mod-60m");
  Scenario all = train("attn,mlp,norm1,norm2");
  const Workload w = build(mod, all);
  for (const Op& op : w.ops())
    if (op.pass == Pass::kRecompute) CHECK_FALSE((std::holds_alternative<RouterScore>(op.spec) || std::holds_alternative<Select>(op.spec)));  // replayed
  CHECK(memory_parts(w).saved.value() < memory_parts(build(mod, train("none"))).saved.value() / 2);
  const Network v3 = builtin_network("deepseek-v3");
  CHECK(build(v3, train("attn/kv_up,attn/heads")).total(Pass::kRecompute).flops.str() == text(u128{2} * kRows * 512 * 128 * 256 * 61));
  Network lora = builtin_network("llama-3-8b");
  lora.lora = Lora{16, {"q", "v"}};
  // The adapters add to the columns of q and v: done again with them, A and B both where A is named. Layer 0 needs them like any other.
  CHECK(build(lora, train("attn/qkv,attn/q,attn/v")).total(Pass::kRecompute).flops.str() == text(u128{kRows} * 32 * (2 * 4096 * 6144 + 2 * 16 * (4096 + 4096) + 2 * 16 * (4096 + 1024))));
}

TEST_CASE("the peak of memory falls with what is not kept", "[recompute]") {
  const Network gpt2 = builtin_network("gpt2-124m");
  const auto peak = [&](const char* policy) { return plan_memory(build(gpt2, train(policy))).activations; };
  CHECK(peak("mlp/act") < peak("none"));
  CHECK(peak("mlp/act,mlp/up") < peak("mlp/act"));
  CHECK(peak("attn,mlp,norm1,norm2") < peak("mlp/act,mlp/up"));
}

TEST_CASE("names that cannot be followed are refused", "[recompute]") {
  const auto refuse = [](const char* model, const char* policy, const char* words) {
    CAPTURE(model, policy);
    CHECK_THROWS_WITH(build(builtin_network(model), train(policy)), Catch::Contains(words));
  };
  refuse("gpt2-124m", "mlp/atc", "did you mean 'mlp/act'");
  refuse("gpt2-124m", "attn/rope", "no layer has");
  refuse("llama-3-8b", "attn/rope", "works in place");
  refuse("gpt2-124m", "mlp/residual", "next layer");
  refuse("mod-60m", "route/score", "replayed");
  refuse("mod-60m", "select", "replayed");
  refuse("mixtral-8x7b", "moe/select", "replayed");
  refuse("gpt2-124m", "logits", "no layer has");
  refuse("gpt2-124m", "full,mlp/act", "stands alone");
  refuse("gpt2-124m", "mlp/act,,norm1", "empty name");
  refuse("gpt2-124m", "mlp/act,mlp/act", "twice");
  Scenario decode = train("mlp/act");
  decode.phase = Phase::kDecode, decode.context = 5;
  CHECK_NOTHROW(build(builtin_network("gpt2-124m"), decode));  // nothing to recompute
}
