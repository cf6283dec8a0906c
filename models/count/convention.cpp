#include "models/count/convention.hpp"

#include <fmt/format.h>

#include <vector>

#include "lib/error.hpp"
#include "models/count/rules.hpp"

namespace fathom {
namespace {

constexpr std::string_view kUnrouted = "depth routing is not known: routed blocks counted on all rows, without their routers";

// The presets that know depth routing, on a network that has it: sums over the op list with the whole square.
ConventionCount count_routed(const Convention& convention, const Network& network, std::int64_t length) {
  ConventionCount count;
  Ledger ledger(list_terms(network, length, false));
  count.exact = ledger.total();
  if (convention.name != "exact") {
    Rational softmax;
    const Terms full = list_terms(network, length, true, &softmax);
    ledger.change(Term::kCore, full[static_cast<size_t>(Term::kCore)], "mask: the whole square of the keys a block sees instead of the causal triangle");
    ledger.change(Term::kMtp, full[static_cast<size_t>(Term::kMtp)], "mask: the whole square of the keys a block sees instead of the causal triangle");
    if (convention.name != "full") ledger.change(Term::kSoftmax, Rational(3) * softmax, "softmax counted as 3 FLOP per element");
    if (convention.name == "mod-a") ledger.change(Term::kLogits, 0, "logits not counted");
    if (convention.name == "mod-c")
      ledger.add(Term::kInputTable, Forms(network, length).logits(), "input table counted as a matrix product (a gather costs 0 FLOP)");
  }
  count.per_token = ledger.total();
  count.reasons = ledger.reasons();
  count.terms = ledger.terms();
  return count;
}

}  // namespace

ConventionCount count_convention(const Convention& convention, const Network& network, std::int64_t length) {
  validate(network);
  if (length < 1) throw_input("a convention needs at least one token", {"", 0, "seq"});
  if (network.has_routes() && convention.routed) return count_routed(convention, network, length);
  const Network dense = network.has_routes() ? dense_twin(network) : network;
  const Forms forms(dense, length);
  const rules::Rule rule = rules::rule_of(convention.name);
  if (!rule.apply) throw_internal(fmt::format("convention '{}' has no rule", convention.name));
  ConventionCount count;
  Ledger ledger(exact_terms(network, length));
  count.exact = ledger.total();
  if (rule.unavailable) count.unavailable = rule.unavailable(forms);
  if (!count.unavailable.empty()) return count;
  if (network.has_routes()) {
    const Terms terms = forms.exact();
    for (int t = 0; t < kTermCount; ++t) ledger.change(static_cast<Term>(t), terms[static_cast<size_t>(t)], kUnrouted);
  }
  rule.apply(ledger, forms);
  count.per_token = ledger.total();
  count.reasons = ledger.reasons();
  count.terms = ledger.terms();
  return count;
}

Rational training_per_token(const Convention& convention, const Network& network, std::int64_t length, bool full_recompute) {
  const ConventionCount count = count_convention(convention, network, length);
  if (!count.unavailable.empty()) throw_input(fmt::format("'{}' says nothing about this network: {}", convention.name, count.unavailable), {network.source, 0, "convention"});
  if (convention.name == "cookbook") {
    const Network dense = network.has_routes() ? dense_twin(network) : network;
    return rules::cookbook_total(Forms(dense, length), 3);
  }
  const bool again = convention.name == "8nd" || (convention.name == "gpt-neox" && full_recompute);
  return count.per_token * Rational(again ? 4 : 3);
}

namespace {

// `of_training` gives the FLOPs of a training step per token.
template <class PerToken>
std::optional<Rational> whole_step(const Convention& convention, const Network& network, const Scenario& scenario, std::string& unavailable, PerToken&& of_training) {
  unavailable.clear();
  if (scenario.phase == Phase::kDecode || scenario.phase == Phase::kGenerate)
    unavailable = fmt::format("'{}' is defined for forward and training passes over whole sequences", convention.name);
  else if (scenario.past > 0)
    unavailable = fmt::format("'{}' is not defined for a chunk after cached tokens", convention.name);
  else
    unavailable = count_convention(convention, network, scenario.length).unavailable;
  if (!unavailable.empty()) return std::nullopt;
  const Rational tokens = Rational(scenario.batch) * scenario.length;
  if (scenario.phase == Phase::kPrefill) return tokens * count_convention(convention, network, scenario.length).per_token;
  return tokens * scenario.grad_accumulation * of_training();
}

}  // namespace

std::optional<Rational> convention_step(const Convention& convention, const Network& network, const Scenario& scenario, std::string& unavailable) {
  return whole_step(convention, network, scenario, unavailable,
                    [&] { return training_per_token(convention, network, scenario.length, scenario.recompute == Recompute::kFull); });
}

std::optional<Rational> convention_model_step(const Convention& convention, const Network& network, const Scenario& scenario, std::string& unavailable) {
  const Convention& once = convention.name == "8nd" ? find_convention("6nd") : convention;
  return whole_step(convention, network, scenario, unavailable, [&] { return training_per_token(once, network, scenario.length); });
}

std::string_view convention_warning(const Convention& convention) {
  if (convention.name == "full" || convention.name == "mod-b" || convention.name == "mod-a" || convention.name == "mod-c")
    return "the whole attention square is counted: a causal kernel computes half of it, so an MFU under this convention can pass 100 %";
  if (convention.name == "fvcore") return "the unit is multiply-adds (MAC), not FLOP";
  return {};
}

const Convention& find_convention(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
      {"maxtext", "causal-half"}, {"torch", "full"}, {"nanotron", "full"}, {"llm-foundry", "palm"}, {"bridge", "megatron-bridge"},
      {"ptflops", "fvcore"},      {"thop", "fvcore"}, {"mod-d", "exact"},
  };
  std::string_view wanted = name;
  for (const auto& [alias, target] : kAliases)
    if (alias == name) wanted = target;
  std::vector<std::string> names;
  for (const Convention& convention : conventions()) {
    if (convention.name == wanted) return convention;
    names.emplace_back(convention.name);
  }
  for (const auto& [alias, target] : kAliases) names.emplace_back(alias);
  throw_input(fmt::format("unknown convention '{}'", name.substr(0, 60)), {"", 0, "convention"}, name_hint(name, names));
}

}  // namespace fathom
