#include "models/count/rules.hpp"

#include <algorithm>

#include "models/params.hpp"

namespace fathom::rules {

void ignore_windows(Ledger& ledger, const Forms& forms) {
  const Rational causal = (forms.length + Rational(1)) / Rational(2);
  core_over(ledger, forms, [&](const BlockConfig&) { return causal; }, "windows and chunks ignored: every layer sees the whole context");
}

void full_square(Ledger& ledger, const Forms& forms) {
  ignore_windows(ledger, forms);
  core_over(ledger, forms, [&](const BlockConfig&) { return forms.length; }, "mask: S keys per query instead of the causal (S+1)/2");
}

void half_square(Ledger& ledger, const Forms& forms) {
  ignore_windows(ledger, forms);
  core_over(ledger, forms, [&](const BlockConfig&) { return forms.length / Rational(2); }, "mask: S/2 keys per query instead of the causal (S+1)/2");
}

Rational window_of(const BlockConfig& block, const Forms& forms) {
  return block.attention && block.attention->window > 0 ? std::min(Rational(block.attention->window), forms.length) : forms.length;
}

void whole_window(Ledger& ledger, const Forms& forms) {
  core_over(ledger, forms, [&](const BlockConfig& b) { return window_of(b, forms); }, "mask: min(W, S) keys per query instead of the exact causal count");
}

void half_window(Ledger& ledger, const Forms& forms) {
  core_over(ledger, forms, [&](const BlockConfig& b) { return window_of(b, forms) / Rational(2); }, "mask: min(S, W)/2 keys per query instead of the exact causal count");
}

namespace {
void plain_experts(Ledger& ledger, const Forms& forms) {
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) { return forms.plain_ffn(b); }), "expert capacity and no-op experts are not known: k experts for every token");
}
}  // namespace

void plain_model(Ledger& ledger, const Forms& forms) {
  ledger.change(Term::kAdapters, 0, "low-rank adapters not counted");
  ledger.change(Term::kMtp, 0, "prediction modules not counted");
  plain_experts(ledger, forms);
}

void no_router(Ledger& ledger) { ledger.change(Term::kRouter, 0, "expert routers not counted"); }

void all_vectors(Ledger& ledger, const Forms& forms) {
  plain_experts(ledger, forms);
  const ParameterCount params = count_parameters(forms.network);
  Rational vectors = Rational::of(params.active.value()) - Rational::of(params.active_matmul.value());
  if (forms.network.positions == PositionKind::kLearned) vectors = vectors - Rational(forms.network.max_length) * forms.width;
  if (!forms.network.tied) vectors = vectors - forms.logits() / Rational(2);
  ledger.change(Term::kVectors, Rational(2) * vectors, "norm gains and biases counted as if they were matrices");
}

void input_table(Ledger& ledger, const Forms& forms) {
  ledger.add(Term::kInputTable, forms.logits(), "input table counted as a matrix product (a gather costs 0 FLOP)");
}

void square_width(Ledger& ledger, const Forms& forms, const Rational& kv_share) {
  const Rational h2 = forms.width * forms.width;
  ledger.change(Term::kProjections, forms.layers * (Rational(4) * h2 + Rational(4) * h2 * kv_share),
                kv_share == Rational(1) ? "projections taken as 8 h^2: square, all heads have keys and values" : "projections taken as 4 h^2 + 4 h^2 m/n: h for heads x head size");
}

void gpt_shape(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  full_square(ledger, forms);
  ledger.change(Term::kCore, forms.layers * Rational(4) * forms.length * forms.width, "attention core: width h in place of heads x head size");
  square_width(ledger, forms, 1);
  ledger.change(Term::kFfn, forms.layers * Rational(16) * forms.width * forms.width, "FFN taken as two matrices of width 4h");
}

void to_total(Ledger& ledger, const Forms& forms, const Rational& total) {
  ledger.add(Term::kOther, total - ledger.total(),
             forms.network.mtp > 0 ? "prediction modules by their parameters: without attention core and logits"
             : forms.network.weights_of.empty() ? "parameters in place of uses"
                                                : "weights shared by layers count once, not once per use");
}

std::string no_experts_or_latents(const Forms& forms) {
  if (forms.has_mla()) return "the formula has no latent attention";
  return forms.has_moe() ? "the formula has no experts" : "";
}

std::string no_latents(const Forms& forms) { return forms.has_mla() ? "the formula has no latent attention" : ""; }

std::string one_kind(const Forms& forms) {
  if (forms.has_mla()) return "the formula has no latent attention";
  return forms.uniform() ? "" : "the formula has one kind of layer, this network several";
}

Rule rule_of(std::string_view name) {
  for (const auto& group : {paper_rule, trainer_rule, tool_rule})
    if (const Rule rule = group(name); rule.apply) return rule;
  return {};
}

}  // namespace fathom::rules
