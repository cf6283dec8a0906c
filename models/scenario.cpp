#include "models/scenario.hpp"

#include <fmt/format.h>

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
constexpr std::array<std::string_view, 3> kRecompute = {"none", "selective", "full"};
constexpr std::array<std::string_view, 3> kMla = {"naive", "absorbed", "decompress"};

constexpr std::int64_t kMostTokens = 1'000'000;

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
Recompute parse_recompute(std::string_view text) { return parse_named<Recompute>(text, "recomputation policy", kRecompute); }
std::string_view mla_name(MlaStrategy mla) { return kMla[static_cast<size_t>(mla)]; }
MlaStrategy parse_mla(std::string_view text) { return parse_named<MlaStrategy>(text, "strategy of latent attention", kMla); }

void validate(const Scenario& scenario) {
  const auto at_least = [](std::int64_t value, std::int64_t least, std::string_view name) {
    if (value < least) throw_input(fmt::format("{} must be at least {}, not {}", name, least, value), {"", 0, std::string(name)});
    if (value > (std::int64_t{1} << 40)) throw_input(fmt::format("{} is absurdly large ({})", name, value), {"", 0, std::string(name)});
  };
  at_least(scenario.batch, 1, "batch");
  at_least(scenario.length, 1, "seq");
  at_least(scenario.past, 0, "past");
  at_least(scenario.kv_page, 1, "kv-page");
  at_least(scenario.grad_accumulation, 1, "grad-accumulation");
  if (scenario.phase == Phase::kDecode) at_least(scenario.context, 1, "context");
  if (scenario.phase == Phase::kGenerate) at_least(scenario.tokens, 1, "tokens");
  if (scenario.tokens > kMostTokens) throw_input(fmt::format("a generation of more than {} tokens is counted step by step and would take minutes", kMostTokens), {"", 0, "tokens"});
  if (scenario.participation && (scenario.participation->num < 0 || scenario.participation->num > scenario.participation->den))
    throw_input(fmt::format("participation must lie in [0, 1], not {}", scenario.participation->str()), {"", 0, "participation"});
}

}  // namespace fathom
