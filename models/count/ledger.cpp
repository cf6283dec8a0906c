#include "models/count/ledger.hpp"

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/expert_loads.hpp"
#include "models/pairs.hpp"

namespace fathom {

std::string_view term_name(Term term) {
  switch (term) {
    case Term::kProjections: return "projections";
    case Term::kCore: return "attention core";
    case Term::kFfn: return "FFN";
    case Term::kRouter: return "routers";
    case Term::kLogits: return "logits";
    case Term::kInputTable: return "input tables";
    case Term::kVectors: return "gains and biases";
    case Term::kSoftmax: return "softmax";
    case Term::kAdapters: return "adapters";
    case Term::kMtp: return "prediction modules";
    case Term::kOther: return "other";
  }
  return "?";
}

Rational Ledger::total() const {
  Rational sum;
  for (const Rational& term : terms_) sum += term;
  return sum;
}

void Ledger::change(Term term, const Rational& value, std::string_view reason) {
  Rational& now = terms_[static_cast<size_t>(term)];
  const Rational difference = value - now;
  now = value;
  if (difference.zero()) return;
  for (Reason& known : reasons_) {
    if (known.text != reason) continue;
    known.flops += difference;
    return;
  }
  reasons_.push_back({std::string(reason), difference});
}

Forms::Forms(const Network& net, std::int64_t tokens) : network(net), length(tokens), width(net.width), layers(net.layer_count()), copies_(net.kinds.size(), 0) {
  if (tokens < 1) throw_input("a convention needs at least one token", {"", 0, "seq"});
  for (int kind : net.layers) ++copies_[static_cast<size_t>(kind)];
}

bool Forms::uniform() const {
  for (size_t kind = 0; kind < copies_.size(); ++kind)
    if (copies_[kind] > 0 && !(network.kinds[kind].attention == first().attention && network.kinds[kind].mlp == first().mlp)) return false;
  return true;
}

bool Forms::has_moe() const {
  return !sum([](const BlockConfig& b) { return Rational(b.mlp && b.mlp->moe ? 1 : 0); }).zero();
}

bool Forms::has_mla() const {
  return !sum([](const BlockConfig& b) { return Rational(b.attention && b.attention->mla ? 1 : 0); }).zero();
}

Rational Forms::projections(const BlockConfig& block) const {
  if (!block.attention) return 0;
  const AttentionConfig& a = *block.attention;
  const Rational n = a.heads;
  if (a.mla) {
    const Mla& m = *a.mla;
    const Rational qk = m.nope_dim + m.rope_dim;
    const Rational query = m.query_rank > 0 ? width * m.query_rank + Rational(m.query_rank) * n * qk : width * n * qk;
    return Rational(2) * (query + width * (m.kv_rank + m.rope_dim) + Rational(m.kv_rank) * n * (m.nope_dim + m.v_dim) + n * m.v_dim * width);
  }
  return Rational(2) * width * a.head_dim * (Rational(2) * n + Rational(2) * a.kv_heads);
}

Rational Forms::pair_cost(const BlockConfig& block) {
  if (!block.attention) return 0;
  const AttentionConfig& a = *block.attention;
  if (a.mla) return Rational(2) * a.heads * (a.mla->nope_dim + a.mla->rope_dim + a.mla->v_dim);
  return Rational(4) * a.heads * a.head_dim;
}

Rational Forms::keys(const BlockConfig& block) const {
  if (!block.attention) return 0;
  const Mask mask{MaskKind::kCausal, block.attention->window, block.attention->chunk};
  return Rational::of(visible_pairs(mask, static_cast<std::int64_t>(length.num()), 0)) / length;
}

Rational Forms::plain_ffn(const BlockConfig& block) const {
  if (!block.mlp) return 0;
  const Rational per_width = Rational(block.mlp->gated ? 6 : 4) * width;  // 2 g h
  if (!block.mlp->moe) return per_width * block.mlp->width;
  const MoeConfig& e = *block.mlp->moe;
  return per_width * (Rational(e.picks) * e.width + Rational(e.shared) * e.shared_width);
}

Rational Forms::ffn(const BlockConfig& block) const {
  if (!block.mlp || !block.mlp->moe) return plain_ffn(block);
  const MoeConfig& e = *block.mlp->moe;
  Rational assignments = Rational(e.picks);  // declared: no-op choices are an expectation, reported beside
  if (e.capacity) assignments = Rational(e.experts) * expert_slots(e, static_cast<std::int64_t>(length.num())) / length;  // declared slots over T tokens
  const Rational per_width = Rational(block.mlp->gated ? 6 : 4) * width;
  return per_width * (assignments * e.width + Rational(e.shared) * e.shared_width);
}

Rational Forms::router(const BlockConfig& block) const {
  if (!block.mlp || !block.mlp->moe) return 0;
  const MoeConfig& e = *block.mlp->moe;
  return Rational(2) * width * (e.experts + e.noops + (e.shared_gate ? 1 : 0));
}

Rational Forms::logits() const { return Rational(2) * width * network.table_rows(); }

Rational Forms::adapters() const {
  if (!network.lora) return 0;
  const Lora& lora = *network.lora;
  return sum([&](const BlockConfig& b) {
    Rational widths;  // in + out of every adapted matrix, per token
    for (const std::string& target : lora.targets) {
      if (target == "up" || target == "gate" || target == "down") {
        if (!b.mlp || (target == "gate" && !b.mlp->gated)) continue;
        widths += b.mlp->moe ? Rational(b.mlp->moe->picks) * (width + b.mlp->moe->width) : width + b.mlp->width;
      } else if (b.attention) {
        widths += width + Rational(target == "q" || target == "o" ? b.attention->heads : b.attention->kv_heads) * b.attention->head_dim;
      }
    }
    return Rational(2) * lora.rank * widths;
  });
}

Rational Forms::mtp(const Rational& keys_per_query, bool projection_and_logits, bool with_router) const {
  if (network.mtp == 0) return 0;
  const BlockConfig& last = network.block(network.layer_count() - 1);
  Rational module = projections(last) + ffn(last) + pair_cost(last) * keys_per_query;
  if (with_router) module += router(last);
  if (projection_and_logits) module += Rational(4) * width * width + logits();
  return Rational(network.mtp) * module;
}

Terms Forms::exact() const {
  Terms terms;
  const auto set = [&](Term term, const Rational& value) { terms[static_cast<size_t>(term)] = value; };
  set(Term::kProjections, sum([&](const BlockConfig& b) { return projections(b); }));
  set(Term::kCore, sum([&](const BlockConfig& b) { return pair_cost(b) * keys(b); }));
  set(Term::kFfn, sum([&](const BlockConfig& b) { return ffn(b); }));
  set(Term::kRouter, sum([&](const BlockConfig& b) { return router(b); }));
  set(Term::kLogits, logits());
  set(Term::kAdapters, adapters());
  set(Term::kMtp, mtp(network.mtp > 0 ? keys(network.block(network.layer_count() - 1)) : Rational(), true, true));
  return terms;
}

Terms list_terms(const Network& network, std::int64_t length, bool full_mask, Rational* softmax) {
  Scenario scenario;
  scenario.length = length;
  scenario.logits = LogitsKind::kAll;
  scenario.full_mask = full_mask;
  scenario.write_cache = false;
  const Workload workload = build(network, scenario);
  const auto term_of = [](Part part) {
    switch (part) {
      case Part::kProjection: return Term::kProjections;
      case Part::kCore: return Term::kCore;
      case Part::kFfn:
      case Part::kExperts: return Term::kFfn;
      case Part::kRouter:
      case Part::kPredictor: return Term::kRouter;
      case Part::kLogits: return Term::kLogits;
      case Part::kAdapter: return Term::kAdapters;
      case Part::kMtp: return Term::kMtp;
      default: return Term::kOther;
    }
  };
  Terms terms;
  const Rational tokens = length;
  for (int p = 0; p < kPartCount; ++p)
    terms[static_cast<size_t>(term_of(static_cast<Part>(p)))] += Rational::of(workload.total(static_cast<Part>(p)).flops.value()) / tokens;
  if (softmax) *softmax = Rational::of(workload.total()[ElementKind::kSoftmax].value()) / tokens;
  return terms;
}

Terms exact_terms(const Network& network, std::int64_t length) {
  return network.has_routes() ? list_terms(network, length, false) : Forms(network, length).exact();
}

}  // namespace fathom
