#include "tools/check_cases.hpp"

#include <fmt/format.h>

namespace fathom {
namespace {

// Width 24, two blocks, grouped queries: small enough that the naive reference runs a list in milliseconds, with odd sizes that no tile divides.
Network base() {
  Network n;
  n.name = "check";
  n.width = 24;
  n.vocab = 37;
  n.max_length = 80;
  BlockConfig block;
  AttentionConfig a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = 8, a.rope_dim = 8;
  MlpConfig m;
  m.width = 40;
  block.attention = a;
  block.mlp = m;
  n.kinds = {block};
  n.layers = {0, 0};
  return n;
}

class Cases {
 public:
  void add(const std::string& name, const Network& network, Scenario scenario, CheckScores scores = CheckScores::kComputed) {
    all_.push_back({fmt::format("{}, {} {} x {}", name, phase_name(scenario.phase), scenario.batch, scenario.phase == Phase::kDecode ? scenario.context : scenario.length), network, scenario, scores});
  }
  // Training, prefill and decode at one size each.
  void phases(const std::string& name, const Network& network) {
    add(name, network, small_scenario(Phase::kTrain, 2, 9));
    add(name, network, small_scenario(Phase::kPrefill, 2, 11));
    add(name, network, small_scenario(Phase::kDecode, 3, 10));
  }
  std::vector<CheckCase> take() { return std::move(all_); }

 private:
  std::vector<CheckCase> all_;
};

template <class Change>
Network changed(Network n, const Change& change) {
  for (BlockConfig& kind : n.kinds) change(kind);
  return n;
}

template <class Change>
Network routed(const Change& change, Network n = base()) {
  Route route;
  route.capacity = Fraction{1, 2};
  change(route);
  return with_routes(n, 2, route);
}

void dense(Cases& cases) {
  for (const std::int64_t length : {1, 7, 31, 32, 33}) {
    cases.add("dense", base(), small_scenario(Phase::kTrain, 1, length));
    cases.add("dense", base(), small_scenario(Phase::kPrefill, 1, length));
    cases.add("dense", base(), small_scenario(Phase::kDecode, length, 12));
  }
  cases.add("dense, one key", base(), small_scenario(Phase::kDecode, 3, 1));
  Network n = base();
  n.norm = NormKind::kLayer, n.positions = PositionKind::kLearned;
  cases.phases("layer norms, biases, learned positions", changed(n, [](BlockConfig& b) { b.attention->rope_dim = 0, b.attention->qkv_bias = b.attention->out_bias = b.mlp->bias = true; }));
  n = base();
  n.norm = NormKind::kLayer, n.norm_bias = n.norm_gain = false;
  cases.phases("layer norms without parameters", n);
  n = base();
  n.norm_gain = false, n.embedding_norm = true;
  cases.phases("norms without a gain, embedding norm", n);
  n = base();
  n.tied = false, n.head_bias = true, n.padded_vocab = 48;
  cases.phases("untied head with a bias, padded vocabulary", n);
  for (const ActivationKind kind : {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSilu, ActivationKind::kRelu, ActivationKind::kRelu2})
    for (const bool gated : {false, true})
      cases.add(gated ? "gated activation" : "activation", changed(base(), [&](BlockConfig& b) { b.mlp->activation = kind, b.mlp->gated = gated; }), small_scenario(Phase::kTrain, 2, 7));
  cases.phases("parallel block", changed(base(), [](BlockConfig& b) { b.parallel = true, b.parallel_norms = 1; }));
  cases.phases("norms after", changed(base(), [](BlockConfig& b) { b.norms = 4; }));
  cases.phases("norms after only", changed(base(), [](BlockConfig& b) { b.post_norm_only = true; }));
  n = base();
  n.weights_of = {0, 0};
  cases.phases("shared weights", n);
  n = base();
  n.mtp = 1;
  cases.phases("prediction module", n);
  n = base();
  n.lora = Lora{3, {"q", "k", "v", "o", "up", "down"}};
  cases.phases("adapters of low rank", n);
  n = base();
  n.freeze_embedding = true;
  cases.add("frozen embedding", n, small_scenario(Phase::kTrain, 2, 9));
  n.positions = PositionKind::kLearned;
  n.max_length = 16;
  n.embedding_norm = true;
  for (BlockConfig& kind : n.kinds) kind.attention->rope_dim = 0;
  cases.add("frozen embedding, learned positions, embedding norm", n, small_scenario(Phase::kTrain, 2, 9));
  Scenario s = small_scenario(Phase::kTrain, 2, 9);
  for (const Recompute policy : {Recompute::kSelective, Recompute::kFull}) {
    s.recompute = policy, s.grad_accumulation = 2;
    cases.add("recomputation, two micro-steps", base(), s);
  }
  s = small_scenario(Phase::kPrefill, 3, 7);
  s.logits = LogitsKind::kLast;
  cases.add("last logits", base(), s);
}

void attention(Cases& cases) {
  const auto with = [](auto&& change) { return changed(base(), [&](BlockConfig& b) { change(*b.attention); }); };
  const auto chunked = [&](const std::string& name, const Network& network) {
    cases.phases(name, network);
    Scenario s = small_scenario(Phase::kPrefill, 2, 5);
    s.past = 6;
    cases.add(name + ", after cached keys", network, s);
  };
  chunked("grouped queries", base());
  chunked("window", with([](AttentionConfig& a) { a.window = 4; }));
  chunked("chunks", with([](AttentionConfig& a) { a.chunk = 4; }));
  chunked("sinks", with([](AttentionConfig& a) { a.sinks = true; }));
  cases.phases("one key head", with([](AttentionConfig& a) { a.kv_heads = 1; }));
  cases.phases("part of a head rotated", with([](AttentionConfig& a) { a.rope_dim = 4; }));
  for (const QkGain gain : {QkGain::kShared, QkGain::kPerHead, QkGain::kNone})
    cases.phases("query and key norms", with([&](AttentionConfig& a) { a.qk_norm = true, a.qk_gain = gain; }));
  cases.phases("query and key norms over the row", with([](AttentionConfig& a) { a.qk_norm_full = true; }));
  Scenario s = small_scenario(Phase::kTrain, 2, 9);
  s.full_mask = true;
  cases.add("full mask", base(), s);
  const auto latent = [&](std::int64_t query_rank) {
    return with([&](AttentionConfig& a) {
      a.kv_heads = a.heads;
      a.mla = Mla{query_rank, 6, 5, 4, 7};
      a.head_dim = 9, a.rope_dim = 4;
    });
  };
  chunked("latent attention", latent(0));
  chunked("latent attention, query rank", latent(5));
  for (const MlaStrategy strategy : {MlaStrategy::kAbsorbed, MlaStrategy::kDecompress})
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      s = small_scenario(phase, 3, 9);
      s.mla = strategy;
      cases.add(strategy == MlaStrategy::kAbsorbed ? "latent attention, absorbed" : "latent attention, decompressed", latent(5), s);
    }
  for (const bool window : {true, false}) {  // only the keys in reach are expanded
    const Network near = changed(latent(5), [&](BlockConfig& b) { (window ? b.attention->window : b.attention->chunk) = 4; });
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      s = small_scenario(phase, 3, phase == Phase::kDecode ? 11 : 5);
      s.mla = MlaStrategy::kDecompress;
      if (phase == Phase::kPrefill) s.past = 6;
      cases.add(window ? "latent attention, decompressed, window" : "latent attention, decompressed, chunks", near, s);
    }
  }
}

void mixture_of_depths(Cases& cases) {
  for (const Fraction& capacity : {Fraction{0, 1}, Fraction{1, 4}, Fraction{1, 1}}) {
    const Network network = routed([&](Route& r) { r.capacity = capacity; });
    for (const CheckScores scores : {CheckScores::kComputed, CheckScores::kEqual, CheckScores::kTied}) {
      cases.add("mod", network, small_scenario(Phase::kTrain, 2, 13), scores);
      cases.add("mod", network, small_scenario(Phase::kPrefill, 1, 33), scores);
    }
  }
  const Network half = routed([](Route&) {});
  for (const CheckScores scores : {CheckScores::kComputed, CheckScores::kNobody, CheckScores::kEveryone}) {
    Scenario s = small_scenario(Phase::kPrefill, 3, 11);
    s.routing = RoutingRule::kThreshold;
    cases.add("mod, threshold", half, s, scores);
    s.past = 5;
    cases.add("mod, threshold, after cached keys", half, s, scores);
    for (const std::int64_t batch : {1, 5, 33}) cases.add("mod, ragged caches", half, small_scenario(Phase::kDecode, batch, 12), scores);
  }
  Scenario s = small_scenario(Phase::kTrain, 3, 11);
  s.routing = RoutingRule::kRandom;
  cases.add("mod, random routing", half, s);
  for (const Gate& gate : {Gate{GateKind::kNone}, Gate{GateKind::kSigmoid}, Gate{GateKind::kScaledSigmoid, 0.1, 0}, Gate{GateKind::kTanh, 0.2, 1}})
    cases.phases("mod, gate", routed([&](Route& r) { r.gate = gate; }));
  for (const GateOn on : {GateOn::kWhole, GateOn::kMlp, GateOn::kAttention}) cases.phases("mod, gate on a part", routed([&](Route& r) { r.gate_on = on; }));
  for (const RoutedPart part : {RoutedPart::kAttention, RoutedPart::kMlp}) cases.phases("mod, one part routed", routed([&](Route& r) { r.part = part; }));
  cases.phases("mod, all tokens keep keys", routed([](Route& r) { r.kv = KvPolicy::kAll; }));
  cases.phases("mod, bypass adapter", routed([](Route& r) { r.adapter = 5; }));
  cases.phases("mod, MLP router", routed([](Route& r) { r.router = RouterKind::kMlp, r.router_hidden = 6, r.router_bias = true; }));
  cases.phases("mod, MLP router, no auxiliary loss", routed([](Route& r) { r.router = RouterKind::kMlp, r.router_hidden = 6, r.router_bias = true, r.aux_lambda = 0; }));
  cases.phases("mod, detached auxiliary loss", routed([](Route& r) { r.aux_detached = true; }));
  cases.phases("mod, no auxiliary loss", routed([](Route& r) { r.aux_lambda = 0; }));
  for (const std::int64_t hidden : {0, 6}) {
    const Network network = routed([&](Route& r) { r.predictor = Predictor{hidden}; });
    cases.add("mod, predictor", network, small_scenario(Phase::kTrain, 2, 9));
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      s = small_scenario(phase, 4, 9);
      s.routing = RoutingRule::kPredictor;
      cases.add("mod, predictor", network, s);
    }
  }
  cases.phases("mod, sinks", routed([](Route&) {}, changed(base(), [](BlockConfig& b) { b.attention->sinks = true; })));
  const Network windowed = routed([](Route&) {}, changed(base(), [](BlockConfig& b) { b.attention->window = 4; }));
  cases.phases("mod, window", windowed);
}

void experts(Cases& cases) {
  const auto with = [](std::int64_t count, std::int64_t picks, auto&& change) {
    return changed(base(), [&](BlockConfig& b) {
      MoeConfig e;
      e.experts = count, e.picks = picks, e.width = 20;
      change(e);
      b.mlp->moe = e;
      b.mlp->width = 0;
    });
  };
  const auto none = [](MoeConfig&) {};
  cases.phases("experts", with(4, 2, none));
  cases.phases("every expert", with(3, 3, none));
  cases.add("experts, many rows", with(2, 1, none), small_scenario(Phase::kTrain, 2, 33));
  cases.phases("experts, sigmoid, biases", with(4, 2, [](MoeConfig& e) { e.sigmoid = e.router_bias = e.correction_bias = true; }));
  cases.phases("experts, correction", with(4, 2, [](MoeConfig& e) { e.correction_bias = true; }));
  cases.phases("experts, capacity", with(3, 2, [](MoeConfig& e) { e.capacity = Fraction{1, 2}; }));
  cases.phases("shared experts", with(4, 2, [](MoeConfig& e) { e.shared = 2, e.shared_width = 12; }));
  cases.phases("shared experts, gate", with(4, 2, [](MoeConfig& e) { e.shared = 1, e.shared_width = 12, e.shared_gate = true; }));
  const auto noops = [](MoeConfig& e) { e.noops = 2, e.noop_share = Fraction{1, 3}; };
  cases.phases("integrated MoDE", with(4, 2, noops));
  const Network staged = routed([](Route&) {}, with(4, 2, none)), both = routed([](Route&) {}, with(4, 2, noops));
  cases.phases("staged MoDE", staged);
  cases.phases("staged and integrated MoDE", both);
  Scenario s = small_scenario(Phase::kPrefill, 3, 11);
  s.routing = RoutingRule::kThreshold;
  for (const CheckScores scores : {CheckScores::kComputed, CheckScores::kNobody}) cases.add("staged MoDE, threshold", staged, s, scores);
}

}  // namespace

std::string_view check_scores_name(CheckScores scores) {
  switch (scores) {
    case CheckScores::kComputed: return "own scores";
    case CheckScores::kEqual: return "equal scores";
    case CheckScores::kTied: return "tied scores";
    case CheckScores::kNobody: return "nobody selected";
    case CheckScores::kEveryone: return "everyone selected";
  }
  return {};
}

std::vector<CheckCase> check_cases() {
  Cases cases;
  dense(cases);
  attention(cases);
  mixture_of_depths(cases);
  experts(cases);
  return cases.take();
}

}  // namespace fathom
