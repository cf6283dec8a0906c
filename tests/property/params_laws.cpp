// Parameter counts of random networks against a plain listing of every tensor, and the laws that
// concern parameters.
#include <catch2/catch.hpp>

#include <map>

#include "models/network_ini.hpp"
#include "models/params.hpp"
#include "tests/random_networks.hpp"

using namespace fathom;

namespace {

using testing::Dice;

BlockConfig random_block(Dice& dice, bool rope) {
  BlockConfig b;
  if (dice.between(0, 9) > 0) {
    AttentionConfig& a = b.attention.emplace();
    a.kv_heads = dice.between(1, 3);
    a.heads = a.kv_heads * dice.between(1, 3);
    a.head_dim = 2 * dice.between(1, 5);
    a.rope_dim = rope && dice.coin() ? a.head_dim : 0;
    if (dice.between(0, 3) == 0) {
      a.kv_heads = a.heads;
      a.mla = Mla{dice.coin() ? dice.between(1, 6) : 0, dice.between(1, 6), dice.between(1, 5),
                  rope ? 2 * dice.between(1, 3) : 0, dice.between(1, 6)};
      a.head_dim = a.mla->nope_dim + a.mla->rope_dim;
      a.rope_dim = a.mla->rope_dim;
    } else {
      testing::random_biases_and_norms(dice, a);
      if (dice.coin()) a.window = dice.between(1, 50);
    }
  }
  if (!b.attention || dice.between(0, 9) > 0) {
    MlpConfig& m = b.mlp.emplace();
    m.gated = dice.coin(), m.bias = dice.coin();
    m.width = dice.between(1, 20);
    if (dice.between(0, 2) == 0) {
      MoeConfig& e = m.moe.emplace();
      m.width = 0;
      e.experts = dice.between(1, 6), e.noops = dice.between(0, 2), e.picks = dice.between(1, e.experts),
      e.width = dice.between(1, 9);
      e.router_bias = dice.coin(), e.correction_bias = dice.coin();
      if (dice.coin()) e.shared = dice.between(1, 2), e.shared_width = dice.between(1, 9), e.shared_gate = dice.coin();
    }
  }
  if (b.attention && b.mlp) {
    const std::int64_t shape = dice.between(0, 4);
    if (shape == 1) b.norms = 4;
    if (shape == 2) b.post_norm_only = true;
    if (shape == 3) b.parallel = true, b.parallel_norms = static_cast<int>(dice.between(1, 2));
  }
  if (dice.between(0, 2) == 0) {
    Route& r = b.route.emplace();
    if (dice.coin())
      r.capacity = make_fraction(dice.between(0, 8), 8);
    else
      r.slots = dice.between(0, 9);
    r.router_bias = dice.coin();
    if (dice.coin()) r.router = RouterKind::kMlp, r.router_hidden = dice.between(1, 5);
    if (dice.coin()) r.predictor = Predictor{dice.coin() ? dice.between(1, 5) : 0};
    if (dice.coin()) r.adapter = dice.between(1, 4);
    if (dice.coin()) r.kv = KvPolicy::kAll;
  }
  return b;
}

Network random_network(Dice& dice) {
  Network n;
  n.name = "random";
  n.width = dice.between(1, 16), n.vocab = dice.between(1, 30);
  if (dice.coin()) n.padded_vocab = n.vocab + dice.between(0, 5);
  const std::int64_t positions = dice.between(0, 2);
  n.positions = positions == 0 ? PositionKind::kRope : positions == 1 ? PositionKind::kLearned : PositionKind::kNone;
  n.max_length = positions == 1 ? dice.between(1, 9) : 0;
  n.norm = dice.coin() ? NormKind::kRms : NormKind::kLayer;
  if (n.norm == NormKind::kLayer) n.norm_bias = dice.coin(), n.norm_gain = n.norm_bias || dice.coin();
  n.embedding_norm = dice.coin(), n.final_norm = dice.coin(), n.tied = dice.coin(), n.head_bias = dice.coin();
  const std::int64_t kinds = dice.between(1, 3);
  for (std::int64_t i = 0; i < kinds; ++i)
    n.kinds.push_back(random_block(dice, positions == 0)), n.layers.push_back(static_cast<int>(i));
  for (std::int64_t extra = dice.between(0, 5); extra > 0; --extra)
    n.layers.push_back(static_cast<int>(dice.between(0, kinds - 1)));
  if (dice.between(0, 3) == 0)  // equal kinds share one weight set
    for (int kind : n.layers) n.weights_of.push_back(kind);
  return n;
}

// Every tensor by name, as a checkpoint would hold them. Elements of experts that a token does not visit are marked
// idle.
struct Listing {
  std::map<std::string, std::int64_t> tensors;
  std::int64_t idle = 0;
  void add(const std::string& name, std::int64_t elements) { REQUIRE(tensors.emplace(name, elements).second); }
  void norm(const Network& n, const std::string& name) {
    if (n.norm_gain) add(name + ".gain", n.width);
    if (n.norm == NormKind::kLayer && n.norm_bias) add(name + ".bias", n.width);
  }
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const auto& [name, elements] : tensors) sum += elements;
    return sum;
  }
};

void list_attention(Listing& list, const Network& n, const AttentionConfig& a, const std::string& at) {
  const std::int64_t h = n.width;
  if (a.mla) {
    const Mla& m = *a.mla;
    if (m.query_rank > 0) {
      list.add(at + "q_a", h * m.query_rank), list.add(at + "q_a_norm", m.query_rank);
      list.add(at + "q_b", m.query_rank * a.heads * (m.nope_dim + m.rope_dim));
    } else {
      list.add(at + "q", h * a.heads * (m.nope_dim + m.rope_dim));
    }
    list.add(at + "kv_a", h * (m.kv_rank + m.rope_dim)), list.add(at + "kv_a_norm", m.kv_rank);
    list.add(at + "kv_b", m.kv_rank * a.heads * (m.nope_dim + m.v_dim));
    list.add(at + "o", a.heads * m.v_dim * h);
    return;
  }
  list.add(at + "q", h * a.heads * a.head_dim), list.add(at + "k", h * a.kv_heads * a.head_dim),
      list.add(at + "v", h * a.kv_heads * a.head_dim);
  list.add(at + "o", a.heads * a.head_dim * h);
  if (a.qkv_bias)
    list.add(at + "q.bias", a.heads * a.head_dim), list.add(at + "k.bias", a.kv_heads * a.head_dim),
        list.add(at + "v.bias", a.kv_heads * a.head_dim);
  if (a.out_bias) list.add(at + "o.bias", h);
  if (a.sinks) list.add(at + "sinks", a.heads);
  const bool per_head = a.qk_norm && a.qk_gain == QkGain::kPerHead;
  if (a.qk_norm_full || per_head)
    list.add(at + "q_norm", a.heads * a.head_dim), list.add(at + "k_norm", a.kv_heads * a.head_dim);
  if (a.qk_norm && a.qk_gain == QkGain::kShared)
    list.add(at + "q_norm", a.head_dim), list.add(at + "k_norm", a.head_dim);
}

std::int64_t list_ffn(Listing& list, const MlpConfig& m, std::int64_t h, std::int64_t width, const std::string& at) {
  const std::int64_t before = list.total();
  for (const char* name : {"up", "gate"}) {
    if (name[0] == 'g' && !m.gated) continue;
    list.add(at + name, h * width);
    if (m.bias) list.add(at + name + ".bias", width);
  }
  list.add(at + "down", width * h);
  if (m.bias) list.add(at + "down.bias", h);
  return list.total() - before;
}

void list_block(Listing& list, const Network& n, const BlockConfig& b, const std::string& at) {
  int norms = b.parallel ? b.parallel_norms : 0;
  if (!b.parallel) {
    if (b.attention) norms += b.norms == 4 ? 2 : 1;
    if (b.mlp) norms += b.norms == 4 ? 2 : 1;
  }
  for (int i = 0; i < norms; ++i) list.norm(n, at + "norm" + std::to_string(i));
  if (b.attention) list_attention(list, n, *b.attention, at + "attn.");
  if (b.mlp && !b.mlp->moe) list_ffn(list, *b.mlp, n.width, b.mlp->width, at + "mlp.");
  if (b.mlp && b.mlp->moe) {
    const MoeConfig& e = *b.mlp->moe;
    for (std::int64_t i = 0; i < e.experts; ++i) {
      const std::int64_t elements = list_ffn(list, *b.mlp, n.width, e.width, at + "expert" + std::to_string(i) + ".");
      if (i >= e.picks) list.idle += elements;
    }
    // One MLP as wide as all shared experts, as DeepSeek's checkpoints hold them.
    if (e.shared > 0) list_ffn(list, *b.mlp, n.width, e.shared * e.shared_width, at + "shared.");
    if (e.shared_gate) list.add(at + "shared_gate", n.width);
    list.add(at + "router", n.width * (e.experts + e.noops));
    if (e.router_bias) list.add(at + "router.bias", e.experts + e.noops);
    if (e.correction_bias) list.add(at + "correction", e.experts);
  }
  if (b.route) {
    const Route& r = *b.route;
    if (r.router == RouterKind::kMlp) {
      list.add(at + "depth.in", n.width * r.router_hidden), list.add(at + "depth.out", r.router_hidden);
      if (r.router_bias) list.add(at + "depth.in.bias", r.router_hidden), list.add(at + "depth.out.bias", 1);
    } else {
      list.add(at + "depth", n.width);
      if (r.router_bias) list.add(at + "depth.bias", 1);
    }
    if (r.predictor && r.predictor->hidden > 0)
      list.add(at + "predictor.in", n.width * r.predictor->hidden), list.add(at + "predictor.out", r.predictor->hidden);
    if (r.predictor && r.predictor->hidden == 0) list.add(at + "predictor", n.width);
    if (r.adapter > 0)
      list.add(at + "adapter.down", n.width * r.adapter), list.add(at + "adapter.up", r.adapter * n.width);
  }
}

Listing list_network(const Network& n) {
  Listing list;
  const std::int64_t rows = n.padded_vocab > 0 ? n.padded_vocab : n.vocab;
  list.add("table", rows * n.width);
  if (n.positions == PositionKind::kLearned) list.add("positions", n.max_length * n.width);
  if (n.embedding_norm) list.norm(n, "embedding_norm");
  std::map<int, bool> seen;
  for (std::size_t l = 0; l < n.layers.size(); ++l) {
    if (!n.weights_of.empty() && !seen.emplace(n.weights_of[l], true).second) continue;
    list_block(list, n, n.kinds[static_cast<std::size_t>(n.layers[l])], "layers." + std::to_string(l) + ".");
  }
  if (n.final_norm) list.norm(n, "final_norm");
  if (!n.tied) list.add("head", rows * n.width);
  if (n.head_bias) list.add("head.bias", rows);
  return list;
}

}  // namespace

TEST_CASE("random networks: the count equals a listing of every tensor", "[params]") {
  Dice dice(20240402);
  for (int i = 0; i < 3000; ++i) {
    const Network n = random_network(dice);
    CAPTURE(i, to_ini(n));
    const ParameterCount count = count_parameters(n);
    const Listing list = list_network(n);
    REQUIRE(count.total == Params(static_cast<u128>(list.total())));
    REQUIRE((count.total - count.active) == Params(static_cast<u128>(list.idle)));
    Params sum;
    for (const Params& part : count.by_part) sum += part;
    REQUIRE(sum == count.total);
    // The matrices are the tensors that are no gain, bias, table, sink or correction; the head counts even where it is
    // the table.
    std::int64_t matmul = n.tied ? list.tensors.at("table") : 0;
    for (const auto& [name, elements] : list.tensors) {
      const bool vector = name.ends_with("bias") || name.ends_with("gain") || name.ends_with("_norm") ||
                          name.ends_with("sinks") || name.ends_with("correction");
      if (!vector && name != "table" && name != "positions") matmul += elements;
    }
    REQUIRE(count.matmul == Params(static_cast<u128>(matmul)));
  }
}

TEST_CASE("random networks: INI text reads back to the same network", "[ini]") {
  Dice dice(7);
  for (int i = 0; i < 3000; ++i) {
    Network n = random_network(dice);
    // Equal kinds are told apart by nothing in a file; the rest must survive exactly.
    const std::string text = to_ini(n);
    CAPTURE(i, text);
    Network back = parse_network_ini(text, "random.ini");
    back.notes.clear();  // on keys that change nothing
    REQUIRE(back.layers.size() == n.layers.size());
    for (std::int64_t l = 0; l < n.layer_count(); ++l) REQUIRE(back.block(l) == n.block(l));
    REQUIRE(back.weights_of == n.weights_of);
    REQUIRE(to_ini(back) == text);
    REQUIRE(count_parameters(back).total == count_parameters(n).total);
  }
}

TEST_CASE("laws: tying, key/value heads, experts per token, experts", "[params]") {
  Dice dice(99);
  for (int i = 0; i < 1000; ++i) {
    Network n = random_network(dice);
    const u128 total = count_parameters(n).total.value();
    const u128 table = static_cast<u128>(n.table_rows() * n.width);
    Network other = n;
    other.tied = !n.tied;
    REQUIRE(count_parameters(other).total.value() == (n.tied ? total + table : total - table));
    REQUIRE(count_parameters(other).matmul == count_parameters(n).matmul);

    // Multiplying key/value heads (and heads, to stay divisible) is linear in the cache.
    const Bytes kv = kv_bytes_per_token(n, DType::kBF16);
    other = n;
    bool mla = false;
    for (BlockConfig& b : other.kinds)
      if (b.attention) mla = mla || b.attention->mla.has_value(), b.attention->heads *= 2, b.attention->kv_heads *= 2;
    if (!mla) REQUIRE(kv_bytes_per_token(other, DType::kBF16) == 2 * kv);

    // More experts per token: the total stays, the active count grows by the experts' weights only.
    other = n;
    for (BlockConfig& b : other.kinds)
      if (b.mlp && b.mlp->moe) b.mlp->moe->picks = b.mlp->moe->experts;
    REQUIRE(count_parameters(other).total.value() == total);
    REQUIRE(count_parameters(other).active == count_parameters(other).total);
  }
}
