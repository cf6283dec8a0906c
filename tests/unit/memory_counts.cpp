// Memory by purpose: what the forward pass keeps for the backward pass, weights, gradients, optimizer state, caches.
#include <catch2/catch.hpp>

#include "lib/memory_parts.hpp"
#include "lib/plan.hpp"
#include "models/builder.hpp"
#include "models/network_ini.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"
#include "tools/results.hpp"

using namespace fathom;

namespace {

Scenario train(std::int64_t length, Recompute recompute = Recompute::kNone) {
  Scenario s;
  s.phase = Phase::kTrain;
  s.length = length;
  s.logits = LogitsKind::kAll;
  s.recompute = recompute;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  return s;
}
std::string saved(const Network& network, const Scenario& scenario) { return memory_parts(build(network, scenario)).saved.str(); }
u128 saved_value(const Network& network, const Scenario& scenario) { return memory_parts(build(network, scenario)).saved.value(); }

// What one more layer keeps.
std::string per_layer(Network network, const Scenario& scenario) {
  network.layers.resize(2);
  const u128 two = saved_value(network, scenario);
  network.layers.push_back(network.layers.back());
  return to_string(saved_value(network, scenario) - two);
}
std::string text(u128 value) { return to_string(value); }

}  // namespace

TEST_CASE("activations of a layer: checks 1 to 3", "[memory]") {
  // Check 2: GPT-2 dims keep 16 h elements per row and layer: x, norm, q, k, v (3), attention, mid, norm, MLP 4 + 4. bf16: 16 * 768 * 2 = 24,576 bytes; two
  // LayerNorms of 2 f32 statistics (16) and 12 log-sum-exps (48) make 24,640.
  CHECK(per_layer(builtin_network("gpt2-124m"), train(64)) == text(u128{64} * 24'640));
  // Check 3: Llama 3 8B keeps 69,632 elements = 139,264 bytes, with statistics 139,400 per token and layer: h 4096 five times (x, norm, attention, mid, norm),
  // q + k + v 6144, gate, up and product 3 * 14,336; 2 RMS statistics and 32 log-sum-exps of 4 bytes.
  const Network llama = builtin_network("llama-3-8b");
  CHECK(5 * 4096 + 6144 + 3 * 14'336 == 69'632);
  CHECK(per_layer(llama, train(2048)) == text(u128{2048} * 139'400));
  // The whole model: 9,135,718,400 bytes of layers, and the head's input, normed input, statistic and logits: 2048 (2 * 8192 + 4 + 2 * 128,256).
  CHECK(saved(llama, train(2048)) == text(u128{9'135'718'400} + 2048 * (2 * 8192 + 4 + 2 * 128'256)));
  // Check 1: 34 S B h + 5 n S^2 B bytes with two dropout masks (1 byte per element of h each) and an unfused square attention (probabilities and their
  // dropout, 2 bytes each, and a mask of 1). Without dropout and with fused attention 32 S B h of that remain, here beside the statistics.
  Network plain = builtin_network("gpt2-124m");
  Scenario batch = train(128);
  batch.batch = 3;
  const u128 rows = 128 * 3, h = 768;
  CHECK(per_layer(plain, batch) == text(34 * rows * h - 2 * rows * h + rows * (16 + 48)));
}

TEST_CASE("recomputation keeps less", "[memory]") {
  const Network gpt2 = builtin_network("gpt2-124m");
  CHECK(per_layer(gpt2, train(64, Recompute::kFull)) == text(u128{64} * 768 * 2));  // the block's input
  CHECK(per_layer(gpt2, train(64, Recompute::kSelective)) == text(u128{64} * (24'640 - 768 * 2 - 48)));  // all but the core's output and log-sum-exps
  Scenario micro = train(64);
  micro.grad_accumulation = 4;
  CHECK(saved(gpt2, micro) == saved(gpt2, train(64)));  // micro-steps follow one another in the same memory
  CHECK(saved(builtin_network("llama-3-8b"), train(2048, Recompute::kFull)) == text(u128{2048} * (32 * 8192 + 2 * 8192 + 4 + 2 * 128'256)));
}

TEST_CASE("a routed block without an auxiliary loss keeps its selected rows alone", "[memory]") {
  // 8 tokens of width 32, 2 selected, f32. Per selected row: x, norm, q, k, v (3), attention, mid, norm: 8 x 32, MLP 64 + 64, F 32: 416 elements, two RMS statistics and 4
  // log-sum-exps: 1,688 bytes. Scores 8 x 4, indices and positions 2 x 2 x 4 bytes. With the loss the scores' gradients (8 x 4) and the
  // block's output too, 8 x 32 x 4: it holds the rows that were not selected.
  Network net = dense_twin(builtin_network("mod-tiny"));
  net.width = 32;
  BlockConfig& kind = net.kinds[0];
  kind.attention->heads = kind.attention->kv_heads = 4;
  kind.attention->head_dim = kind.attention->rope_dim = 8;
  kind.mlp->width = 64;
  kind.route.emplace();
  kind.route->slots = 2;
  Scenario s = train(8);
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kF32;
  kind.route->aux_lambda = 0;
  CHECK(per_layer(net, s) == text(2 * 1688 + 32 + 16));
  kind.route->aux_lambda = 0.01;
  CHECK(per_layer(net, s) == text(2 * 1688 + 32 + 16 + 32 + 8 * 32 * 4));
}

TEST_CASE("experts keep their assignments at the expert's width", "[memory]") {
  Network mixtral = builtin_network("mixtral-8x7b");
  const std::string two = per_layer(mixtral, train(32));
  // Per token: x, norm, attention, mid, norm 5 * 4096 and q + k + v 6144 elements; statistics 4 + 4 + 32 * 4; router logits 8 * 4; per assignment the row
  // (4096), gate, up and product (3 * 14,336), the expert's output (4096), its token and its weight (4 + 4). Once per layer 9 offsets of 4 bytes.
  const u128 token = 2 * (5 * 4096 + 6144) + 136 + 32, assignment = 2 * (2 * 4096 + 3 * 14'336) + 8;
  CHECK(two == text(32 * (token + 2 * assignment) + 36));
  for (BlockConfig& kind : mixtral.kinds) kind.mlp->moe->picks = 4;
  CHECK(per_layer(mixtral, train(32)) == text(32 * (token + 4 * assignment) + 36));
}

TEST_CASE("a routed block keeps its rows, indices, scores and output", "[memory]") {
  Network dense = builtin_network("gpt2-124m");
  dense.layers.resize(1);
  Network pair = builtin_network("gpt2-124m");
  pair.layers.resize(2);
  Route route;
  route.capacity = Fraction{1, 8};
  // C = 256 of 2048: everything a full block keeps (24,640 per row, the gathered rows being its input) and its output F (1536), an index and a position (8);
  // per token of the sequence the score and its gradient (8).
  const u128 routed = saved_value(with_routes(pair, 2, route), train(2048)) - saved_value(dense, train(2048));
  CHECK(text(routed) == text(u128{256} * (24'640 + 1536 + 8) + u128{2048} * 8));
  CHECK(to_double(routed) < 0.15 * 2048 * 24'640);
}

TEST_CASE("weights that are not narrower than f32 are their own master copy", "[memory]") {
  // Per parameter: f32 moments, 8 bytes, and 4 of a master copy of bf16 weights. AdamW reads the gradient, the values and the moments, writes values, moments and a bf16 copy:
  // f64 8 + 8 + 8 and 8 + 8, f32 4 + 4 + 8 and 4 + 8, bf16 2 + 4 + 8 and 4 + 8 + 2.
  const Network gpt2 = builtin_network("gpt2-124m");
  struct Row {
    DType type;
    u128 states, read, written;
  };
  for (const Row& row : {Row{DType::kF64, 8, 24, 16}, Row{DType::kF32, 8, 16, 12}, Row{DType::kBF16, 12, 14, 14}}) {
    Scenario s = train(16);
    s.dtype = s.kv_dtype = s.grad_dtype = row.type;
    const Workload w = build(gpt2, s);
    CHECK(memory_parts(w).optimizer.str() == text(u128{124'439'808} * row.states));
    Cost update;
    for (size_t i = 0; i < w.ops().size(); ++i)
      if (std::holds_alternative<AdamW>(w.ops()[i].spec)) update += declared_cost(w.ops()[i]) * static_cast<u128>(w.uses(static_cast<int>(i)));
    CHECK(update.read.str() == text(u128{124'439'808} * row.read));
    CHECK(update.written.str() == text(u128{124'439'808} * row.written));
  }
}

TEST_CASE("a prediction module has a cache", "[memory]") {
  // Two layers and a module of 2 key heads of size 6, f32: 2 x 2 x 6 x 4 = 96 bytes per token each; 8 tokens in three lists. Beside them stand the lists' lengths.
  Network net = parse_network_ini("[network]\nwidth = 16\nvocab = 10\nlayers = 2\nheads = 4\nkv_heads = 2\nhead_dim = 6\nmlp = 8\n", "t.ini");
  Scenario s;
  s.phase = Phase::kDecode;
  s.context = 8;
  for (const auto& [modules, bytes] : {std::pair{0, 1536}, {1, 2304}, {2, 3072}}) {
    net.mtp = modules;
    CHECK(kv_bytes(net, 8, 1, DType::kF32).str() == std::to_string(bytes));
    CHECK(kv_bytes_per_token(net, DType::kF32).str() == std::to_string(bytes / 8));
    CHECK(expected_kv_bytes_per_token(net, DType::kF32, 8) == bytes / 8);
    CHECK(memory_parts(build(net, s)).kv_cache.str() == std::to_string(bytes + 4 * (2 + modules)));
  }
}

TEST_CASE("weights, gradients, optimizer state and caches", "[memory]") {
  const Network gpt2 = builtin_network("gpt2-124m");
  const MemoryParts bf16 = memory_parts(build(gpt2, train(16)));
  CHECK(bf16.weights.str() == text(u128{124'439'808} * 2));
  CHECK(bf16.gradients.str() == text(u128{124'439'808} * 2));
  CHECK(bf16.optimizer.str() == text(u128{124'439'808} * 12));  // two moments and the f32 master copy
  Scenario f32 = train(16);
  f32.dtype = f32.kv_dtype = f32.grad_dtype = DType::kF32;
  CHECK(memory_parts(build(gpt2, f32)).optimizer.str() == text(u128{124'439'808} * 8));
  // Adapters alone have gradients and state: rank 16 on q and v of Llama 3 8B, 6,815,744 parameters.
  Network lora = builtin_network("llama-3-8b");
  lora.lora = Lora{16, {"q", "v"}};
  const MemoryParts adapters = memory_parts(build(lora, train(16)));
  CHECK(adapters.gradients.str() == text(u128{6'815'744} * 2));
  CHECK(adapters.optimizer.str() == text(u128{6'815'744} * 12));
  // Caches (by key/value heads, keys and values): Llama 2 7B 4096 tokens 2 GiB, Llama 3 8B 8192 tokens 1 GiB.
  CHECK(kv_bytes(builtin_network("llama-2-7b"), 4096, 1, DType::kBF16).str() == "2147483648");
  CHECK(kv_bytes(builtin_network("llama-3-8b"), 8192, 1, DType::kBF16).str() == "1073741824");
  Scenario decode = train(1);
  decode.phase = Phase::kDecode;
  decode.context = 4096;
  decode.logits = LogitsKind::kLast;
  const MemoryParts step = memory_parts(build(builtin_network("llama-2-7b"), decode));
  CHECK(text(step.kv_cache.value()) == text(u128{2'147'483'648} + 32 * 4));  // and a length per sequence and layer
  CHECK(step.saved.str() == "0");
  // Latent attention: rows of 512 + 64, or keys and values of 128 heads (192 + 128 each).
  const Network v3 = builtin_network("deepseek-v3");
  CHECK(kv_bytes(v3, 1, 1, DType::kBF16).str() == "70272");
  CHECK(kv_bytes(v3, 1, 1, DType::kBF16, 1, MlaStrategy::kNaive).str() == "4997120");
}

TEST_CASE("micro-steps after the second need no more memory", "[memory]") {
  for (const char* name : {"mod-tiny", "mode-integrated", "mod-recursion", "mod-60m"}) {
    CAPTURE(name);
    const Network network = builtin_network(name);
    Scenario s = train(32);
    for (std::int64_t micro : {1, 2, 3, 5}) {
      s.grad_accumulation = micro;
      const Workload list = build(network, s);
      CHECK(text(planned_peak(network, s, list)) == text(static_cast<u128>(plan_memory(list).arena)));
    }
  }
}

TEST_CASE("a cache of selected tokens holds the share that is taken", "[memory]") {
  // mod-60m: five full and four routed blocks, 2 x 9 x 64 x 4 = 4608 bytes per row. 1000 tokens: 125 rows at the declared 1/8; half and all of them where --participation says so.
  const Network net = builtin_network("mod-60m");
  Scenario s;
  s.phase = Phase::kDecode;
  s.context = 1000;
  const auto bytes = [&] { return kv_bytes(net, 1000, 1, DType::kF32, 1, MlaStrategy::kAbsorbed, share_taken(s)).str(); };
  CHECK(bytes() == text(u128{4608} * (5 * 1000 + 4 * 125)));
  for (const auto& [share, rows] : {std::pair{Fraction{1, 2}, 500}, {Fraction{1, 1}, 1000}, {Fraction{0, 1}, 0}}) {
    s.participation = share;
    CHECK(bytes() == text(u128{4608} * (5 * 1000 + 4 * static_cast<u128>(rows))));
  }
  // Top-k takes its slots whatever the participation of a threshold would be; a threshold in prefill does not.
  s.phase = Phase::kPrefill, s.participation = Fraction{1, 2};
  CHECK(bytes() == text(u128{4608} * (5 * 1000 + 4 * 125)));
  s.routing = RoutingRule::kThreshold;
  CHECK(bytes() == text(u128{4608} * (5 * 1000 + 4 * 500)));
}

TEST_CASE("adapters of prediction modules are parameters", "[memory]") {
  // Width 8, one layer of two heads of 4, MLP 16, one module: q of rank 2 is 2 (8 + 8) = 32 parameters, in the layer and in the module.
  Network net = parse_network_ini("[network]\nwidth = 8\nvocab = 10\nlayers = 1\nheads = 2\nmlp = 16\nmtp = 1\n[lora]\nrank = 2\ntargets = q\n", "t.ini");
  Network plain = net;
  plain.lora.reset();
  CHECK(count_parameters(net).total.value() - count_parameters(plain).total.value() == 2 * 32);
  CHECK(memory_parts(build(net, train(4))).weights.str() == text(count_parameters(net).total.value() * 2));
}

TEST_CASE("without a gate the block's output is not kept", "[memory]") {
  // 10 selected rows of width 160 in bf16, 3200 bytes, and the 40 scores in f32: no backward op reads either.
  Network net = parse_network_ini("[network]\nwidth = 160\nvocab = 10\nlayers = 1\nheads = 2\nmlp = 320\n[route]\nevery = 1\ncapacity = 1/4\naux_lambda = 0\n", "t.ini");
  const u128 gated = saved_value(net, train(40));
  net.kinds[0].route->gate.kind = GateKind::kNone;
  CHECK(text(gated - saved_value(net, train(40))) == text(u128{3200} + 40 * 4));
}
