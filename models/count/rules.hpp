// The steps from `exact` to each preset (internal to models/count). Grouped by who published them.
#pragma once

#include <string>
#include <string_view>

#include "models/count/ledger.hpp"

namespace fathom::rules {

struct Rule {
  // Why the formula says nothing about a network; nullptr: it always does.
  std::string (*unavailable)(const Forms&) = nullptr;
  void (*apply)(Ledger&, const Forms&) = nullptr;
};

// ---- steps that several presets share ----

// The attention core of every layer over `keys(block)` keys per query.
template <class F>
void core_over(Ledger& ledger, const Forms& forms, F&& keys, std::string_view reason) {
  ledger.change(Term::kCore, forms.sum([&](const BlockConfig& b) { return Forms::pair_cost(b) * keys(b); }), reason);
}
void ignore_windows(Ledger& ledger, const Forms& forms);
void full_square(Ledger& ledger, const Forms& forms);   // S keys per query, windows ignored
void half_square(Ledger& ledger, const Forms& forms);   // S/2 keys per query, windows ignored
void whole_window(Ledger& ledger, const Forms& forms);  // min(W, S) keys per query
void half_window(Ledger& ledger, const Forms& forms);   // min(W, S)/2 keys per query
Rational window_of(const BlockConfig& block, const Forms& forms);  // min(W, S), S without a window
// What no tool's formula has: adapters, prediction modules, expert capacity and no-op experts.
void plain_model(Ledger& ledger, const Forms& forms);
void no_router(Ledger& ledger);
void all_vectors(Ledger& ledger, const Forms& forms);   // 2 FLOP per norm gain and bias
void input_table(Ledger& ledger, const Forms& forms);   // 2hV: one-hot lookup
void square_width(Ledger& ledger, const Forms& forms, const Rational& kv_share);  // projections 4h^2 + 4h^2 kv_share: h for n d
void gpt_shape(Ledger& ledger, const Forms& forms);      // every model taken as GPT-2: the width alone gives heads and FFN, S keys per query
// After the named steps: the rest of the way to a total by parameters (shared weights once, prediction modules by parameters).
void to_total(Ledger& ledger, const Forms& forms, const Rational& total);

std::string no_experts_or_latents(const Forms& forms);
std::string no_latents(const Forms& forms);
std::string one_kind(const Forms& forms);  // no latents, and all layers alike

// ---- presets ----
Rule rule_of(std::string_view name);
Rule paper_rule(std::string_view name);    // full, palm, torchtitan, kaplan, chinchilla, chinchilla-a4, nanogpt, mod-a, mod-b, mod-c, 6nd, 8nd
Rule trainer_rule(std::string_view name);  // maxtext, megatron, megatron-bridge, nemo, olmo-core, verl, gpt-neox, trl, levanter
Rule tool_rule(std::string_view name);     // litgpt, vllm, llm-analysis, cookbook, fvcore

// cookbook with its factor F: 1 inference, 3 training; applied to a ledger that starts at exact.
Rational cookbook_total(const Forms& forms, std::int64_t factor);

}  // namespace fathom::rules
