// The op list against integers worked out by hand: every total is a sum over the list that build() makes.
#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/network_ini.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

constexpr std::int64_t kLength = 2048;

Scenario prefill(bool full = false, LogitsKind logits = LogitsKind::kAll) {
  Scenario s;
  s.phase = Phase::kPrefill;
  s.length = kLength;
  s.logits = logits;
  s.full_mask = full;
  s.dtype = s.kv_dtype = s.grad_dtype = DType::kBF16;
  return s;
}
Scenario train(bool full = false) {
  Scenario s = prefill(full);
  s.phase = Phase::kTrain;
  return s;
}
Scenario decode(std::int64_t context, std::int64_t batch = 1) {
  Scenario s = prefill();
  s.phase = Phase::kDecode;
  s.context = context;
  s.batch = batch;
  return s;
}

std::string flops(const Network& network, const Scenario& scenario) { return build(network, scenario).total().flops.str(); }
std::string of(u128 value) { return to_string(value); }
u128 flops_of(const Workload& w, std::string_view leaf) {
  u128 sum = 0;
  for (size_t i = 0; i < w.ops().size(); ++i)
    if (w.ops()[i].leaf == leaf) sum += declared_cost(w.ops()[i].spec).flops.value() * static_cast<u128>(w.uses(static_cast<int>(i)));
  return sum;
}
u128 elements(const Workload& w, ElementKind kind) { return w.total()[kind].value(); }

Network model(const char* name) { return builtin_network(name); }

struct Oracle {
  const char* name;
  std::int64_t layers;
  u128 projections, core_per_pair;  // per layer; projections per token
  u128 matmuls;                     // per token, all but the core
  u128 full, causal, last;          // per sequence
  u128 recomputed;                  // training with full recomputation, per token
  u128 decode;                      // one token, 4096 keys
  u128 kv_bytes;                    // per token, bf16
};
constexpr Oracle kOracles[] = {
    {"gpt2-124m", 12, 4'718'592, 3'072, 247'064'064, 660'606'025'728, 583'334'363'136, 425'316'705'792, 1'062'130'176, 398'059'008, 36'864},
    {"llama-2-7b", 32, 134'217'728, 16'384, 13'214'154'752, 29'261'612'187'648, 28'162'637'430'784, 27'626'028'662'784, 54'743'007'232, 15'361'638'400, 524'288},
    {"llama-3-8b", 32, 83'886'080, 16'384, 15'009'316'864, 32'938'104'193'024, 31'839'129'436'160, 29'688'401'494'016, 61'135'126'528, 17'156'800'512, 131'072},
    {"mixtral-8x7b", 32, 83'886'080, 16'384, 25'497'174'016, 54'417'235'640'320, 53'318'260'883'456, 52'781'652'115'456, 103'875'084'288, 27'644'657'664, 131'072},
    {"deepseek-v3", 61, 374'210'560, 81'920, 73'249'193'984, 170'973'789'683'712, 160'499'186'532'352, 156'705'362'542'592, 311'621'615'616, 93'717'397'504, 4'997'120},
};

}  // namespace

TEST_CASE("the five reference models: forward, training, recomputation, decode", "[counts]") {
  for (const Oracle& o : kOracles) {
    CAPTURE(o.name);
    const Network network = model(o.name);
    const Workload causal = build(network, prefill());
    CHECK(causal.total().flops.str() == of(o.causal));
    CHECK(causal.total(Part::kProjection).flops.str() == of(o.projections * static_cast<u128>(o.layers) * kLength));
    CHECK(causal.total(Part::kCore).flops.str() == of(o.core_per_pair * static_cast<u128>(o.layers) * 2'098'176));
    CHECK(of(causal.total().flops.value() - causal.total(Part::kCore).flops.value()) == of(o.matmuls * kLength));
    CHECK(flops(network, prefill(true)) == of(o.full));
    CHECK(flops(network, prefill(false, LogitsKind::kLast)) == of(o.last));
    CHECK(flops(network, train(true)) == of(3 * o.full));
    CHECK(flops(network, train()) == of(3 * o.causal));
    Scenario recompute = train();
    recompute.recompute = Recompute::kFull;
    const Workload again = build(network, recompute);
    CHECK(again.total().flops.str() == of(o.recomputed * kLength));
    CHECK(of(again.total(Pass::kForward).flops.value() + again.total(Pass::kBackward).flops.value()) == of(3 * o.causal));  // model FLOPs do not change
    CHECK(flops(network, decode(4096)) == of(o.decode));
    // Bytes that one new token writes to the cache.
    u128 written = 0;
    const Workload step = build(network, decode(4096));
    written = step.total(Part::kKvCache).written.value();
    CHECK(of(written) == of(o.kv_bytes));
  }
}

TEST_CASE("element columns per token", "[counts]") {
  struct Row {
    const char* name;
    u128 norm, softmax_sequence, activation, residual, rope, router;
  };
  const Row rows[] = {
      {"gpt2-124m", 19'200, 147'528 * 2048ull, 36'864, 18'432, 0, 0},
      {"llama-2-7b", 266'240, 1'049'088 * 2048ull, 352'256, 262'144, 262'144, 0},
      {"llama-3-8b", 266'240, 1'049'088 * 2048ull, 458'752, 262'144, 163'840, 0},
      {"mixtral-8x7b", 266'240, 1'049'088 * 2048ull, 917'504, 262'144, 163'840, 256},
      {"deepseek-v3", 1'006'592, 7'999'296 * 2048ull, 1'124'352, 874'496, 503'616, 14'848},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Workload w = build(model(row.name), prefill());
    CHECK(of(elements(w, ElementKind::kNorm)) == of(row.norm * kLength));
    CHECK(of(elements(w, ElementKind::kSoftmax)) == of(row.softmax_sequence));
    CHECK(of(elements(w, ElementKind::kActivation)) == of(row.activation * kLength));
    CHECK(of(elements(w, ElementKind::kResidual)) == of(row.residual * kLength));
    CHECK(of(elements(w, ElementKind::kRope)) == of(row.rope * kLength));
    CHECK(of(elements(w, ElementKind::kRouterProbability)) == of(row.router * kLength));
    const bool gated = std::string(row.name) != "gpt2-124m";
    CHECK(of(elements(w, ElementKind::kGateProduct)) == of(gated ? row.activation * kLength : 0));
  }
}

TEST_CASE("mixture of experts: router and experts per layer", "[counts]") {
  const Workload mixtral = build(model("mixtral-8x7b"), prefill());
  CHECK(of(mixtral.total(Part::kRouter).flops.value()) == of(u128{65'536} * 32 * kLength));
  CHECK(of(mixtral.total(Part::kExperts).flops.value()) == of(u128{704'643'072} * 32 * kLength));  // 2 experts of 352,321,536
  const Workload v3 = build(model("deepseek-v3"), prefill());
  CHECK(of(v3.total(Part::kRouter).flops.value()) == of(u128{3'670'016} * 58 * kLength));
  CHECK(of(v3.total(Part::kExperts).flops.value()) == of(u128{9} * 88'080'384 * 58 * kLength));  // 8 routed and 1 shared
  CHECK(of(v3.total(Part::kFfn).flops.value()) == of(u128{792'723'456} * 3 * kLength));
  // Capacity: declared A = E floor(cf T k / E) = 8 * floor(1.25 * 2048 * 2 / 8) = 5120 assignments of 4096.
  Network capped = model("mixtral-8x7b");
  for (BlockConfig& kind : capped.kinds) kind.mlp->moe->capacity = Fraction{5, 4};
  const Workload declared = build(capped, prefill());
  CHECK(of(declared.total(Part::kExperts).flops.value()) == of(u128{3} * 2 * 5120 * 4096 * 14336 * 32));
  // Expected rows: no more than the assignments, and nearly all of them at this capacity.
  const double share = declared.expected_total().flops / build(model("mixtral-8x7b"), prefill()).expected_total().flops;
  CHECK(share < 1.0);
  CHECK(share > 0.999);
}

TEST_CASE("latent attention strategies at decode", "[counts]") {
  const Network v3 = model("deepseek-v3");
  Scenario s = decode(4096);
  s.mla = MlaStrategy::kAbsorbed;
  const Workload absorbed = build(v3, s);
  CHECK(absorbed.total().flops.str() == "142841085952");
  CHECK(absorbed.total(Part::kProjection).flops.str() == of(u128{374'210'560} * 61));
  CHECK(absorbed.total(Part::kCore).flops.str() == of(u128{278'528} * 4096 * 61));
  CHECK(absorbed.total(Part::kKvCache).written.str() == "70272");
  s.mla = MlaStrategy::kDecompress;
  const Workload decompress = build(v3, s);
  CHECK(of(flops_of(decompress, "attn/decompress")) == of(u128{33'554'432} * 4096 * 61));  // the new token's share is its projection
  CHECK(decompress.total().flops.str() == of(u128{93'717'397'504} + u128{33'554'432} * 4095 * 61));
  CHECK(decompress.total(Part::kKvCache).written.str() == "70272");
  s = train();
  s.mla = MlaStrategy::kAbsorbed;
  CHECK_THROWS_AS(build(v3, s), Error);
  // Cached reads of the core, one layer: N n (d_qk + d_v) naive, N (c + d_r) absorbed, 2 bytes, besides the queries.
  for (const auto& [strategy, per_key, query] : {std::tuple{MlaStrategy::kNaive, 128 * 320, 128 * 192}, std::tuple{MlaStrategy::kAbsorbed, 576, 128 * 576}}) {
    Scenario d = decode(4096);
    d.mla = strategy;
    const Workload w = build(v3, d);
    for (const Op& op : w.ops())
      if (const auto* core = std::get_if<Attention>(&op.spec)) CHECK(declared_cost(*core).read.str() == of(2 * (u128{4096} * static_cast<u128>(per_key) + static_cast<u128>(query))));
  }
}

TEST_CASE("decompression expands the keys in reach of a window or chunk", "[counts]") {
  // Width 64, 4 heads, c = 16, d_n = d_v = 8. Per expanded row: 2 c n (d_n + d_v) = 2 x 16 x 4 x 16 = 2048 FLOP; the row of all heads has
  // n (d_n + d_r + d_v) = 4 x 24 = 96 elements.
  const auto near = [](const std::string& span, const Scenario& s) {
    const Network n = parse_network_ini("[network]\nwidth = 64\nvocab = 100\nlayers = 1\nheads = 4\nmlp = 64\nrope_dim = 8\n" + span + "[mla]\nkv_rank = 16\nnope_dim = 8\nv_dim = 8\n", "near.ini");
    const Workload w = build(n, s);
    std::pair<u128, std::int64_t> found{flops_of(w, "attn/decompress"), -1};
    for (const Op& op : w.ops())
      if (op.leaf == "attn/heads") found.second = std::get<LatentHeads>(op.spec).rows.count;
    return found;
  };
  using Found = std::pair<u128, std::int64_t>;
  Scenario s = decode(1024);
  s.mla = MlaStrategy::kDecompress;
  CHECK(near("", s) == Found{2'097'152, 1024});
  CHECK(near("window = 16\n", s) == Found{32'768, 16});
  CHECK(near("window = 2000\n", s) == Found{2'097'152, 1024});
  CHECK(near("chunk = 48\n", s) == Found{32'768, 16});  // token 1023 of chunks of 48: 1023 mod 48 = 15 before it in its chunk
  s.batch = 3;
  CHECK(near("window = 16\n", s) == Found{98'304, 48});
  s = prefill();
  s.mla = MlaStrategy::kDecompress;
  s.length = 5, s.past = 33;
  CHECK(near("", s) == Found{77'824, 38});
  CHECK(near("window = 16\n", s) == Found{40'960, 20});  // the first of the 5 new tokens sees 15 old ones
  CHECK(near("chunk = 8\n", s) == Found{12'288, 6});     // token 33 begins behind 32 = 4 x 8: one old token in its chunk
  s.full_mask = true;
  CHECK(near("window = 16\n", s) == Found{77'824, 38});
}

TEST_CASE("low-rank adapters and frozen parts", "[counts]") {
  Network lora = model("llama-3-8b");
  lora.lora = Lora{16, {"q", "v"}};
  const Workload w = build(lora, train(true));
  CHECK(w.total(Pass::kForward).flops.str() == of(u128{16'096'690'176} * kLength));
  CHECK(w.total(Part::kAdapter).flops.value() / kLength == 3 * u128{13'631'488} - 262'144);
  CHECK(w.total().flops.str() == of(u128{33'230'159'872} * kLength));  // layer 0 needs no input gradients
  // Without that rule: W + core + A forward, W + 2 core + 2A backward = 33,280,753,664; the difference is layer 0's q, k, v and adapter dX.
  CHECK(of(w.total().flops.value() / kLength + 50'331'648 + 262'144) == "33280753664");
  Network frozen = model("llama-3-8b");
  frozen.freeze_embedding = true;
  CHECK(flops(frozen, train(true)) == of(u128{48'198'844'416} * kLength));
}

TEST_CASE("a frozen token table leaves positions and the embedding's norm to be trained", "[counts]") {
  // 100 x 64 in the table, 32 x 64 positions, 64 gains per norm. With a rotary embedding the first block's norm has no gradient either, nor have q, k, v an input gradient:
  // 8 rows x 2 x 64 x 192 = 196,608 FLOP.
  const auto trained = [](const std::string& more, std::string* flops) {
    const Network net = parse_network_ini("[network]\nwidth = 64\nvocab = 100\nlayers = 2\nheads = 4\nmlp = 96\ntied = no\n" + more, "t.ini");
    Scenario s = train();
    s.length = 8;
    const Workload w = build(net, s);
    if (flops) *flops = w.total().flops.str();
    CHECK(count_totals(net, s).total == w.total());
    std::int64_t sum = 0;
    for (size_t i = 0; i < w.ops().size(); ++i)
      if (const auto* update = std::get_if<AdamW>(&w.ops()[i].spec)) sum += update->params * w.uses(static_cast<int>(i));
    return sum;
  };
  for (const std::string more : {"positions = learned\nmax_length = 32\n", "embedding_norm = yes\n", "positions = learned\nmax_length = 32\nembedding_norm = yes\n"}) {
    CAPTURE(more);
    std::string all, frozen;
    CHECK(trained(more, &all) - trained(more + "freeze_embedding = yes\n", &frozen) == 6400);
    CHECK(frozen == all);
  }
  std::string all, frozen;
  CHECK(trained("", &all) - trained("freeze_embedding = yes\n", &frozen) == 6400 + 64);
  CHECK(std::stoll(all) - std::stoll(frozen) == 196'608);
}

TEST_CASE("selective recomputation and fused attention backward", "[counts]") {
  const Network network = model("llama-3-8b");
  Scenario s = train();
  s.recompute = Recompute::kSelective;
  CHECK(flops(network, s) == of(u128{47'176'482'816} * kLength));
  const Cost fused = build(network, train()).total();
  CHECK(of(fused.flops.value() + fused.flops_recompute.value()) == of(u128{46'907'916'288} * kLength));
  // Latent attention: a fused backward makes 212,992 per pair of the model's 163,840.
  const Workload v3 = build(model("deepseek-v3"), train());
  for (const Op& op : v3.ops()) {
    const auto* core = std::get_if<AttentionBackward>(&op.spec);
    if (!core) continue;
    const Cost cost = declared_cost(op.spec);
    CHECK(of(cost.flops.value() / core->forward.pairs) == "163840");
    CHECK(of((cost.flops.value() + cost.flops_recompute.value()) / core->forward.pairs) == "212992");
  }
}

TEST_CASE("routed depth", "[counts]") {
  Route route;
  route.capacity = Fraction{1, 8};
  const Network gpt2 = with_routes(model("gpt2-124m"), 2, route);
  const Network llama = with_routes(model("llama-3-8b"), 2, route);
  CHECK(flops(gpt2, prefill(true)) == "432320544768");
  CHECK(flops(gpt2, prefill()) == "393083092992");
  CHECK(flops(llama, prefill(true)) == "19349096103936");
  CHECK(flops(llama, prefill()) == "18791052345344");
  CHECK(flops(gpt2, train()) == "1179249278976");
  CHECK(flops(llama, train()) == "56373157036032");
  route.aux_lambda = 0;
  CHECK(flops(with_routes(model("gpt2-124m"), 2, route), train()) == "1179216248832");
  CHECK(flops(with_routes(model("llama-3-8b"), 2, route), train()) == "56372687273984");
  route.aux_lambda = 0.01;
  route.aux_detached = true;
  CHECK(flops(with_routes(model("gpt2-124m"), 2, route), train()) == "1179232763904");
  CHECK(flops(with_routes(model("llama-3-8b"), 2, route), train()) == "56372922155008");
}

TEST_CASE("an MLP router that learns from the language loss alone runs backward on the selected rows", "[counts]") {
  // Width 16, router 16 -> 8 -> 1, two sequences of two tokens. One slot each: R = 2 rows, each 2 x (16 x 8 + 8) = 272 FLOP in dW and in dX; all four with the auxiliary loss.
  const auto backward = [](const char* route) {
    const Network net = parse_network_ini(std::string("[network]\nwidth = 16\nvocab = 10\nlayers = 2\nheads = 2\nmlp = 8\n[route]\nat = 1\nrouter = mlp\nrouter_hidden = 8\ngate = sigmoid\n") + route, "t.ini");
    Scenario s = train();
    s.batch = s.length = 2;
    const Workload w = build(net, s);
    CHECK(count_totals(net, s).total == w.total());
    u128 sum = 0;
    for (size_t i = 0; i < w.ops().size(); ++i)
      if (const Op& op = w.ops()[i]; op.part == Part::kRouter && op.pass == Pass::kBackward) sum += declared_cost(op.spec).flops.value() * static_cast<u128>(w.uses(static_cast<int>(i)));
    return of(sum);
  };
  CHECK(backward("slots = 1\naux_lambda = 0\n") == "1088");
  CHECK(backward("slots = 0\naux_lambda = 0\n") == "0");
  CHECK(backward("slots = 2\naux_lambda = 0\n") == "2176");
  CHECK(backward("slots = 1\n") == "2176");
}

TEST_CASE("expected expert weights of a decode step", "[counts]") {
  const Workload step = build(model("mixtral-8x7b"), decode(4096, 4));
  double experts = 0, declared = 0;
  for (size_t i = 0; i < step.ops().size(); ++i) {
    const auto* gemm = std::get_if<Gemm>(&step.ops()[i].spec);
    if (!gemm || gemm->experts == 1) continue;
    const double uses = static_cast<double>(step.uses(static_cast<int>(i)));
    const double rows = 4 * 2 * 2.0 * static_cast<double>(gemm->in);  // bytes of the assignments' inputs
    experts += uses * (expected_cost(*gemm).read - rows);
    declared += uses * (declared_cost(*gemm).read.to_double() - rows);
  }
  CHECK(experts == Approx(61'656'268'800.0).epsilon(1e-12));
  CHECK(of(static_cast<u128>(declared)) == of(u128{8} * 3 * 2 * 4096 * 14336 * 32));  // at most min(T k, E) = 8
  for (const auto& [e, k, t, value] : {std::tuple{8, 2, 1, 2.0}, std::tuple{8, 2, 4, 5.46875}, std::tuple{8, 2, 16, 7.919819}, std::tuple{128, 8, 16, 82.42251},
                                       std::tuple{256, 8, 32, 163.31385}, std::tuple{256, 8, 128, 251.60115}})
    CHECK(expected_distinct_experts(e, k, t) == Approx(value).epsilon(1e-6));
}

TEST_CASE("whole runs pass 64 bits", "[counts]") {
  // 235,106,230,272 per token x 10^13 tokens = 2.351e24.
  const Flops sequence = build(model("deepseek-v3"), train()).total().flops;
  const u128 run = checked_mul(sequence.value() / kLength, parse_u128("10000000000000"));
  CHECK(of(run) == "2351062302720000000000000");
}
