// Small networks that differ in one thing at a time, for tests that execute whole op lists.
#pragma once

#include <string>
#include <vector>

#include "models/builder.hpp"
#include "tools/check_cases.hpp"

namespace fathom::testing {

struct Tiny {
  std::int64_t width = 24, layers = 3, heads = 4, kv_heads = 2, head_dim = 8, mlp = 40, vocab = 37, padded_vocab = 0, max_length = 32;
  bool gated = false;
  ActivationKind activation = ActivationKind::kGeluTanh;
  NormKind norm = NormKind::kRms;
  PositionKind positions = PositionKind::kRope;
  bool tied = true;
  bool biases = false;
  std::int64_t rope_dim = -1;  // -1: the whole head
  std::int64_t window = 0, chunk = 0;
  std::int64_t every = 0;      // every-th block is routed; 0: none
  Fraction capacity{1, 4};
  Gate gate{};
  bool router_bias = false;
  double aux_lambda = 0.01;
  bool aux_detached = false;
};

inline Network network(const Tiny& t) {
  Network n;
  n.name = "tiny";
  n.width = t.width;
  n.vocab = t.vocab;
  n.padded_vocab = t.padded_vocab;
  n.max_length = t.max_length;
  n.positions = t.positions;
  n.norm = t.norm;
  n.tied = t.tied;
  BlockConfig block;
  AttentionConfig attention;
  attention.heads = t.heads;
  attention.kv_heads = t.kv_heads;
  attention.head_dim = t.head_dim;
  attention.rope_dim = t.positions == PositionKind::kRope ? (t.rope_dim < 0 ? t.head_dim : t.rope_dim) : 0;
  attention.window = t.window;
  attention.chunk = t.chunk;
  attention.qkv_bias = attention.out_bias = t.biases;
  MlpConfig mlp;
  mlp.width = t.mlp;
  mlp.gated = t.gated;
  mlp.activation = t.activation;
  mlp.bias = t.biases;
  block.attention = attention;
  block.mlp = mlp;
  n.kinds = {block};
  n.layers.assign(static_cast<size_t>(t.layers), 0);
  if (t.every == 0) return n;
  Route route;
  route.capacity = t.capacity;
  route.gate = t.gate;
  route.router_bias = t.router_bias;
  route.aux_lambda = t.aux_lambda;
  route.aux_detached = t.aux_detached;
  return with_routes(n, t.every, route);
}

inline Scenario scenario(Phase phase, std::int64_t batch, std::int64_t length) { return small_scenario(phase, batch, length); }

struct NamedTiny {
  std::string name;
  Tiny tiny;
};

// Every architecture switch that the builder turns into ops, dense and routed.
inline std::vector<NamedTiny> tiny_zoo() {
  std::vector<NamedTiny> zoo;
  const auto add = [&](const std::string& name, auto&& change) {
    Tiny t;
    change(t);
    zoo.push_back({name, t});
  };
  add("dense", [](Tiny&) {});
  add("whole blocks of packed weights", [](Tiny& t) { t.width = t.vocab = 128, t.heads = t.kv_heads = 4, t.head_dim = 32, t.mlp = 256, t.tied = false; });
  add("mod, whole blocks of packed weights", [](Tiny& t) { t.width = t.vocab = 128, t.heads = t.kv_heads = 4, t.head_dim = 32, t.mlp = 256, t.every = 2; });
  add("multi-head", [](Tiny& t) { t.kv_heads = 4; });
  add("multi-query", [](Tiny& t) { t.kv_heads = 1; });
  add("swiglu", [](Tiny& t) { t.gated = true, t.activation = ActivationKind::kSilu; });
  add("gelu erf", [](Tiny& t) { t.activation = ActivationKind::kGeluErf; });
  add("relu", [](Tiny& t) { t.activation = ActivationKind::kRelu; });
  add("relu squared", [](Tiny& t) { t.activation = ActivationKind::kRelu2; });
  add("gpt2 kind", [](Tiny& t) { t.norm = NormKind::kLayer, t.positions = PositionKind::kLearned, t.biases = true, t.kv_heads = 4; });
  add("untied", [](Tiny& t) { t.tied = false; });
  add("part of a head rotated", [](Tiny& t) { t.rope_dim = 4; });
  add("no positions", [](Tiny& t) { t.positions = PositionKind::kNone; });
  add("padded vocabulary", [](Tiny& t) { t.padded_vocab = 48; });
  add("padded vocabulary, untied", [](Tiny& t) { t.padded_vocab = 48, t.tied = false; });
  add("window", [](Tiny& t) { t.window = 5; });
  add("chunks", [](Tiny& t) { t.chunk = 4; });
  add("mod", [](Tiny& t) { t.every = 2; });
  add("mod in every block", [](Tiny& t) { t.every = 1, t.capacity = Fraction{1, 2}; });
  add("mod, sigmoid gate", [](Tiny& t) { t.every = 2, t.gate.kind = GateKind::kSigmoid; });
  add("mod, scaled sigmoid gate", [](Tiny& t) { t.every = 2, t.gate = Gate{GateKind::kScaledSigmoid, 0.1, 0}; });
  add("mod, tanh gate", [](Tiny& t) { t.every = 2, t.gate = Gate{GateKind::kTanh, 0.2, 1}; });
  add("mod, router bias", [](Tiny& t) { t.every = 2, t.router_bias = true; });
  add("mod, no auxiliary loss", [](Tiny& t) { t.every = 2, t.aux_lambda = 0; });
  add("mod, detached auxiliary loss", [](Tiny& t) { t.every = 2, t.aux_detached = true; });
  add("mod, window", [](Tiny& t) { t.every = 2, t.window = 4, t.capacity = Fraction{1, 2}; });
  add("mod, gpt2 kind", [](Tiny& t) {
    t.every = 2, t.norm = NormKind::kLayer, t.positions = PositionKind::kLearned, t.biases = true, t.router_bias = true;
  });
  add("mod, swiglu, untied", [](Tiny& t) { t.every = 2, t.gated = true, t.activation = ActivationKind::kSilu, t.tied = false; });
  add("mod, no slots", [](Tiny& t) { t.every = 2, t.capacity = Fraction{0, 1}; });
  add("mod, all slots", [](Tiny& t) { t.every = 2, t.capacity = Fraction{1, 1}; });
  return zoo;
}

}  // namespace fathom::testing
