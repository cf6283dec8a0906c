#include "models/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/error.hpp"

namespace fathom {
namespace {

template <class Enum, size_t N>
Enum parse_named(std::string_view text, std::string_view what, const std::array<std::string_view, N>& names) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  throw_input(fmt::format("unknown {} '{}'", what, text), {}, name_hint(text, std::vector<std::string>(names.begin(), names.end())));
}

constexpr std::array<std::string_view, 4> kPhases = {"train", "prefill", "decode", "generate"};
constexpr std::array<std::string_view, 3> kLogits = {"all", "last", "none"};
constexpr std::array<std::string_view, 4> kRouting = {"topk", "threshold", "predictor", "random"};
constexpr std::array<std::string_view, 4> kRecompute = {"none", "selective", "full", "named"};
constexpr std::array<std::string_view, 3> kMla = {"naive", "absorbed", "decompress"};

constexpr std::int64_t kMostTokens = 1'000'000;

// The words of a list joined by ',' or '+'; an empty or repeated word is an error.
std::vector<std::string> words_of(std::string_view text, std::string_view flag) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (c == ',' || c == '+')
      words.emplace_back();
    else
      words.back().push_back(c);
  }
  if (words.size() > 256) throw_input(fmt::format("a list of {} names; 256 are the most", words.size()), {"", 0, std::string(flag)});
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty()) throw_input(fmt::format("'{}' has an empty name", text.substr(0, 60)), {"", 0, std::string(flag)}, "write names joined by commas");
    if (std::find(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i), words[i]) != words.begin() + static_cast<std::ptrdiff_t>(i))
      throw_input(fmt::format("'{}' is listed twice", words[i].substr(0, 60)), {"", 0, std::string(flag)});
  }
  return words;
}

}  // namespace

RoutingRule Scenario::rule() const {
  if (routing) return *routing;
  return phase == Phase::kTrain || phase == Phase::kPrefill ? RoutingRule::kTopK : RoutingRule::kThreshold;
}

std::string_view phase_name(Phase phase) { return kPhases[static_cast<size_t>(phase)]; }
Phase parse_phase(std::string_view text) { return parse_named<Phase>(text, "phase", kPhases); }
std::string_view logits_name(LogitsKind logits) { return kLogits[static_cast<size_t>(logits)]; }
LogitsKind parse_logits(std::string_view text) { return parse_named<LogitsKind>(text, "logits choice", kLogits); }
std::string_view routing_name(RoutingRule rule) { return kRouting[static_cast<size_t>(rule)]; }
RoutingRule parse_routing(std::string_view text) { return parse_named<RoutingRule>(text, "routing rule", kRouting); }
std::string_view recompute_name(Recompute recompute) { return kRecompute[static_cast<size_t>(recompute)]; }

void parse_recompute(std::string_view text, Scenario& scenario) {
  scenario.recompute_ops.clear();
  for (size_t i = 0; i < 3; ++i)
    if (kRecompute[i] == text) {
      scenario.recompute = static_cast<Recompute>(i);
      return;
    }
  scenario.recompute = Recompute::kNamed;
  scenario.recompute_ops = words_of(text, "recompute");
  // Sorted: the order of a list says nothing, and equal policies compare equal.
  std::sort(scenario.recompute_ops.begin(), scenario.recompute_ops.end());
  for (const std::string& word : scenario.recompute_ops)
    if (std::find(kRecompute.begin(), kRecompute.end(), word) != kRecompute.end())
      throw_input(fmt::format("'{}' is a policy of its own and stands alone", word), {"", 0, "recompute"}, "none, selective, full, or op names such as attn/core,mlp/act");
}

std::string recompute_text(const Scenario& scenario) {
  return scenario.recompute == Recompute::kNamed ? fmt::format("{}", fmt::join(scenario.recompute_ops, "+")) : std::string(recompute_name(scenario.recompute));
}

namespace {
struct FusionName {
  std::string_view name;
  bool Fusions::*member;
};
constexpr std::array kFusionNames = {FusionName{"qkv", &Fusions::qkv}, FusionName{"attention", &Fusions::attention}, FusionName{"gate-up", &Fusions::gate_up},
                                     FusionName{"norm", &Fusions::norm}, FusionName{"residual", &Fusions::residual}};
}  // namespace

Fusions parse_fusions(std::string_view text) {
  Fusions fusions{false, false, false, false, false};
  if (text == "none") return fusions;
  if (text == "all") return {true, true, true, true, true};
  for (const std::string& word : words_of(text, "fusion")) {
    const auto* found = std::find_if(kFusionNames.begin(), kFusionNames.end(), [&](const FusionName& each) { return each.name == word; });
    if (word == "none" || word == "all") throw_input(fmt::format("'{}' stands alone", word), {"", 0, "fusion"});
    if (found == kFusionNames.end()) {
      std::vector<std::string> names = {"none", "all"};
      for (const FusionName& each : kFusionNames) names.emplace_back(each.name);
      throw_input(fmt::format("unknown fusion '{}'", word.substr(0, 60)), {"", 0, "fusion"}, name_hint(word, names));
    }
    fusions.*(found->member) = true;
  }
  return fusions;
}

std::string fusions_text(const Fusions& fusions) {
  std::string text;
  for (const FusionName& each : kFusionNames)
    if (fusions.*(each.member)) text += (text.empty() ? "" : "+") + std::string(each.name);
  return text.empty() ? "none" : text;
}
std::string_view mla_name(MlaStrategy mla) { return kMla[static_cast<size_t>(mla)]; }
MlaStrategy parse_mla(std::string_view text) { return parse_named<MlaStrategy>(text, "strategy of latent attention", kMla); }

void validate(const Scenario& scenario) {
  const auto at_least = [](std::int64_t value, std::int64_t least, std::string_view name) {
    if (value < least) throw_input(fmt::format("must be at least {}, not {}", least, value), {"", 0, std::string(name)});
    if (value > (std::int64_t{1} << 40)) throw_input(fmt::format("is absurdly large ({})", value), {"", 0, std::string(name)});
  };
  at_least(scenario.batch, 1, "batch");
  at_least(scenario.length, 1, "seq");
  at_least(scenario.past, 0, "past");
  at_least(scenario.kv_page, 1, "kv-page");
  at_least(scenario.grad_accumulation, 1, "grad-accumulation");
  if (scenario.phase == Phase::kDecode) at_least(scenario.context, 1, "context");
  if (scenario.phase == Phase::kGenerate) at_least(scenario.tokens, 1, "tokens");
  if (scenario.tokens > kMostTokens) throw_input(fmt::format("a generation of more than {} tokens is counted step by step and would take minutes", kMostTokens), {"", 0, "tokens"});
  if (scenario.phase == Phase::kTrain && scenario.weight_dtype && *scenario.weight_dtype != scenario.dtype)
    throw_input(fmt::format("training keeps its weights in the compute type {}; {} weights are for prefill and decode", dtype_name(scenario.dtype), dtype_name(*scenario.weight_dtype)),
                {"", 0, "weight-dtype"});
  if (scenario.participation && (scenario.participation->num < 0 || scenario.participation->num > scenario.participation->den))
    throw_input(fmt::format("participation must lie in [0, 1], not {}", scenario.participation->str()), {"", 0, "participation"});
}

}  // namespace fathom
