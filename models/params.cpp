#include "models/params.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/error.hpp"

namespace fathom {
namespace {

// Collects one weight set. Every matrix is added with its part, the rest (gains, biases, tables) apart from it.
class Tally {
 public:
  // Everything that follows is there this many times (equal layers).
  void times(std::int64_t copies) { copies_ = static_cast<u128>(copies); }

  void matrix(Part part, u128 count) { add(part, count), sum(matmul_, count); }
  void other(Part part, u128 count) { add(part, count); }
  void idle_matrix(u128 count) { sum(idle_, count), sum(idle_matmul_, count); }
  void idle_other(u128 count) { sum(idle_, count); }
  void tied_head(u128 count) { sum(matmul_, count); }
  void table(Part part, u128 count) { add(part, count), sum(tables_, count); }
  void untied_head(u128 count) { matrix(Part::kLogits, count), sum(tables_, count); }

  ParameterCount result() const {
    ParameterCount r;
    r.total = Params(total_);
    r.active = Params(checked_sub(total_, idle_));
    r.without_embeddings = Params(checked_sub(total_, tables_));
    r.active_without_embeddings = Params(checked_sub(checked_sub(total_, idle_), tables_));
    r.matmul = Params(matmul_);
    r.active_matmul = Params(checked_sub(matmul_, idle_matmul_));
    for (size_t i = 0; i < parts_.size(); ++i) r.by_part[i] = Params(parts_[i]);
    return r;
  }

 private:
  void sum(u128& total, u128 count) const { total = checked_add(total, checked_mul(count, copies_)); }
  void add(Part part, u128 count) { sum(total_, count), sum(parts_[static_cast<size_t>(part)], count); }

  u128 copies_ = 1;
  u128 total_ = 0, idle_ = 0, tables_ = 0, matmul_ = 0, idle_matmul_ = 0;
  std::array<u128, kPartCount> parts_{};
};

std::int64_t norm_parameters(const Network& n) {
  if (!n.norm_gain) return 0;
  return n.norm == NormKind::kLayer && n.norm_bias ? 2 * n.width : n.width;
}

// Norms over the width in one block: one before each present sub-block (or after it), twice that with norms = 4.
int block_norms(const BlockConfig& b) {
  if (b.parallel) return b.parallel_norms;
  return (b.norms / 2) * (b.attention.has_value() + b.mlp.has_value());
}

void count_attention(Tally& t, const Network& net, const AttentionConfig& a, Part projection, Part norm) {
  const std::int64_t h = net.width;
  if (a.mla) {
    const Mla& m = *a.mla;
    const std::int64_t qk = m.nope_dim + m.rope_dim;
    if (m.query_rank > 0) {
      t.matrix(projection, product(h, m.query_rank));
      t.matrix(projection, product(m.query_rank, a.heads, qk));
      t.other(norm, product(m.query_rank));
    } else {
      t.matrix(projection, product(h, a.heads, qk));
    }
    t.matrix(projection, product(h, m.kv_rank + m.rope_dim));
    t.other(norm, product(m.kv_rank));
    t.matrix(projection, product(m.kv_rank, a.heads, m.nope_dim + m.v_dim));
    t.matrix(projection, product(a.heads, m.v_dim, h));
    return;
  }
  const u128 q = product(a.heads, a.head_dim);
  const u128 kv = product(a.kv_heads, a.head_dim);
  t.matrix(projection, checked_mul(static_cast<u128>(h), q + 2 * kv));
  t.matrix(projection, checked_mul(q, static_cast<u128>(h)));
  if (a.qkv_bias) t.other(projection, q + 2 * kv);
  if (a.out_bias) t.other(projection, product(h));
  if (a.qk_norm_full || (a.qk_norm && a.qk_gain == QkGain::kPerHead)) t.other(norm, q + kv);
  if (a.qk_norm && a.qk_gain == QkGain::kShared) t.other(norm, product(2, a.head_dim));
  if (a.sinks) t.other(projection, product(a.heads));
}

void count_mlp(Tally& t, const Network& net, const MlpConfig& m, Part ffn, Part experts, Part router) {
  const std::int64_t h = net.width;
  const std::int64_t matrices = m.gated ? 3 : 2;
  const std::int64_t bias_of_width =
      m.gated ? 2 : 1;  // up (and gate) biases have the FFN width, the down bias the model's
  if (!m.moe) {
    t.matrix(ffn, product(matrices, h, m.width));
    if (m.bias) t.other(ffn, product(bias_of_width, m.width) + product(h));
    return;
  }
  const MoeConfig& e = *m.moe;
  const u128 weights = product(matrices, h, e.width);
  const u128 biases = m.bias ? product(bias_of_width, e.width) + product(h) : 0;
  t.matrix(experts, checked_mul(weights, static_cast<u128>(e.experts)));
  t.other(experts, checked_mul(biases, static_cast<u128>(e.experts)));
  const std::int64_t idle = std::max<std::int64_t>(0, e.experts - e.picks);
  t.idle_matrix(checked_mul(weights, static_cast<u128>(idle)));
  t.idle_other(checked_mul(biases, static_cast<u128>(idle)));
  t.matrix(experts, product(matrices, h, e.shared, e.shared_width));
  if (m.bias && e.shared > 0) t.other(experts, product(bias_of_width, e.shared, e.shared_width) + product(h));  // one wide MLP: one bias behind it
  if (e.shared_gate) t.matrix(router, product(h));
  t.matrix(router, product(h, e.experts + e.noops));
  if (e.router_bias) t.other(router, product(e.experts + e.noops));
  if (e.correction_bias) t.other(router, product(e.experts));
}

void count_route(Tally& t, const Network& net, const Route& r) {
  const std::int64_t h = net.width;
  if (r.router == RouterKind::kLinear) {
    t.matrix(Part::kRouter, product(h));
    if (r.router_bias) t.other(Part::kRouter, 1);
  } else {
    t.matrix(Part::kRouter, product(h, r.router_hidden) + product(r.router_hidden));
    if (r.router_bias) t.other(Part::kRouter, product(r.router_hidden) + 1);
  }
  if (r.predictor)
    t.matrix(Part::kPredictor,
             r.predictor->hidden == 0 ? product(h) : product(h, r.predictor->hidden) + product(r.predictor->hidden));
  t.matrix(Part::kAdapter, product(2, h, r.adapter));
}

// Low-rank adapters: r (a + b) per a x b matrix of each target.
void count_lora(Tally& t, const Network& net, const BlockConfig& b, const Lora& lora) {
  const std::int64_t h = net.width;
  for (const std::string& target : lora.targets) {
    u128 in = 0;
    u128 out = 0;
    u128 copies = 1;
    const bool in_mlp = target == "up" || target == "gate" || target == "down";
    if (in_mlp) {
      if (!b.mlp || (target == "gate" && !b.mlp->gated)) continue;
      const std::int64_t width = b.mlp->moe ? b.mlp->moe->width : b.mlp->width;
      if (b.mlp->moe) copies = static_cast<u128>(b.mlp->moe->experts);
      in = static_cast<u128>(h), out = static_cast<u128>(width);
    } else {
      if (!b.attention) continue;
      const AttentionConfig& a = *b.attention;
      if (a.mla) throw_input("adapters on latent attention are not modelled", {net.source, 0, "targets"}, "take q, k, v and o out of [lora] targets");
      in = static_cast<u128>(h), out = product(target == "q" || target == "o" ? a.heads : a.kv_heads, a.head_dim);
    }
    t.matrix(Part::kAdapter, checked_mul(checked_mul(static_cast<u128>(lora.rank), in + out), copies));
    if (b.mlp && b.mlp->moe && in_mlp)
      t.idle_matrix(checked_mul(checked_mul(static_cast<u128>(lora.rank), in + out),
                                copies - static_cast<u128>(std::min(b.mlp->moe->picks, b.mlp->moe->experts))));
  }
}

void count_block(Tally& t, const Network& net, const BlockConfig& b, bool mtp) {
  const auto part = [mtp](Part p) { return mtp ? Part::kMtp : p; };
  t.other(part(Part::kNorm), product(block_norms(b), norm_parameters(net)));
  if (b.attention) count_attention(t, net, *b.attention, part(Part::kProjection), part(Part::kNorm));
  if (b.mlp) count_mlp(t, net, *b.mlp, part(Part::kFfn), part(Part::kExperts), part(Part::kRouter));
  if (b.route) count_route(t, net, *b.route);
  if (net.lora) count_lora(t, net, b, *net.lora);  // a prediction module is one more last layer, adapters included
}

}  // namespace

ParameterCount count_block_parameters(const Network& network, const BlockConfig& block) {
  Tally t;
  count_block(t, network, block, false);
  return t.result();
}

ParameterCount count_parameters(const Network& network) {
  validate(network);
  Tally t;
  const u128 table = product(network.table_rows(), network.width);
  t.table(Part::kEmbedding, table);
  if (network.positions == PositionKind::kLearned)
    t.table(Part::kEmbedding, product(network.max_length, network.width));
  if (network.embedding_norm) t.other(Part::kNorm, product(norm_parameters(network)));
  // Layers of one kind are counted once and multiplied; of layers that share a weight set only the first counts.
  std::vector<std::int64_t> copies(network.kinds.size(), 0);
  std::set<int> counted;
  for (std::int64_t l = 0; l < network.layer_count(); ++l)
    if (network.weights_of.empty() || counted.insert(network.weights_of[static_cast<size_t>(l)]).second)
      ++copies[static_cast<size_t>(network.layers[static_cast<size_t>(l)])];
  for (size_t kind = 0; kind < copies.size(); ++kind) {
    t.times(copies[kind]);
    if (copies[kind] > 0) count_block(t, network, network.kinds[kind], false);
  }
  t.times(1);
  // A prediction module: one more last layer, the 2h -> h projection and three norms (embedding, hidden state, output).
  for (std::int64_t i = 0; i < network.mtp; ++i) {
    count_block(t, network, network.block(network.layer_count() - 1), true);
    t.matrix(Part::kMtp, product(2, network.width, network.width));
    t.other(Part::kMtp, product(3, norm_parameters(network)));
  }
  if (network.final_norm) t.other(Part::kNorm, product(norm_parameters(network)));
  if (network.tied)
    t.tied_head(table);
  else
    t.untied_head(table);
  if (network.head_bias) t.other(Part::kLogits, product(network.table_rows()));
  return t.result();
}

Bytes kv_token_bytes(const BlockConfig& block, DType kv) {
  if (!block.attention) return Bytes(0);
  const AttentionConfig& a = *block.attention;
  if (a.mla) return Bytes(product(a.mla->kv_rank + a.mla->rope_dim, dtype_bytes(kv)));
  return Bytes(product(2, a.kv_heads, a.head_dim, dtype_bytes(kv)));
}

namespace {
// Only a routed attention that reads nothing but selected tokens stores fewer rows.
bool stores_selected(const BlockConfig& block) {
  return block.route && block.route->part != RoutedPart::kMlp && block.route->kv == KvPolicy::kSelected;
}
}  // namespace

// ceil(rows / page) without overflow.
namespace {
std::int64_t pages_of(std::int64_t rows, std::int64_t page) {
  return rows / page + (rows % page != 0);
}
// Decompressed keys and values of latent attention: n (d_qk + d_v) elements.
Bytes naive_token_bytes(const AttentionConfig& a, DType kv) { return Bytes(product(a.heads, a.mla->nope_dim + a.mla->rope_dim + a.mla->v_dim, dtype_bytes(kv))); }

}  // namespace

std::optional<Fraction> kv_share(const BlockConfig& block) {
  if (!stores_selected(block)) return Fraction{1, 1};
  return block.route->capacity;
}

Bytes kv_bytes_per_token(const Network& network, DType kv) {
  Bytes sum;
  for (std::int64_t l = 0; l < network.cached_layers(); ++l) sum += kv_token_bytes(network.cached_block(l), kv);
  return sum;
}

double expected_kv_bytes_per_token(const Network& network, DType kv, std::int64_t length) {
  double sum = 0;
  for (std::int64_t l = 0; l < network.cached_layers(); ++l) {
    const BlockConfig& block = network.cached_block(l);
    const std::optional<Fraction> share = kv_share(block);
    const double stored = share ? share->value()
                                : static_cast<double>(slots_of(*block.route, length)) /
                                      static_cast<double>(std::max<std::int64_t>(1, length));
    sum += stored * kv_token_bytes(block, kv).to_double();
  }
  return sum;
}

std::optional<Fraction> share_taken(const Scenario& scenario) {
  const RoutingRule rule = scenario.rule();
  const bool ranks = rule == RoutingRule::kTopK || rule == RoutingRule::kRandom;
  return ranks && scenario.phase != Phase::kDecode ? std::nullopt : scenario.participation;
}

std::int64_t kv_rows(const BlockConfig& block, std::int64_t length, const std::optional<Fraction>& taken) {
  if (!block.attention) return 0;
  std::int64_t rows = length;
  if (stores_selected(block)) {
    Route route = *block.route;
    if (taken) route.capacity = taken, route.slots.reset(), route.min_slots = 0;
    rows = slots_of(route, length);
  }
  if (block.attention->window > 0) rows = std::min(rows, block.attention->window);
  if (block.attention->chunk > 0) rows = std::min(rows, block.attention->chunk);
  return rows;
}

Bytes kv_bytes(const Network& network, std::int64_t length, std::int64_t sequences, DType kv, std::int64_t page, MlaStrategy strategy, const std::optional<Fraction>& taken) {
  if (page < 1) throw_input(fmt::format("must be at least 1 row, not {}", page), {"", 0, "kv-page"});
  if (length < 0 || sequences < 0) throw_input("a cache needs non-negative lengths and sequence counts");
  Bytes sum;
  for (size_t kind = 0; kind < network.kinds.size(); ++kind) {
    const auto layers = std::count(network.layers.begin(), network.layers.end(), static_cast<int>(kind)) + (network.layers.back() == static_cast<int>(kind) ? network.mtp : 0);
    const BlockConfig& block = network.kinds[kind];
    const std::int64_t pages = pages_of(kv_rows(block, length, taken), page);
    const bool naive = strategy == MlaStrategy::kNaive && block.attention && block.attention->mla;
    const Bytes token = naive ? naive_token_bytes(*block.attention, kv) : kv_token_bytes(block, kv);
    sum += token * product(pages, page, sequences, layers);
  }
  return sum;
}

Bytes kv_bytes_of(const Network& network, std::span<const std::int64_t> rows, std::int64_t sequences, DType kv,
                  std::int64_t page) {
  if (page < 1) throw_input(fmt::format("must be at least 1 row, not {}", page), {"", 0, "kv-page"});
  if (sequences < 0 || rows.size() != static_cast<size_t>(network.layer_count() * sequences))
    throw_input(
        fmt::format("{} row counts for {} layers x {} sequences", rows.size(), network.layer_count(), sequences));
  Bytes sum;
  for (std::int64_t l = 0; l < network.layer_count(); ++l) {
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::int64_t held = rows[static_cast<size_t>(l * sequences + s)];
      if (held < 0) throw_input("a negative number of cached rows");
      sum += kv_token_bytes(network.block(l), kv) * product(pages_of(held, page), page);
    }
  }
  return sum;
}

}  // namespace fathom
