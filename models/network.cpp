#include "models/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/error.hpp"
#include "models/limits.hpp"

namespace fathom {
namespace {

// Checks of one network; every failure names the source, the layer and the key.
class Checker {
 public:
  explicit Checker(const Network& network) : network_(network) {}

  void run() {
    const Network& n = network_;
    size("width", n.width, 1);
    size("vocab", n.vocab, 1);
    if (n.padded_vocab != 0 && n.padded_vocab < n.vocab)
      fail("padded_vocab", fmt::format("must be 0 or at least vocab ({})", n.vocab), n.padded_vocab);
    size("padded_vocab", n.padded_vocab, 0);
    range("max_length", n.max_length, 0, kMaxTokens);
    positive("rope_base", n.rope_base);
    positive("norm_epsilon", n.norm_epsilon);
    if (n.positions == PositionKind::kLearned && n.max_length == 0)
      fail("max_length", "is needed for a learned position table");
    if (n.positions == PositionKind::kLearned) size("max_length", n.max_length, 1);
    if (n.norm == NormKind::kLayer && n.norm_bias && !n.norm_gain)
      fail("norm_gain", "a norm without gain has no bias either; set norm_bias = no");
    if (n.layers.empty()) fail("layers", "a network needs at least one layer");
    if (n.layer_count() > kMaxLayers) fail("layers", fmt::format("more than {} layers", kMaxLayers));
    for (int kind : n.layers)
      if (kind < 0 || static_cast<size_t>(kind) >= n.kinds.size())
        fail("layers", "refers to a block kind that does not exist", kind);
    for (size_t i = 0; i < n.kinds.size(); ++i) {
      const auto used = std::find(n.layers.begin(), n.layers.end(), static_cast<int>(i));
      layer_ = used == n.layers.end() ? -1 : used - n.layers.begin();
      block(n.kinds[i]);
    }
    layer_ = -1;
    sharing();
    range("mtp", n.mtp, 0, kMaxModules);
    if (n.mtp > 0 && n.block(n.layer_count() - 1).route)
      throw_input("a prediction module copies the last layer, which must not be routed", {n.source.empty() ? n.name : n.source, 0, "mtp"}, "route other layers (at = ... in [route]), or count no modules (mtp = 0)");
    if (n.lora) lora(*n.lora);
    if (n.weight_dtype && *n.weight_dtype != DType::kF32 && *n.weight_dtype != DType::kBF16 && *n.weight_dtype != DType::kF16 && *n.weight_dtype != DType::kF8 && *n.weight_dtype != DType::kI8)
      fail("weight_dtype", fmt::format("weights are stored in f32, bf16, f16, f8 or i8, not {}", dtype_name(*n.weight_dtype)));
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& message) const {
    throw_input((layer_ >= 0 ? fmt::format("layer {}: ", layer_) : "") + message,
                {network_.source.empty() ? network_.name : network_.source, 0, key});
  }
  [[noreturn]] void fail(const std::string& key, const std::string& message, std::int64_t value) const {
    fail(key, fmt::format("{}, not {}", message, value));
  }
  void range(const std::string& key, std::int64_t value, std::int64_t low, std::int64_t high) const {
    if (value < low || value > high) fail(key, fmt::format("must be {} to {}", low, high), value);
  }
  void size(const std::string& key, std::int64_t value, std::int64_t low) const { range(key, value, low, kMaxSize); }
  // a x b as one matrix has it; both are at most kMaxSize, so that the product overflows nothing.
  void together(const std::string& key, const char* a_name, std::int64_t a, const char* b_name, std::int64_t b) const {
    if (a * b > kMaxSize) fail(key, fmt::format("{} {} of {} {} are {}, more than {}", a, a_name, b, b_name, a * b, kMaxSize));
  }
  void positive(const std::string& key, double value) const {
    if (!std::isfinite(value) || value <= 0) fail(key, fmt::format("must be positive and finite, not {}", value));
  }
  void finite(const std::string& key, double value) const {
    if (!std::isfinite(value)) fail(key, fmt::format("must be finite, not {}", value));
  }
  void share(const std::string& key, const Fraction& value) const {
    if (value.den <= 0 || value.num < 0 || value.num > value.den)
      fail(key, fmt::format("must lie in [0, 1], not {}", value.str()));
  }

  void block(const BlockConfig& b) const {
    if (!b.attention && !b.mlp) fail("attention", "the block has neither attention nor an MLP");
    if (b.attention) attention(*b.attention);
    if (b.mlp) mlp(*b.mlp);
    if (b.norms != 2 && b.norms != 4) fail("norms", "must be 2 or 4", b.norms);
    if (b.post_norm_only && b.norms != 2) fail("post_norm_only", "excludes norms = 4");
    if (b.parallel_norms != 1 && b.parallel_norms != 2) fail("parallel_norms", "must be 1 or 2", b.parallel_norms);
    if (b.parallel && (!b.attention || !b.mlp)) fail("parallel", "a parallel block needs attention and an MLP");
    if (b.parallel && (b.norms != 2 || b.post_norm_only)) fail("parallel", "excludes norms = 4 and post_norm_only");
    if (b.route) route(b, *b.route);
  }

  void attention(const AttentionConfig& a) const {
    size("heads", a.heads, 1);
    size("kv_heads", a.kv_heads, 1);
    if (a.heads % a.kv_heads != 0)
      fail("kv_heads", fmt::format("{} query heads are no multiple of {} key/value heads", a.heads, a.kv_heads));
    size("head_dim", a.head_dim, 1);
    together("head_dim", "heads", a.heads, "elements of head_dim", a.head_dim);
    range("rope_dim", a.rope_dim, 0, a.head_dim);
    if (a.rope_dim % 2 != 0) fail("rope_dim", "rotation works on pairs; must be even", a.rope_dim);
    if (a.rope_dim > 0 && network_.positions != PositionKind::kRope)
      fail("rope_dim", "must be 0 unless positions = rope", a.rope_dim);
    range("window", a.window, 0, kMaxTokens);
    range("chunk", a.chunk, 0, kMaxTokens);
    if (a.window > 0 && a.chunk > 0) fail("chunk", "a layer has a window or chunks, not both");
    if (a.qk_norm && a.qk_norm_full) fail("qk_norm", "is per head or over the whole row, not both");
    if (a.mla) {
      const Mla& m = *a.mla;
      size("q_rank", m.query_rank, 0);
      size("kv_rank", m.kv_rank, 1);
      size("nope_dim", m.nope_dim, 1);
      size("rope_dim", m.rope_dim, 0);
      size("v_dim", m.v_dim, 1);
      together("v_dim", "heads", a.heads, "elements of v_dim", m.v_dim);
      together("nope_dim", "heads", a.heads, "elements of nope_dim + v_dim", m.nope_dim + m.v_dim);
      if (a.kv_heads != a.heads) fail("kv_heads", "latent attention has as many key/value heads as query heads");
      if (a.head_dim != m.nope_dim + m.rope_dim)
        fail("head_dim", "of latent attention is nope_dim + rope_dim", a.head_dim);
      if (a.rope_dim != m.rope_dim && a.rope_dim != 0)
        fail("rope_dim", fmt::format("differs from that of the latent attention ({})", m.rope_dim), a.rope_dim);
      if (a.qkv_bias || a.out_bias || a.qk_norm || a.qk_norm_full || a.sinks)
        throw_input("latent attention with biases, query/key norms or sinks is not modelled", {network_.source.empty() ? network_.name : network_.source, 0, a.qkv_bias ? "qkv_bias" : a.out_bias ? "out_bias" : a.sinks ? "sinks" : "qk_norm"},
                    "take that key out of the file");
    }
  }

  void mlp(const MlpConfig& m) const {
    if (!m.moe) {
      size("mlp", m.width, 1);
      return;
    }
    const MoeConfig& e = *m.moe;
    range("experts", e.experts, 1, kMaxExperts);
    range("noops", e.noops, 0, kMaxExperts);
    range("picks", e.picks, 1, e.experts + e.noops);
    size("expert_width", e.width, 1);
    range("shared_experts", e.shared, 0, kMaxExperts);
    size("shared_width", e.shared_width, e.shared > 0 ? 1 : 0);
    if (e.shared > 0) together("shared_width", "shared_experts", e.shared, "elements of shared_width", e.shared_width);
    if (e.shared == 0 && (e.shared_width != 0 || e.shared_gate))
      fail(e.shared_gate ? "shared_gate" : "shared_width", "needs shared_experts");
    share("noop_share", e.noop_share);
    if (e.noops == 0 && e.noop_share.num != 0) fail("noop_share", "needs noops");
    // The picks of a token are distinct: not more of them are no-ops than there are, and those beyond the experts must be.
    const std::int64_t most = std::min(e.picks, e.noops), least = std::max<std::int64_t>(0, e.picks - e.experts);
    const u128 assigned = u128(e.noop_share.num) * u128(e.picks);
    if (assigned > u128(most) * u128(e.noop_share.den) || assigned < u128(least) * u128(e.noop_share.den))
      fail("noop_share", fmt::format("must lie in [{}/{}, {}/{}]: of {} distinct picks at least {} and at most {} are no-ops", least, e.picks, most, e.picks, e.picks, least, most));
    if (!std::isfinite(e.skew) || e.skew < 0 || e.skew > 16) fail("expert_skew", fmt::format("must be 0 to 16, not {}", e.skew));
    if (e.skew != 0 && !e.loads.empty()) fail("expert_loads", "excludes expert_skew");
    if (!e.loads.empty()) {
      if (static_cast<std::int64_t>(e.loads.size()) != e.experts) fail("expert_loads", fmt::format("has {} loads for {} experts", e.loads.size(), e.experts));
      std::int64_t some = 0;
      for (double load : e.loads) {
        if (!std::isfinite(load) || load < 0 || load > 1e12) fail("expert_loads", fmt::format("must be 0 to 1e12, not {}", load));
        some += load > 0;
      }
      if (some < std::min(e.picks, e.experts)) fail("expert_loads", fmt::format("gives a load to {} experts, but a token picks {}", some, std::min(e.picks, e.experts)));
    }
    if (e.capacity && (e.capacity->num <= 0 || e.capacity->den <= 0)) fail("expert_capacity", "must be positive");
    std::int64_t den = 0;
    if (e.capacity && __builtin_mul_overflow(e.capacity->den, e.experts, &den)) fail("expert_capacity", "has too large a denominator");
  }

  void route(const BlockConfig& b, const Route& r) const {
    if (r.capacity.has_value() == r.slots.has_value())
      fail("capacity", "a routed block needs exactly one of capacity and slots");
    if (r.capacity) share("capacity", *r.capacity);
    if (r.slots) range("slots", *r.slots, 0, kMaxTokens);
    range("min_slots", r.min_slots, 0, kMaxTokens);
    if (r.slots && r.min_slots > *r.slots)
      fail("min_slots", fmt::format("is larger than slots ({})", *r.slots), r.min_slots);
    if (r.router == RouterKind::kMlp) size("router_hidden", r.router_hidden, 1);
    if (r.router == RouterKind::kLinear && r.router_hidden != 0)
      fail("router_hidden", "must be 0 for a linear router", r.router_hidden);
    if (r.predictor) size("predictor", r.predictor->hidden, 0);
    finite("gate_alpha", r.gate.alpha);
    finite("gate_beta", r.gate.beta);
    if (!std::isfinite(r.aux_lambda) || r.aux_lambda < 0)
      fail("aux_lambda", fmt::format("must be 0 or more, not {}", r.aux_lambda));
    size("adapter", r.adapter, 0);
    if (r.part == RoutedPart::kAttention && !b.attention) fail("part", "attention is routed but the block has none");
    if (r.part == RoutedPart::kMlp && !b.mlp) fail("part", "the MLP is routed but the block has none");
    if (r.gate_on == GateOn::kMlp && (!b.mlp || r.part == RoutedPart::kAttention))
      fail("gate_on", "the gate is on an MLP that is not routed");
    if (r.gate_on == GateOn::kAttention && (!b.attention || r.part == RoutedPart::kMlp))
      fail("gate_on", "the gate is on an attention that is not routed");
  }

  // Layers of one weight set must have the same parameters; only what has none (capacity, gate, window ...) may differ.
  void sharing() const {
    const Network& n = network_;
    if (n.weights_of.empty()) return;
    if (n.weights_of.size() != n.layers.size())
      fail("weights", fmt::format("{} entries for {} layers", n.weights_of.size(), n.layers.size()));
    std::map<int, size_t> first;
    for (size_t l = 0; l < n.layers.size(); ++l) {
      if (n.weights_of[l] < 0) fail("weights", "must not be negative", n.weights_of[l]);
      const auto [it, fresh] = first.emplace(n.weights_of[l], l);
      if (!fresh && !(weights_shape(n.block(static_cast<std::int64_t>(it->second))) ==
                      weights_shape(n.block(static_cast<std::int64_t>(l)))))
        fail("weights", fmt::format("layers {} and {} share weights but differ in shape", it->second, l));
    }
  }

  static BlockConfig weights_shape(BlockConfig b) {
    if (b.attention) b.attention->window = b.attention->chunk = b.attention->rope_dim = 0;
    if (b.mlp && b.mlp->moe)
      b.mlp->moe->picks = 1, b.mlp->moe->noop_share = {0, 1}, b.mlp->moe->capacity.reset(),
      b.mlp->moe->skew = 0, b.mlp->moe->loads.clear(),
      b.mlp->moe->capacity_rounding = Rounding::kFloor;
    if (b.route) {
      Route shape;
      shape.router = b.route->router, shape.router_hidden = b.route->router_hidden,
      shape.router_bias = b.route->router_bias;
      shape.predictor = b.route->predictor, shape.adapter = b.route->adapter;
      b.route = shape;
    }
    return b;
  }

  // `latent`: as if adapters on latent attention were modelled (the builder says that they are not).
  static bool has_matrix(const BlockConfig& b, const std::string& target, bool latent) {
    if (target == "gate") return b.mlp && b.mlp->gated;
    if (target == "up" || target == "down") return b.mlp.has_value();
    return b.attention && (latent || !b.attention->mla);
  }

  void lora(const Lora& l) const {
    size("rank", l.rank, 1);
    static const std::vector<std::string> known = {"q", "k", "v", "o", "up", "gate", "down"};
    if (l.targets.empty()) fail("targets", "adapters need at least one target matrix");
    for (size_t i = 0; i < l.targets.size(); ++i) {
      if (std::find(known.begin(), known.end(), l.targets[i]) == known.end())
        throw_input(fmt::format("unknown adapter target '{}'", l.targets[i]), {network_.source, 0, "targets"},
                    name_hint(l.targets[i], known));
      if (std::find(l.targets.begin(), l.targets.begin() + static_cast<std::ptrdiff_t>(i), l.targets[i]) !=
          l.targets.begin() + static_cast<std::ptrdiff_t>(i))
        fail("targets", fmt::format("'{}' is listed twice", l.targets[i]));
    }
    const auto somewhere = [&](const std::string& target, bool latent) {
      return std::any_of(network_.layers.begin(), network_.layers.end(), [&](int kind) { return has_matrix(network_.kinds[static_cast<size_t>(kind)], target, latent); });
    };
    std::vector<std::string> present;
    for (const std::string& target : known)
      if (somewhere(target, false)) present.push_back(target);
    for (const std::string& target : l.targets)
      if (!somewhere(target, true))
        throw_input(fmt::format("no layer has a matrix '{}'{}", target, target == "gate" ? ": no MLP is gated" : ""),
                    {network_.source.empty() ? network_.name : network_.source, 0, "targets"},
                    present.empty() ? "this model has no matrix that takes an adapter" : fmt::format("this model has {}", fmt::join(present, ", ")));
  }

  const Network& network_;
  std::int64_t layer_ = -1;
};

// Drops kinds that no layer uses and merges equal ones; the order of first use stays.
void compact_kinds(Network& network) {
  std::vector<BlockConfig> kinds;
  std::vector<int> place(network.kinds.size(), -1);
  for (int& kind : network.layers) {
    int& to = place[static_cast<size_t>(kind)];
    if (to < 0) {
      BlockConfig& block = network.kinds[static_cast<size_t>(kind)];
      to = static_cast<int>(std::find(kinds.begin(), kinds.end(), block) - kinds.begin());
      if (static_cast<size_t>(to) == kinds.size()) kinds.push_back(std::move(block));
    }
    kind = to;
  }
  network.kinds = std::move(kinds);
}

}  // namespace

bool Network::has_routes() const {
  return std::any_of(layers.begin(), layers.end(),
                     [&](int kind) { return kinds[static_cast<size_t>(kind)].route.has_value(); });
}

void validate(const Network& network) {
  Checker(network).run();
}

Network with_routes(const Network& dense, std::int64_t every, const Route& route) {
  if (every < 1) throw_input(fmt::format("must be at least 1, not {}", every), {"", 0, "mod-every"});
  if (every > dense.layer_count())
    throw_input(fmt::format("no block is routed: {} is more than the {} layers", every, dense.layer_count()),
                {"", 0, "mod-every"});
  Network twin = dense;
  std::vector<int> routed(dense.kinds.size(), -1);  // by kind: the same with the route
  for (std::int64_t l = every - 1; l < dense.layer_count(); l += every) {
    int& kind = twin.layers[static_cast<size_t>(l)];
    int& to = routed[static_cast<size_t>(kind)];
    if (to < 0) {
      BlockConfig block = dense.block(l);
      if (block.route)
        throw_input(fmt::format("layer {} of {} is routed already", l, dense.name), {"", 0, "mod-every"},
                    "start from the dense model");
      block.route = route;
      to = static_cast<int>(twin.kinds.size());
      twin.kinds.push_back(std::move(block));
    }
    kind = to;
  }
  compact_kinds(twin);
  twin.name += "-mod";
  validate(twin);
  return twin;
}

Network dense_twin(const Network& network) {
  Network dense = network;
  for (BlockConfig& kind : dense.kinds) kind.route.reset();
  compact_kinds(dense);
  dense.name += "-dense";
  return dense;
}

std::int64_t slots_of(const Route& route, std::int64_t length) {
  if (length < 0) throw_input(fmt::format("a sequence cannot have {} tokens", length));
  const std::int64_t wanted = route.slots      ? *route.slots
                              : route.capacity ? route.capacity->of(length, route.rounding)
                                               : 0;
  return std::min(length, std::max(route.min_slots, wanted));
}

}  // namespace fathom
