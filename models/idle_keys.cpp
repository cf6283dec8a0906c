#include "models/idle_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "models/network_keys.hpp"

namespace fathom {
namespace {

// A key of [network], and when nothing reads it.
struct NetworkRule {
  const char* key;
  bool (*idle)(const Network&);
  const char* why;
};
// A key about blocks: idle where it is so in every block that the section is about.
struct BlockRule {
  const char* key;
  bool (*idle)(const BlockConfig&);
  const char* why;
};

bool rotates(const BlockConfig& block) { return block.attention && (block.attention->rope_dim > 0 || (block.attention->mla && block.attention->mla->rope_dim > 0)); }
bool no_attention(const BlockConfig& block) { return !block.attention; }
bool no_mlp(const BlockConfig& block) { return !block.mlp; }
const MoeConfig* experts_of(const BlockConfig& block) { return block.mlp && block.mlp->moe ? &*block.mlp->moe : nullptr; }

constexpr NetworkRule kNetworkRules[] = {
    {"rope_base", [](const Network& n) { return std::none_of(n.kinds.begin(), n.kinds.end(), rotates); }, "no block rotates queries and keys"},
    {"norm_bias", [](const Network& n) { return n.norm == NormKind::kRms; }, "an RMS norm has no bias"},
};

constexpr const char* kNoAttention = "the block has no attention";
constexpr const char* kNoMlp = "the block has neither MLP nor experts";
constexpr BlockRule kBlockRules[] = {
    {"heads", no_attention, kNoAttention},
    {"kv_heads", no_attention, kNoAttention},
    {"head_dim", no_attention, kNoAttention},
    {"rope_dim", no_attention, kNoAttention},
    {"window", no_attention, kNoAttention},
    {"chunk", no_attention, kNoAttention},
    {"qkv_bias", no_attention, kNoAttention},
    {"out_bias", no_attention, kNoAttention},
    {"qk_norm", no_attention, kNoAttention},
    {"sinks", no_attention, kNoAttention},
    {"gated", no_mlp, kNoMlp},
    {"activation", no_mlp, kNoMlp},
    {"mlp_bias", no_mlp, kNoMlp},
    {"parallel_norms", [](const BlockConfig& b) { return !b.parallel; }, "the block is not parallel"},
    {"expert_rounding", [](const BlockConfig& b) { return experts_of(b) && !experts_of(b)->capacity; }, "without expert_capacity no number of slots is rounded"},
    {"rounding", [](const BlockConfig& b) { return b.route && b.route->slots.has_value(); }, "slots are a whole number already"},
    {"min_slots", [](const BlockConfig& b) { return b.route && b.route->slots.has_value(); }, "slots say how many there are"},
    {"kv", [](const BlockConfig& b) { return b.route && (b.route->part == RoutedPart::kMlp || !b.attention); }, "attention is not routed, so that every token has keys and values whatever it says"},
    {"gate_alpha", [](const BlockConfig& b) { return b.route && b.route->gate.kind != GateKind::kScaledSigmoid && b.route->gate.kind != GateKind::kTanh; }, "only the gates scaled-sigmoid and tanh read it"},
    {"gate_beta", [](const BlockConfig& b) { return b.route && b.route->gate.kind != GateKind::kTanh; }, "only the gate tanh reads it"},
    {"gate_on", [](const BlockConfig& b) { return b.route && b.route->gate.kind == GateKind::kNone; }, "there is no gate"},
    {"aux_detached", [](const BlockConfig& b) { return b.route && b.route->aux_lambda == 0; }, "aux_lambda is 0, so there is no auxiliary loss"},
};

// Why `key` changes nothing for the kinds `governed`, indices into network.kinds; "" where it does, or may.
std::string why_idle(const std::string& key, const Network& network, std::span<const std::size_t> governed) {
  for (const NetworkRule& rule : kNetworkRules)
    if (key == rule.key) return rule.idle(network) ? rule.why : "";
  if (governed.empty()) return "";
  for (const BlockRule& rule : kBlockRules)
    if (key == rule.key && std::all_of(governed.begin(), governed.end(), [&](std::size_t kind) { return rule.idle(network.kinds[kind]); })) return rule.why;
  return "";
}

template <class T>
bool states_more(const std::vector<KeyRow<T>>& rows, const IniValue& value, const T& standard) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const KeyRow<T>& each) { return value.where().key == each.key; });
  if (row == rows.end()) return false;
  T stated = standard;
  row->read(stated, value);
  return row->write(stated) != row->write(standard);
}

bool states_more(const IniValue& value) {
  BlockDraft standard;
  standard.mla.emplace(), standard.moe.emplace(), standard.route.emplace();
  return states_more(network_rows(), value, Network()) || states_more(block_rows(), value, standard) || states_more(moe_rows(), value, standard) || states_more(route_rows(), value, standard);
}

}  // namespace

std::vector<std::string> idle_keys(const IniFile& file, const Network& network, const std::vector<const IniSection*>& block_sections) {
  std::vector<std::string> notes;
  for (const IniSection& section : file.sections()) {
    std::vector<std::size_t> governed;
    for (std::size_t kind = 0; kind < network.kinds.size(); ++kind) {
      const BlockConfig& block = network.kinds[kind];
      if (section.name() == "network" || (section.name() == "moe" && experts_of(block)) || (section.name() == "route" && block.route) ||
          (kind < block_sections.size() && block_sections[kind] == &section))
        governed.push_back(kind);
    }
    for (const std::string& key : section.keys()) {
      const IniValue value = section.get(key);
      const std::string why = why_idle(key, network, governed);
      if (!why.empty() && states_more(value)) notes.push_back(fmt::format("line {}: {} changes nothing: {}", value.where().line, key, why));
    }
  }
  if (!network.lora) return notes;
  const std::vector<std::string>& targets = network.lora->targets;
  const bool of_mlp = std::any_of(targets.begin(), targets.end(), [](const std::string& target) { return target == "up" || target == "gate" || target == "down"; });
  const bool shared = std::any_of(network.kinds.begin(), network.kinds.end(), [](const BlockConfig& kind) { return experts_of(kind) && experts_of(kind)->shared > 0; });
  if (of_mlp && shared) notes.emplace_back("[lora] targets: routed experts get adapters, shared experts get none");
  return notes;
}

}  // namespace fathom
