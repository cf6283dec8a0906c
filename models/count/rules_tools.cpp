// Formulas of inference engines and analysis tools.
#include <algorithm>

#include "models/count/rules.hpp"
#include "models/params.hpp"

namespace fathom::rules {
namespace {

void litgpt(Ledger& ledger, const Forms& forms) {
  full_square(ledger, forms);
  ledger.change(Term::kCore, forms.layers * Rational(4) * forms.length * forms.width, "attention core: width h in place of heads x head size");
  const ParameterCount params = count_parameters(forms.network);
  const Rational idle = Rational::of(params.matmul.value()) - Rational::of(params.active_matmul.value());
  const Rational vectors_of_idle = Rational::of(params.total.value()) - Rational::of(params.active.value()) - idle;
  all_vectors(ledger, forms);
  ledger.add(Term::kFfn, Rational(2) * idle, "all experts counted, not the k a token visits");
  ledger.add(Term::kVectors, Rational(2) * vectors_of_idle, "norm gains and biases counted as if they were matrices");
  if (!forms.network.tied) input_table(ledger, forms);
  if (forms.network.positions == PositionKind::kLearned)
    ledger.add(Term::kInputTable, Rational(2) * forms.network.max_length * forms.width, "position table counted as a matrix product");
  to_total(ledger, forms, Rational(2) * Rational::of(params.total.value()) + ledger[Term::kCore]);
}

void vllm(Ledger& ledger, const Forms& forms) {
  plain_model(ledger, forms);
  core_over(ledger, forms, [&](const BlockConfig& b) {
    return b.attention && b.attention->window > 0 ? std::min(Rational(b.attention->window), forms.length) : forms.length;
  }, "mask: min(W, S) keys per query instead of the exact causal count");
  ledger.change(Term::kFfn, forms.sum([&](const BlockConfig& b) {
    return !b.mlp ? Rational() : b.mlp->gated ? forms.plain_ffn(b) : forms.plain_ffn(b) * Rational(3, 2);
  }), "a third FFN matrix where there are two");
  no_router(ledger);
  ledger.change(Term::kLogits, forms.logits() / forms.length, "logits at the last position only");
}

// k and the router are absent; the dense width where there is one, else an expert's.
void llm_analysis(Ledger& ledger, const Forms& forms, bool gate_flag) {
  plain_model(ledger, forms);
  full_square(ledger, forms);
  ledger.change(Term::kCore, forms.layers * Rational(4) * forms.length * forms.width, "attention core: width h in place of heads x head size");
  const BlockConfig& block = forms.first();
  square_width(ledger, forms, block.attention ? Rational(block.attention->kv_heads) / Rational(block.attention->heads) : Rational(1));
  Rational width;
  bool gated = false;
  for (const BlockConfig& kind : forms.network.kinds) {
    if (!kind.mlp) continue;
    gated = kind.mlp->gated;
    if (!kind.mlp->moe) {
      width = kind.mlp->width;
      break;
    }
    width = kind.mlp->moe->width;
  }
  ledger.change(Term::kFfn, forms.layers * Rational(gated ? 6 : 4) * forms.width * width, "one FFN per layer: chosen and shared experts ignored");
  if (!gate_flag) ledger.change(Term::kFfn, forms.layers * Rational(4) * forms.width * width, "two FFN matrices: the flag for gated FFNs is off by default");
  no_router(ledger);
}

void cookbook(Ledger& ledger, const Forms& forms, std::int64_t factor) {
  plain_model(ledger, forms);
  full_square(ledger, forms);
  const BlockConfig& block = forms.first();
  const Rational f = factor;
  const Rational h2 = forms.width * forms.width;
  const bool moe = block.mlp && block.mlp->moe;
  const Rational x = !block.mlp ? Rational() : Rational(moe ? block.mlp->moe->width : block.mlp->width) / forms.width;
  const Rational matrices = block.mlp && block.mlp->gated ? 3 : 2;
  ledger.change(Term::kCore, forms.layers * Rational(4) * forms.length * forms.width, "attention core: width h in place of heads x head size");
  square_width(ledger, forms, block.attention ? Rational(block.attention->kv_heads) / Rational(block.attention->heads) : Rational(1));
  const Rational picks = moe ? block.mlp->moe->picks : 1;
  const Rational experts = moe ? block.mlp->moe->experts : 0;
  ledger.change(Term::kFfn, Rational(2) * matrices * x * forms.layers * h2 * picks, "shared experts not counted");
  ledger.change(Term::kRouter, Rational(2) * experts * forms.width * forms.layers, "no-op outputs and the gate of the shared expert not counted");
  if (factor != 1) {
    for (Term term : {Term::kCore, Term::kProjections, Term::kFfn, Term::kRouter}) ledger.change(term, ledger[term] * f, "backward of everything but the logits");
  }
  ledger.change(Term::kFfn, (Rational(2) * f * matrices * x).truncated() * forms.layers * h2 * picks, "FFN factor truncated to an integer multiple of h^2");
  ledger.change(Term::kVectors, Rational(4) * forms.width, "4h for norms");
}

void fvcore(Ledger& ledger, const Forms& forms) {
  full_square(ledger, forms);
  ledger.change(Term::kMtp, forms.mtp(forms.length, true, true), "mask: S keys per query instead of the causal (S+1)/2");
  ledger.add(Term::kOther, -(ledger.total() / Rational(2)), "unit: multiply-adds, half of the FLOPs");
}

}  // namespace

Rational cookbook_total(const Forms& forms, std::int64_t factor) {
  Ledger ledger(forms.exact());
  cookbook(ledger, forms, factor);
  return ledger.total();
}

Rule tool_rule(std::string_view name) {
  if (name == "litgpt") return {nullptr, litgpt};
  if (name == "vllm") return {nullptr, vllm};
  if (name == "llm-analysis") return {nullptr, [](Ledger& l, const Forms& f) { llm_analysis(l, f, true); }};
  if (name == "llm-analysis-ungated") return {nullptr, [](Ledger& l, const Forms& f) { llm_analysis(l, f, false); }};
  if (name == "cookbook") return {one_kind, [](Ledger& l, const Forms& f) { cookbook(l, f, 1); }};
  if (name == "fvcore") return {nullptr, fvcore};
  return {};
}

}  // namespace fathom::rules
