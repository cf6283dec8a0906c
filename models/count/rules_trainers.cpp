// Formulas of training frameworks.
#include "models/count/rules.hpp"

namespace fathom::rules {
namespace {

void maxtext(Ledger& ledger, const Forms& forms) {
  const Rational two = 2;
  const auto keys = [&](const BlockConfig& b) {
    const Rational s = forms.length;
    if (b.attention && b.attention->chunk > 0 && Rational(b.attention->chunk) < s) {  // half of each chunk's square
      const std::int64_t chunk = b.attention->chunk;
      const std::int64_t tokens = static_cast<std::int64_t>(s.num());
      const Rational rest = tokens % chunk;
      return (Rational(tokens / chunk) * chunk * chunk + rest * rest) / (two * s);
    }
    const Rational w = window_of(b, forms);
    return w - w * w / (two * s);
  };
  core_over(ledger, forms, keys, "mask: S/2 keys per query (window W - W^2/2S, half of each chunk) instead of the exact causal count");
  ledger.change(Term::kAdapters, 0, "low-rank adapters not counted");
  if (forms.network.mtp > 0) {
    const BlockConfig& last = forms.network.block(forms.network.layer_count() - 1);
    ledger.change(Term::kMtp, forms.mtp(keys(last), false, true), "prediction modules without their projection and logits");
  }
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) { return forms.plain_ffn(b); }), "expert capacity and no-op experts are not known: k experts for every token");
}

// What megatron, megatron-bridge and nemo have in common besides the core.
void megatron_terms(Ledger& ledger, const Forms& forms, bool latent_norms) {
  ledger.change(Term::kAdapters, 0, "low-rank adapters not counted");
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) { return forms.plain_ffn(b); }), "expert capacity and no-op experts are not known: k experts for every token");
  no_router(ledger);
  constexpr std::string_view kLatentNorms = "norms of the latent query and key/value counted";
  const auto norms_of_latents = [latent_norms](const BlockConfig& b) {
    return latent_norms && b.attention && b.attention->mla ? Rational(2) * (b.attention->mla->query_rank + b.attention->mla->kv_rank) : Rational();
  };
  ledger.change(Term::kVectors, forms.sum(norms_of_latents), kLatentNorms);
  if (forms.network.mtp > 0) {
    ledger.change(Term::kMtp, forms.mtp(forms.length / Rational(2), true, false), "prediction modules without router, half mask");
    ledger.add(Term::kMtp, Rational(6) * forms.width * forms.network.mtp, "prediction modules with their norms");
    // Upstream's attention terms are those of num_layers + mtp_num_layers layers.
    ledger.add(Term::kMtp, norms_of_latents(forms.network.block(forms.network.layer_count() - 1)) * Rational(forms.network.mtp), kLatentNorms);
  }
}

void megatron(Ledger& ledger, const Forms& forms) {
  half_square(ledger, forms);
  megatron_terms(ledger, forms, true);
}

void megatron_3280(Ledger& ledger, const Forms& forms) {
  half_window(ledger, forms);
  megatron_terms(ledger, forms, true);
}

void megatron_bridge(Ledger& ledger, const Forms& forms) {
  core_over(ledger, forms, [&](const BlockConfig& b) {
    const Rational w = window_of(b, forms);
    return w < forms.length ? w - w * (w - Rational(1)) / (Rational(2) * forms.length) : forms.length / Rational(2);
  }, "mask: S/2 keys per query without a window, exact with one; chunks ignored");
  megatron_terms(ledger, forms, true);
}

bool gpt3_family(const Forms& forms) {
  if (forms.network.positions != PositionKind::kLearned || forms.has_moe() || forms.has_mla()) return false;
  return forms.sum([](const BlockConfig& b) { return Rational(b.mlp && b.mlp->gated ? 1 : 0); }).zero();
}

void nemo(Ledger& ledger, const Forms& forms) {
  half_square(ledger, forms);
  megatron_terms(ledger, forms, false);
  if (!gpt3_family(forms)) return;
  ledger.change(Term::kCore, forms.layers * Rational(2) * forms.length * forms.width, "attention core: width h in place of heads x head size");
  square_width(ledger, forms, 1);
  ledger.change(Term::kFfn, forms.layers * Rational(16) * forms.width * forms.width, "FFN taken as two matrices of width 4h");
  ledger.change(Term::kLogits, Rational(2) * forms.width * Rational(51200), "vocabulary fixed at 51 200");
}

void nemo_transformer(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  half_square(ledger, forms);
  no_router(ledger);
  const BlockConfig& block = forms.first();
  const bool moe = block.mlp && block.mlp->moe;
  const Rational width = !block.mlp ? 0 : moe ? block.mlp->moe->width : block.mlp->width;
  const Rational picks = moe ? block.mlp->moe->picks : 1;
  const Rational plain = forms.layers * Rational(4) * forms.width * width;
  ledger.change(Term::kFfn, plain * picks, "two FFN matrices");
  ledger.change(Term::kFfn, plain * (Rational(1) + picks) / Rational(2), "half of the layers taken as mixture-of-experts layers");
}

void olmo_core(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  whole_window(ledger, forms);
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) {
    if (!b.mlp || !b.mlp->moe) return forms.plain_ffn(b);
    return Rational(b.mlp->gated ? 6 : 4) * forms.width * b.mlp->moe->picks * b.mlp->moe->width;
  }), "shared experts not counted");
  ledger.change(Term::kRouter, forms.sum([&](const BlockConfig& b) {
    return b.mlp && b.mlp->moe ? Rational(2) * forms.width * (b.mlp->moe->experts + b.mlp->moe->noops) : Rational();
  }), "gate of the shared expert not counted");
  const Network& network = forms.network;
  Rational vectors = forms.sum([&](const BlockConfig& b) {
    Rational biases;
    if (b.attention) {
      const Rational d = b.attention->head_dim;
      if (b.attention->qkv_bias) biases += d * (b.attention->heads + 2 * b.attention->kv_heads);
      if (b.attention->out_bias) biases += forms.width;
    }
    if (b.mlp && b.mlp->bias) {
      const Rational inner = b.mlp->gated ? 2 : 1;
      biases += b.mlp->moe ? Rational(b.mlp->moe->picks) * (inner * b.mlp->moe->width + forms.width) : inner * b.mlp->width + forms.width;
    }
    return biases;
  });
  if (network.final_norm && network.norm_gain) vectors += forms.width * Rational(network.norm == NormKind::kLayer && network.norm_bias ? 2 : 1);
  ledger.change(Term::kVectors, Rational(2) * vectors, "biases of attention and FFN, and the final norm, counted as if they were matrices");
}

void verl(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  half_window(ledger, forms);
  input_table(ledger, forms);
}

void gpt_neox(Ledger& ledger, const Forms& forms) {
  gpt_shape(ledger, forms);
  no_router(ledger);
  ledger.change(Term::kLogits, forms.logits() * Rational(3, 4), "logits with a factor 3/4: 4.5hV of 6hV in training");
}

void trl(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  full_square(ledger, forms);
  const auto experts = [&](const BlockConfig& b) { return b.mlp->moe ? Rational(b.mlp->moe->picks) * b.mlp->moe->width : Rational(b.mlp->width); };
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) { return b.mlp ? Rational(b.mlp->gated ? 6 : 4) * forms.width * experts(b) : Rational(); }), "shared experts not counted");
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) { return b.mlp ? Rational(6) * forms.width * experts(b) : Rational(); }), "a third FFN matrix where there are two");
  ledger.change(Term::kRouter, forms.sum([&](const BlockConfig& b) { return b.mlp && b.mlp->moe ? Rational(2) * forms.width * b.mlp->moe->experts : Rational(); }),
                "no-op outputs and the gate of the shared expert not counted");
  if (!forms.network.tied) input_table(ledger, forms);
}

void levanter(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  full_square(ledger, forms);
  ledger.change(Term::kCore, forms.layers * Rational(4) * forms.length * forms.width, "attention core: width h in place of heads x head size");
  const BlockConfig& block = forms.first();
  const Rational heads = block.attention ? block.attention->heads : 1;
  square_width(ledger, forms, block.attention ? Rational(block.attention->kv_heads) / heads : Rational(1));
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) {
    if (!b.mlp || !b.mlp->moe) return forms.plain_ffn(b);
    return Rational(b.mlp->gated ? 6 : 4) * forms.width * b.mlp->moe->width * (b.mlp->moe->picks + b.mlp->moe->shared);
  }), "shared experts taken as wide as routed ones");
  ledger.change(Term::kRouter, forms.sum([&](const BlockConfig& b) { return b.mlp && b.mlp->moe ? Rational(2) * forms.width * b.mlp->moe->experts : Rational(); }),
                "no-op outputs and the gate of the shared expert not counted");
  ledger.change(Term::kSoftmax, forms.layers * Rational(3) * forms.length * heads, "softmax counted as 3 FLOP per element");
}

}  // namespace

Rule trainer_rule(std::string_view name) {
  if (name == "causal-half") return {nullptr, maxtext};
  if (name == "megatron") return {nullptr, megatron};
  if (name == "megatron-bridge") return {nullptr, megatron_bridge};
  if (name == "megatron-3280") return {nullptr, megatron_3280};
  if (name == "nemo") return {nullptr, nemo};
  if (name == "nemo-transformer") return {one_kind, nemo_transformer};
  if (name == "olmo-core") return {no_latents, olmo_core};
  if (name == "verl") return {nullptr, verl};
  if (name == "gpt-neox") return {nullptr, gpt_neox};
  if (name == "trl") return {no_latents, trl};
  if (name == "levanter") return {one_kind, levanter};
  return {};
}

}  // namespace fathom::rules
