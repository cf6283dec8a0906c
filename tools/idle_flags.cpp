#include "tools/idle_flags.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"

namespace fathom {
namespace {

bool asked(const std::vector<std::string>& phases, const char* phase) { return std::find(phases.begin(), phases.end(), phase) != phases.end(); }

template <class Has>
bool any_attention(const Network& network, Has has) {
  return std::any_of(network.kinds.begin(), network.kinds.end(), [&](const BlockConfig& kind) { return kind.attention && has(*kind.attention); });
}

// One of a comma-separated list of routing rules.
bool names_rule(const std::string& routing, RoutingRule rule) {
  const std::vector<std::string> words = split(routing, ',');
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return parse_routing(word) == rule; });
}

}  // namespace

std::vector<std::string> idle_in_phases(const ScenarioFlags& flags, const std::vector<std::string>& phases) {
  const bool train = asked(phases, "train"), prefill = asked(phases, "prefill"), decode = asked(phases, "decode"), generate = asked(phases, "generate");
  const bool caches = prefill || decode || generate;
  const bool whole = train || prefill;  // passes over a sequence
  struct Use {
    const char* flag;
    bool given, read;
    const char* where;
  };
  const Use uses[] = {
      {"--context", !flags.context.empty(), decode, "only decode reads it"},
      {"--prompt", !flags.prompt.empty(), generate, "only generate reads it"},
      {"--tokens", !flags.tokens.empty(), generate, "only generate reads it"},
      {"--past", !flags.past.empty(), prefill, "only prefill reads it"},
      {"--recompute", !flags.recompute.empty(), train, "only train reads it"},
      {"--grad-accumulation", !flags.grad_accumulation.empty(), train, "only train reads it"},
      {"--grad-dtype", !flags.grad_dtype.empty(), train, "only train reads it"},
      {"--no-optimizer", flags.no_optimizer, train, "only train reads it"},
      {"--kv-page", !flags.kv_page.empty(), caches, "training keeps no cache"},
      {"--kv-dtype", !flags.kv_dtype.empty(), caches, "training keeps no cache"},
      {"--logits", !flags.logits.empty() && flags.logits != "all" && !generate, prefill || decode, "the loss of a training step needs the logits of all tokens"},
      {"--logits", !flags.logits.empty() && flags.logits != "last" && generate, prefill || decode, "a generation takes the logits of the last token alone"},
      {"--seq", !flags.seq.empty() && generate && !flags.prompt.empty(), whole || (decode && flags.context.empty()), "--prompt says how long the prompt is"},
      {"--seq", !flags.seq.empty() && decode && !flags.context.empty() && !(generate && !flags.prompt.empty()), whole || generate, "--context says which keys the new token sees"},
      {"--mla", flags.mla == "decompress" && train, caches, "a training step has no cache that it could decompress; it is the same as naive"},
  };
  std::vector<std::string> notes;
  for (const Use& use : uses)
    if (use.given && !use.read) notes.push_back(fmt::format("{} changes nothing here: {}", use.flag, use.where));
  const std::vector<std::string> strategies = split(flags.mla, ',');
  if (train && (caches || strategies.size() > 1) && std::find(strategies.begin(), strategies.end(), "decompress") != strategies.end())
    notes.emplace_back("--mla decompress is naive in training: a training step has no cache that it could decompress");
  return notes;
}

std::vector<std::string> idle_in_network(const ScenarioFlags& flags, const std::vector<std::string>& phases, const Network& network, bool routed) {
  std::vector<std::string> notes;
  const auto note = [&](const char* flag, const std::string& why) { notes.push_back(fmt::format("{} changes nothing in {}: {}", flag, network.name, why)); };
  if (!flags.mla.empty() && !any_attention(network, [](const AttentionConfig& a) { return a.mla.has_value(); })) note("--mla", "it has no latent attention");
  const bool local = any_attention(network, [](const AttentionConfig& a) { return a.window > 0 || a.chunk > 0; });
  const bool only_decode = std::all_of(phases.begin(), phases.end(), [](const std::string& phase) { return phase == "decode"; });
  if (flags.full_mask && only_decode && !local) note("--full-mask", "the one query of a decode step sees every key anyway");
  if (!routed) {
    if (!flags.routing.empty()) note("--routing", "no block is routed");
    if (!flags.participation.empty()) note("--participation", "no block is routed");
    return notes;
  }
  const bool decides_each = asked(phases, "decode") || asked(phases, "generate");  // steps that know no whole sequence
  const bool ranked = flags.routing.empty() || !(names_rule(flags.routing, RoutingRule::kThreshold) || names_rule(flags.routing, RoutingRule::kPredictor));
  if (!flags.participation.empty() && ranked && !decides_each) {
    if (!flags.routing.empty())
      throw_input(fmt::format("--routing {} takes a fixed number of tokens, --participation says what share of them passes a threshold", flags.routing), {"", 0, "--participation"},
                  "leave one of them out, or write --routing threshold");
    note("--participation", "top-k takes a fixed number of tokens; add --routing threshold");
  }
  if (!flags.routing.empty() && only_decode && ranked) note("--routing", "a decode step knows no whole sequence and decides by threshold");
  return notes;
}

std::vector<std::string> note_cache_type(const Network& network, Phase phase, DType compute, DType cache, bool past) {
  if (phase != Phase::kPrefill || past || compute == cache || !any_attention(network, [](const AttentionConfig&) { return true; })) return {};
  return {"--kv-dtype: a prefill without cached tokens reads the keys and values that it has just made, in the type of compute, and writes the cache in the other; after --past, and in decode, they are read from the cache"};
}

std::vector<std::string> idle_twin(bool slots, bool rounding) {
  if (!slots || !rounding) return {};
  return {"--rounding changes nothing here: --slots is a whole number already"};
}

std::vector<std::string> idle_strict(bool strict, const std::vector<std::string>& models) {
  std::vector<std::string> notes;
  if (!strict) return notes;
  if (std::none_of(models.begin(), models.end(), [](const std::string& model) { return model.ends_with(".json"); })) notes.emplace_back("--strict changes nothing here: it is about config.json files");
  return notes;
}

}  // namespace fathom
