// Small random networks and scenarios of every kind the op list can express, by seed.
#pragma once

#include <algorithm>
#include <random>

#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom::testing {

// How many seeds of `count` a build tries: all, and an eighth under the address sanitizer, which makes each ten times slower.
constexpr std::uint64_t seeds(std::uint64_t count) {
#ifdef __SANITIZE_ADDRESS__
  return count / 8;
#else
  return count;
#endif
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1)); }
  bool coin() { return (random_() & 1) != 0; }

 private:
  std::mt19937_64 random_;
};

// What stands beside the projections of plain attention.
inline void random_biases_and_norms(Dice& dice, AttentionConfig& a) {
  a.qkv_bias = dice.coin(), a.out_bias = dice.coin(), a.sinks = dice.coin();
  const std::int64_t norm = dice.between(0, 4);
  a.qk_norm_full = norm == 1;
  a.qk_norm = norm > 1;
  if (a.qk_norm) a.qk_gain = norm == 2 ? QkGain::kShared : norm == 3 ? QkGain::kPerHead : QkGain::kNone;
}

inline AttentionConfig random_attention(Dice& dice) {
  AttentionConfig a;
  a.kv_heads = dice.between(1, 3);
  a.heads = a.kv_heads * dice.between(1, 3);
  a.head_dim = 2 * dice.between(1, 5);
  a.rope_dim = dice.coin() ? a.head_dim : 2;
  if (dice.between(0, 3) == 0) {
    a.kv_heads = a.heads;
    a.mla = Mla{dice.coin() ? dice.between(1, 6) : 0, dice.between(1, 6), dice.between(1, 5), 2 * dice.between(1, 3), dice.between(1, 6)};
    a.head_dim = a.mla->nope_dim + a.mla->rope_dim;
    a.rope_dim = a.mla->rope_dim;
  } else {
    random_biases_and_norms(dice, a);
  }
  if (dice.between(0, 3) == 0) a.window = dice.between(1, 12);
  if (a.window == 0 && dice.between(0, 3) == 0) a.chunk = dice.between(1, 12);
  return a;
}

inline MlpConfig random_mlp(Dice& dice) {
  MlpConfig m;
  m.gated = dice.coin(), m.bias = dice.coin(), m.width = dice.between(1, 20);
  if (dice.between(0, 2) > 0) return m;
  MoeConfig& e = m.moe.emplace();
  m.width = 0, m.bias = false;
  e.experts = dice.between(2, 6), e.picks = dice.between(1, 3), e.width = dice.between(1, 9);
  e.picks = std::min(e.picks, e.experts);
  e.sigmoid = dice.coin(), e.router_bias = dice.coin(), e.correction_bias = dice.coin();
  if (dice.coin()) e.shared = dice.between(1, 2), e.shared_width = dice.between(1, 9), e.shared_gate = dice.coin();
  if (dice.between(0, 3) == 0) e.noops = 2, e.noop_share = Fraction{1, 3};
  if (dice.between(0, 3) == 0) e.capacity = Fraction{dice.between(1, 3), 2};
  return m;
}

inline Route random_route(Dice& dice, const BlockConfig& block) {
  Route r;
  r.capacity = make_fraction(dice.between(0, 4), 4);
  if (dice.coin()) r.router = RouterKind::kMlp, r.router_hidden = dice.between(1, 5);
  r.router_bias = dice.coin();
  const GateKind gates[] = {GateKind::kNone, GateKind::kRaw, GateKind::kSigmoid, GateKind::kScaledSigmoid, GateKind::kTanh};
  r.gate.kind = gates[dice.between(0, 4)];
  if (dice.between(0, 2) == 0) r.predictor = Predictor{dice.coin() ? dice.between(1, 5) : 0};
  if (dice.coin()) r.aux_lambda = 0;
  if (dice.between(0, 3) == 0) r.kv = KvPolicy::kAll;
  if (dice.between(0, 3) == 0) r.adapter = dice.between(1, 4);
  const bool both = block.attention && block.mlp;
  const std::int64_t part = dice.between(0, 5);
  if (part == 0 && block.attention) r.part = RoutedPart::kAttention;
  if (part == 1 && block.mlp) r.part = RoutedPart::kMlp;
  if (r.part != RoutedPart::kBlock) r.kv = KvPolicy::kSelected;
  if (r.part == RoutedPart::kBlock) {
    const std::int64_t on = dice.between(0, 5);
    if (on == 0) r.gate_on = GateOn::kWhole;
    if (on == 1 && both) r.gate_on = GateOn::kMlp;
    if (on == 2 && both) r.gate_on = GateOn::kAttention;
  }
  return r;
}

inline Network random_network(std::uint64_t seed) {
  Dice dice(seed);
  Network n;
  n.name = "random";
  n.width = dice.between(2, 12);
  n.vocab = dice.between(3, 30);
  n.padded_vocab = dice.coin() ? 0 : n.vocab + dice.between(0, 5);
  n.norm = dice.coin() ? NormKind::kRms : NormKind::kLayer;
  n.norm_bias = dice.coin();
  n.norm_gain = n.norm_bias || dice.between(0, 3) > 0;
  n.tied = dice.coin();
  n.head_bias = dice.coin();
  n.embedding_norm = dice.between(0, 3) == 0;
  n.mtp = dice.between(0, 4) == 0 ? dice.between(1, 2) : 0;
  const std::int64_t kinds = dice.between(1, 3);
  for (std::int64_t i = 0; i < kinds; ++i) {
    BlockConfig b;
    if (dice.between(0, 9) > 0) b.attention = random_attention(dice);
    if (!b.attention || dice.between(0, 9) > 0) b.mlp = random_mlp(dice);
    const std::int64_t shape = dice.between(0, 5);
    if (shape == 0 && b.attention && b.mlp) b.parallel = true, b.parallel_norms = dice.coin() ? 1 : 2;
    if (shape == 1) b.norms = 4;
    if (shape == 2) b.post_norm_only = true;
    if (i > 0 && dice.between(0, 2) > 0) b.route = random_route(dice, b);
    if (b.parallel && b.route) b.route->part = RoutedPart::kBlock, b.route->gate_on = GateOn::kDelta, b.route->kv = KvPolicy::kSelected;
    n.kinds.push_back(b);
  }
  const std::int64_t layers = dice.between(1, 5);
  for (std::int64_t l = 0; l < layers; ++l) n.layers.push_back(static_cast<int>(dice.between(0, kinds - 1)));
  if (n.mtp > 0) n.layers.back() = 0;
  if (dice.between(0, 4) == 0) {  // some layers share weights with an earlier one of their kind
    for (std::int64_t l = 0; l < layers; ++l) {
      int set = static_cast<int>(l);
      for (std::int64_t e = 0; e < l; ++e)
        if (n.layers[static_cast<size_t>(e)] == n.layers[static_cast<size_t>(l)]) set = n.weights_of[static_cast<size_t>(e)];
      n.weights_of.push_back(set);
    }
  }
  if (dice.between(0, 5) == 0) n.lora = Lora{dice.between(1, 3), {"up", "gate", "down"}};
  if (dice.between(0, 7) == 0) n.freeze_embedding = true;

  // From dice of their own, so that what is above stays as it was when something is added.
  Dice more(seed * 7919 + 5);
  if (n.lora && more.coin()) {
    n.lora->targets.clear();
    for (const char* target : {"q", "k", "v", "o", "up", "gate", "down"})
      if (more.coin()) n.lora->targets.push_back(target);
    if (n.lora->targets.empty()) n.lora->targets = {"v"};
  }
  const std::int64_t positions = more.between(0, 5);
  if (positions < 2) {
    n.positions = positions == 0 ? PositionKind::kLearned : PositionKind::kNone;
    if (positions == 0) n.max_length = 40;
    for (BlockConfig& b : n.kinds)
      if (b.attention && !b.attention->mla) b.attention->rope_dim = 0;
  }
  n.final_norm = more.between(0, 5) > 0;
  Dice biases(seed * 104729 + 11);
  const ActivationKind activations[] = {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSilu, ActivationKind::kRelu, ActivationKind::kRelu2};
  for (BlockConfig& b : n.kinds) {
    if (b.mlp) b.mlp->activation = activations[more.between(0, 4)];
    if (b.mlp && b.mlp->moe) b.mlp->bias = biases.between(0, 3) == 0;
    if (!b.route) continue;
    Route& r = *b.route;
    const Rounding roundings[] = {Rounding::kFloor, Rounding::kHalfUp, Rounding::kCeil};
    r.rounding = roundings[more.between(0, 2)];
    if (r.aux_lambda > 0 && r.router == RouterKind::kLinear && more.between(0, 2) == 0) r.aux_detached = true;
    if (more.between(0, 4) == 0) r.capacity.reset(), r.slots = more.between(0, 5);
    if (more.between(0, 4) == 0) r.min_slots = more.between(0, 2);
  }
  if (n.lora) {  // only matrices that some layer has
    const auto absent = [&n](const std::string& target) {
      return std::none_of(n.layers.begin(), n.layers.end(), [&](int kind) {
        const BlockConfig& b = n.kinds[static_cast<size_t>(kind)];
        if (target == "gate") return b.mlp && b.mlp->gated;
        return target == "up" || target == "down" ? b.mlp.has_value() : b.attention.has_value();
      });
    };
    std::erase_if(n.lora->targets, absent);
    if (n.lora->targets.empty()) n.lora.reset();
  }
  return n;
}

inline Scenario random_scenario(std::uint64_t seed, Phase phase) {
  Dice dice(seed * 977 + 13);
  Scenario s;
  s.phase = phase;
  s.batch = dice.between(1, 3);
  s.length = dice.between(1, 12);
  s.past = phase == Phase::kPrefill && dice.coin() ? dice.between(1, 12) : 0;
  s.context = dice.between(1, 20);
  const LogitsKind logits[] = {LogitsKind::kAll, LogitsKind::kLast, LogitsKind::kNone};
  s.logits = logits[dice.between(0, 2)];
  if (phase == Phase::kTrain) s.grad_accumulation = dice.between(1, 3);
  const Recompute policies[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  if (phase == Phase::kTrain) s.recompute = policies[dice.between(0, 2)];
  if (phase != Phase::kTrain && dice.coin()) s.routing = RoutingRule::kThreshold;
  if (phase == Phase::kDecode && dice.coin()) s.mla = MlaStrategy::kAbsorbed;
  Dice more(seed * 31337 + 7);
  s.full_mask = more.between(0, 4) == 0;
  if (phase == Phase::kDecode && more.between(0, 4) == 0) s.mla = MlaStrategy::kDecompress;
  if (phase != Phase::kTrain && s.routing == RoutingRule::kThreshold && more.coin()) s.participation = make_fraction(more.between(0, 4), 4);
  return s;
}

}  // namespace fathom::testing
