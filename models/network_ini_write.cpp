// A network as INI text: what all blocks share stands once, defaults not at all.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "models/layer_pattern.hpp"
#include "models/network_ini.hpp"
#include "models/network_keys.hpp"

namespace fathom {
namespace {

// A value as it may stand in a file: no comment sign, no line ends, no control characters.
std::string safe(std::string value) {
  for (char& c : value)
    if (c == '#' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '_';
  return value;
}

std::string block_name(const BlockConfig& block) {
  std::string name = block.route ? "mod" : block.mlp && block.mlp->moe ? "moe" : "dense";
  if (block.route && block.mlp && block.mlp->moe) name = "mode";
  if (block.attention && block.attention->window) name += "-local";
  if (block.attention && block.attention->chunk) name += "-chunked";
  return name;
}

// The text of every block key of a draft; absent groups and defaults give "".
std::map<std::string, std::string> block_texts(const BlockDraft& draft) {
  std::map<std::string, std::string> texts;
  BlockDraft standard;
  standard.mla.emplace(), standard.moe.emplace(), standard.route.emplace();
  for (const auto* rows : {&block_rows(), &mla_rows(), &moe_rows(), &route_rows()})
    for (const KeyRow<BlockDraft>& row : *rows) {
      std::string value = row.write(draft);
      texts[row.key] = value == row.write(standard) ? "" : value;
    }
  return texts;
}

}  // namespace

std::string to_ini(const Network& network) {
  validate(network);
  std::string out;
  for (const std::string& note : network.notes) out += "# " + safe(note) + "\n";
  const auto line = [&out](const std::string& key, const std::string& value) { out += key + " = " + value + "\n"; };

  std::vector<int> used(network.kinds.size(), 0);
  for (int kind : network.layers) used[static_cast<std::size_t>(kind)] = 1;
  std::vector<std::map<std::string, std::string>> texts;
  std::vector<std::string> names;
  std::map<std::string, int> taken;
  for (std::size_t i = 0; i < network.kinds.size(); ++i) {
    texts.push_back(block_texts(draft_of(network.kinds[i], network)));
    const std::string base = block_name(network.kinds[i]);
    names.push_back(used[i] == 0 ? "" : taken[base]++ == 0 ? base : fmt::format("{}{}", base, taken[base]));
  }
  const bool simple =
      network.kinds.size() == 1 && !network.kinds[0].route && !(network.kinds[0].mlp && network.kinds[0].mlp->moe);

  out += "[network]\n";
  const Network standard;
  for (const KeyRow<Network>& row : network_rows()) {
    const std::string value = safe(row.write(network));
    if (!value.empty() && value != row.write(standard)) line(row.key, value);
  }
  line("layers", std::to_string(network.layer_count()));
  if (std::none_of(network.kinds.begin(), network.kinds.end(), [](const BlockConfig& kind) { return kind.mlp.has_value(); })) line("mlp", "0");
  if (!simple) {
    std::vector<std::string> words;
    for (int kind : network.layers) words.push_back(names[static_cast<std::size_t>(kind)]);
    line("pattern", layer_pattern_text(words));
  }
  if (!network.weights_of.empty()) {
    std::vector<std::string> words;
    for (int set : network.weights_of) words.push_back(std::to_string(set));
    line("weights", layer_pattern_text(words));
  }
  // Keys on which all blocks agree stand once, in [network] or [mla]; the rest in each block.
  std::map<std::string, bool> common;
  for (const auto* rows : {&block_rows(), &mla_rows()}) {
    bool head = rows == &block_rows();
    for (const KeyRow<BlockDraft>& row : *rows) {
      common[row.key] = true;
      const std::string* first = nullptr;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        if (used[i] == 0) continue;
        if (first != nullptr && *first != texts[i][row.key]) common[row.key] = false;
        if (first == nullptr) first = &texts[i][row.key];
      }
      if (!common[row.key] || first == nullptr || first->empty()) continue;
      if (!head) out += "\n[mla]\n";
      head = true;
      line(row.key, *first);
    }
  }
  for (std::size_t i = 0; i < texts.size() && !simple; ++i) {
    if (used[i] == 0) continue;
    out += fmt::format("\n[block.{}]\n", names[i]);
    for (const auto* rows : {&block_rows(), &mla_rows(), &moe_rows(), &route_rows()})
      for (const KeyRow<BlockDraft>& row : *rows)
        if (!common[row.key] && !texts[i][row.key].empty()) line(row.key, texts[i][row.key]);
  }
  if (network.lora) {
    out += "\n[lora]\n";
    for (const KeyRow<Lora>& row : lora_rows()) line(row.key, row.write(*network.lora));
  }
  return out;
}

}  // namespace fathom
