// Formulas printed in papers and notebooks.
#include "models/count/rules.hpp"
#include "models/params.hpp"

namespace fathom::rules {
namespace {

// 2 (N_act - N_pos) + 4 L n q S; q = (d_qk + d_v) / 2. `untied_table`: whether N includes an untied input table. `windows`: min(W, S) keys in place of S.
void by_active_parameters(Ledger& ledger, const Forms& forms, bool untied_table, bool windows = false) {
  if (windows)
    whole_window(ledger, forms);
  else
    full_square(ledger, forms);
  all_vectors(ledger, forms);
  if (untied_table && !forms.network.tied) input_table(ledger, forms);
  Rational params = Rational::of(count_parameters(forms.network).active.value());
  if (forms.network.positions == PositionKind::kLearned) params = params - Rational(forms.network.max_length) * forms.width;
  if (!untied_table && !forms.network.tied) params = params - forms.logits() / Rational(2);
  to_total(ledger, forms, Rational(2) * params + ledger[Term::kCore]);
}

void full(Ledger& ledger, const Forms& forms) {
  full_square(ledger, forms);
  ledger.change(Term::kMtp, forms.mtp(forms.length, true, true), "mask: S keys per query instead of the causal (S+1)/2");
}

void palm(Ledger& ledger, const Forms& forms) { by_active_parameters(ledger, forms, true); }
void torchtitan(Ledger& ledger, const Forms& forms) { by_active_parameters(ledger, forms, false); }
void torchtitan_4300(Ledger& ledger, const Forms& forms) { by_active_parameters(ledger, forms, false, true); }

void kaplan(Ledger& ledger, const Forms& forms) {
  half_square(ledger, forms);
  ledger.change(Term::kCore, forms.sum([&](const BlockConfig& b) {
    if (!b.attention) return Rational();
    return Rational(2) * forms.length * b.attention->heads * (b.attention->mla ? b.attention->mla->v_dim : b.attention->head_dim);
  }), "latent attention: query and key width taken as the value width");
  all_vectors(ledger, forms);
  ledger.change(Term::kLogits, 0, "logits not counted: parameters without embeddings");
  to_total(ledger, forms, Rational(2) * Rational::of(count_parameters(forms.network).active_without_embeddings.value()) + ledger[Term::kCore]);
}

void softmax3(Ledger& ledger, const Forms& forms) {
  ledger.change(Term::kSoftmax, forms.sum([&](const BlockConfig& b) { return b.attention ? Rational(3) * b.attention->heads * forms.length : Rational(); }),
                "softmax counted as 3 FLOP per element");
}

void chinchilla(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  full_square(ledger, forms);
  softmax3(ledger, forms);
  ledger.change(Term::kProjections, forms.sum([&](const BlockConfig& b) {
    return b.attention ? Rational(8) * forms.width * b.attention->heads * b.attention->head_dim : Rational();
  }), "keys and values projected for every query head");
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) { return b.mlp ? Rational(4) * forms.width * b.mlp->width : Rational(); }), "two FFN matrices");
  input_table(ledger, forms);
}

// The reading that reproduces the ladder table of the Chinchilla paper: layers only, with the model's own heads and FFN.
void layers_only(Ledger& ledger, const Forms& forms) {
  full_square(ledger, forms);
  softmax3(ledger, forms);
  ledger.change(Term::kLogits, 0, "logits not counted");
}

void chinchilla_a4(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  layers_only(ledger, forms);
}

void mod_a(Ledger& ledger, const Forms& forms) {
  full(ledger, forms);
  layers_only(ledger, forms);
}

void mod_b(Ledger& ledger, const Forms& forms) {
  full(ledger, forms);
  softmax3(ledger, forms);
}

void mod_c(Ledger& ledger, const Forms& forms) {
  mod_b(ledger, forms);
  input_table(ledger, forms);
}

void nanogpt(Ledger& ledger, const Forms& forms) {
  gpt_shape(ledger, forms);
}

void six_nd(Ledger& ledger, const Forms& forms) {
  all_vectors(ledger, forms);
  ledger.change(Term::kCore, 0, "attention core not counted: parameters only");
  if (!forms.network.tied) input_table(ledger, forms);
  if (forms.network.positions == PositionKind::kLearned)
    ledger.add(Term::kInputTable, Rational(2) * forms.network.max_length * forms.width, "position table counted as a matrix product");
  to_total(ledger, forms, Rational(2) * Rational::of(count_parameters(forms.network).active.value()));
}

}  // namespace

Rule paper_rule(std::string_view name) {
  if (name == "exact") return {nullptr, [](Ledger&, const Forms&) {}};
  if (name == "full") return {nullptr, full};
  if (name == "palm") return {nullptr, palm};
  if (name == "torchtitan") return {nullptr, torchtitan};
  if (name == "torchtitan-4300") return {nullptr, torchtitan_4300};
  if (name == "kaplan") return {nullptr, kaplan};
  if (name == "chinchilla") return {no_experts_or_latents, chinchilla};
  if (name == "chinchilla-a4") return {no_experts_or_latents, chinchilla_a4};
  if (name == "nanogpt") return {no_experts_or_latents, nanogpt};
  if (name == "mod-a") return {nullptr, mod_a};
  if (name == "mod-b") return {nullptr, mod_b};
  if (name == "mod-c") return {nullptr, mod_c};
  if (name == "6nd" || name == "8nd") return {nullptr, six_nd};
  return {};
}

}  // namespace fathom::rules
