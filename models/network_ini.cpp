#include "models/network_ini.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "models/idle_keys.hpp"
#include "models/ini.hpp"
#include "models/layer_pattern.hpp"
#include "models/limits.hpp"
#include "models/network_keys.hpp"

namespace fathom {
namespace {

// Keys that say where blocks stand rather than what they are.
struct LayoutKey {
  const char* section;
  const char* key;
  const char* values;
  const char* standard;
  const char* meaning;
};
constexpr LayoutKey kLayout[] = {
    {"network", "layers", "integer", "the pattern's length", "L, number of blocks; required without pattern"},
    {"network", "pattern", "words, N*word, N*(words)", "none",
     "the [block.NAME] of every layer, as in 17*(dense mod) dense"},
    {"network", "weights", "numbers as a pattern", "none",
     "weight set of every layer; equal numbers share weights (recursion)"},
    {"moe", "every", "integer", "1", "layer l (from 0) has experts iff l mod every = every - 1"},
    {"moe", "first_dense", "integer", "0", "layers at the start that keep the dense MLP"},
    {"moe", "at", "list of layers and ranges", "none",
     "the layers with experts, as in 3, 5-9; excludes every, first_dense"},
    {"route", "every", "integer", "one of every, at, capacities",
     "layer l (from 0) is routed iff l mod every = every - 1"},
    {"route", "at", "list of layers and ranges", "one of every, at, capacities", "the routed layers, as in 1, 3, 5-9"},
    {"route", "capacities", "fractions or - as a pattern", "one of every, at, capacities",
     "capacity of every layer; - is a full block"},
};

template <class T>
void add_keys(std::vector<std::string>& keys, const std::vector<KeyRow<T>>& rows) {
  for (const KeyRow<T>& row : rows) keys.emplace_back(row.key);
}
void add_layout(std::vector<std::string>& keys, std::string_view section) {
  for (const LayoutKey& row : kLayout)
    if (row.section == section) keys.emplace_back(row.key);
}

template <class T>
void read_rows(const IniSection& section, const std::vector<KeyRow<T>>& rows, T& target) {
  for (const KeyRow<T>& row : rows)
    if (const std::optional<IniValue> value = section.find(row.key)) row.read(target, *value);
}

std::vector<std::string> words_of(const IniValue& value) {
  return value.parse([](std::string_view text) { return parse_layer_pattern(text); });
}

// "1, 3, 5-9" as a set of layers below `layers`.
std::set<std::int64_t> layer_set(const IniValue& value, std::int64_t layers) {
  std::set<std::int64_t> set;
  for (const IniValue& element : value.list()) {
    const std::size_t dash = element.text().find('-');
    const auto number = [&](std::string part) {
      part.erase(0, part.find_first_not_of(" \t"));
      part.erase(part.find_last_not_of(" \t") + 1);
      return IniValue(part, element.where()).integer(0, layers - 1);
    };
    const std::int64_t first = number(element.text().substr(0, dash));
    const std::int64_t last = dash == std::string::npos ? first : number(element.text().substr(dash + 1));
    if (last < first) element.fail(fmt::format("the range {} runs backwards", element.text()));
    for (std::int64_t l = first; l <= last; ++l)
      if (!set.insert(l).second) element.fail(fmt::format("layer {} is listed twice", l));
  }
  return set;
}

// Keys without a default, of a group that `section` describes: each has to be there, or in `common`, which stands for all blocks.
template <class T>
void require(const IniSection& section, const std::vector<KeyRow<T>>& rows, const IniSection* common = nullptr) {
  for (const KeyRow<T>& row : rows)
    if (std::string_view(row.standard) == "required" && !(common && common->has(row.key))) section.get(row.key);
}
template <class T>
bool has_any(const IniSection& section, const std::vector<KeyRow<T>>& rows) {
  return std::any_of(rows.begin(), rows.end(), [&](const KeyRow<T>& row) { return section.has(row.key); });
}

// A route says how many tokens it takes; `by_layer`: another key does.
void require_share(const IniSection& section, const BlockDraft& draft, bool by_layer = false) {
  if (!draft.route) return;
  if (!by_layer && !draft.route->capacity && !draft.route->slots) throw_input("a routed block needs key 'capacity' or 'slots'", section.where(), "capacity = 1/8 takes an eighth of the tokens");
  if (draft.route->router == RouterKind::kMlp && draft.route->router_hidden == 0) section.get("router_hidden");
}

class Reader {
 public:
  Reader(const IniFile& file, const std::string& name) : file_(file) {
    network_.source = name;
    network_.name = std::filesystem::path(name).stem().string();
  }

  Network run() {
    file_.only({"network", "mla", "moe", "route", "lora", "block.*"});
    const IniSection& section = file_.get("network");
    std::vector<std::string> keys;
    add_keys(keys, network_rows()), add_layout(keys, "network"), add_keys(keys, block_rows());
    section.only(keys);
    for (const char* key : {"width", "vocab"}) section.get(key);
    read_rows(section, network_rows(), network_);
    read_rows(section, block_rows(), base_);
    if (const IniSection* mla = file_.find("mla")) {
      keys.clear();
      add_keys(keys, mla_rows());
      mla->only(keys);
      read_rows(*mla, mla_rows(), base_);
      if (!section.has("pattern")) require(*mla, mla_rows());
    }
    if (section.has("pattern"))
      general(section);
    else
      regular(section);
    if (const auto weights = section.find("weights"))
      for (const std::string& word : words_of(*weights))
        network_.weights_of.push_back(static_cast<int>(IniValue(word, weights->where()).integer(0, 1 << 20)));
    if (const IniSection* lora = file_.find("lora")) {
      keys.clear();
      add_keys(keys, lora_rows());
      lora->only(keys);
      require(*lora, lora_rows());
      network_.lora.emplace();
      read_rows(*lora, lora_rows(), *network_.lora);
    }
    file_.finish();
    check(section);
    for (std::string& note : idle_keys(file_, network_, block_sections_)) network_.notes.push_back(std::move(note));
    const auto states = [&](const IniSection& each) { return each.has("mlp"); };
    const bool none = std::none_of(network_.kinds.begin(), network_.kinds.end(), [](const BlockConfig& kind) { return kind.mlp.has_value(); });
    if (none && std::none_of(file_.sections().begin(), file_.sections().end(), states))
      network_.notes.emplace_back("no block has an MLP, for no key 'mlp' gives its width (mlp = 0 says the same without this note)");
    return std::move(network_);
  }

 private:
  // A file error keeps its place: the key's line where the file has that key, else the section's.
  void check(const IniSection& section) const {
    try {
      validate(network_);
    } catch (const Error& error) {
      throw Error(error.kind(), error.message(), place(section, error.where().key), error.hint());
    }
  }
  Where place(const IniSection& section, const std::string& key) const {
    for (const IniSection& candidate : file_.sections())
      if (candidate.has(key)) return candidate.find(key)->where();
    return {network_.source, section.where().line, key};
  }
  BlockConfig finish(const BlockDraft& draft, const IniSection& section) const {
    try {
      return finished(draft, network_);
    } catch (const Error& error) {
      const std::string& key = error.where().key;
      throw Error(error.kind(), error.message(), section.has(key) ? section.find(key)->where() : place(section, key), error.hint());
    }
  }

  void general(const IniSection& section) {
    for (const char* other : {"moe", "route"})
      if (const IniSection* found = file_.find(other))
        throw_input(fmt::format("[{}] has no meaning beside a pattern", other), found->where(),
                    "write its keys in the [block.NAME] they belong to");
    std::vector<std::string> keys;
    add_keys(keys, block_rows()), add_keys(keys, mla_rows()), add_keys(keys, moe_rows()), add_keys(keys, route_rows());
    std::vector<std::string> names;
    std::vector<const IniSection*> sections;
    for (const IniSection& block : file_.sections()) {
      if (!block.name().starts_with("block.")) continue;
      block.only(keys);
      BlockDraft draft = base_;
      read_rows(block, block_rows(), draft);
      read_rows(block, mla_rows(), draft);
      read_rows(block, moe_rows(), draft);
      read_rows(block, route_rows(), draft);
      if (draft.attention && !section.has("heads")) block.get("heads");
      const IniSection* mla = file_.find("mla");
      if (draft.attention && (mla || has_any(block, mla_rows()))) require(block, mla_rows(), mla);
      if (has_any(block, moe_rows())) require(block, moe_rows());
      require_share(block, draft);
      network_.kinds.push_back(finish(draft, block));
      names.push_back(block.name().substr(6));
      sections.push_back(&block);
    }
    const IniValue pattern = section.get("pattern");
    std::vector<bool> used(names.size(), false);
    for (const std::string& word : words_of(pattern)) {
      const auto found = std::find(names.begin(), names.end(), word);
      if (found == names.end())
        pattern.fail(fmt::format("there is no [block.{}]", word.substr(0, 60)),
                     names.empty() ? "describe each block in its own [block.NAME]" : name_hint(word, names));
      const auto index = static_cast<std::size_t>(found - names.begin());
      used[index] = true;
      network_.layers.push_back(static_cast<int>(index));
    }
    for (std::size_t i = 0; i < used.size(); ++i)
      if (!used[i]) throw_input(fmt::format("[{}] is not in the pattern", sections[i]->name()), sections[i]->where());
    block_sections_ = std::move(sections);
    if (const auto layers = section.find("layers"))
      if (layers->integer(1, kMaxLayers) != network_.layer_count())
        layers->fail(fmt::format("the pattern has {} layers", network_.layer_count()));
  }

  void regular(const IniSection& section) {
    for (const IniSection& block : file_.sections())
      if (block.name().starts_with("block."))
        throw_input(fmt::format("[{}] is used by nothing", block.name()), block.where(),
                    "add pattern = ... to [network]");
    const std::int64_t layers = section.get("layers").integer(1, kMaxLayers);
    if (base_.attention) section.get("heads");
    std::vector<BlockDraft> drafts(static_cast<std::size_t>(layers), base_);
    if (const IniSection* moe = file_.find("moe")) experts(*moe, drafts);
    if (const IniSection* route = file_.find("route")) routes(*route, drafts);
    for (const BlockDraft& draft : drafts) {
      BlockConfig block = finish(draft, section);
      auto found = std::find(network_.kinds.begin(), network_.kinds.end(), block);
      if (found == network_.kinds.end()) found = network_.kinds.insert(found, std::move(block));
      network_.layers.push_back(static_cast<int>(found - network_.kinds.begin()));
    }
  }

  void experts(const IniSection& section, std::vector<BlockDraft>& drafts) const {
    std::vector<std::string> keys;
    add_keys(keys, moe_rows()), add_layout(keys, "moe");
    section.only(keys);
    require(section, moe_rows());
    BlockDraft draft;
    read_rows(section, moe_rows(), draft);
    const auto layers = static_cast<std::int64_t>(drafts.size());
    const std::int64_t every = section.has("every") ? section.get("every").integer(1, layers) : 1;
    const std::int64_t first = section.has("first_dense") ? section.get("first_dense").integer(0, layers) : 0;
    std::optional<std::set<std::int64_t>> at;
    if (const auto list = section.find("at")) {
      if (section.has("every") || section.has("first_dense")) list->fail("'at' excludes 'every' and 'first_dense'");
      at = layer_set(*list, layers);
    }
    for (std::int64_t l = 0; l < layers; ++l)
      if (at ? at->count(l) > 0 : l >= first && l % every == every - 1)
        drafts[static_cast<std::size_t>(l)].moe = draft.moe;
  }

  void routes(const IniSection& section, std::vector<BlockDraft>& drafts) const {
    std::vector<std::string> keys;
    add_layout(keys, "route"), add_keys(keys, route_rows());
    section.only(keys);
    BlockDraft draft;
    draft.route.emplace();
    read_rows(section, route_rows(), draft);
    const auto layers = static_cast<std::int64_t>(drafts.size());
    if (section.has("every") + section.has("at") + section.has("capacities") != 1)
      throw_input("needs exactly one of every, at, capacities", section.where(),
                  "every = 2 routes layers 1, 3, 5, ...");
    require_share(section, draft, section.has("capacities"));
    if (const auto schedule = section.find("capacities")) {
      if (draft.route->capacity || draft.route->slots) schedule->fail("'capacities' excludes 'capacity' and 'slots'");
      const std::vector<std::string> words = words_of(*schedule);
      if (words.size() != drafts.size())
        schedule->fail(fmt::format("{} capacities for {} layers", words.size(), layers));
      for (std::size_t l = 0; l < drafts.size(); ++l) {
        if (words[l] == "-") continue;
        drafts[l].route = draft.route;
        const Fraction capacity = IniValue(words[l], schedule->where()).fraction();
        if (capacity.num < 0 || capacity.num > capacity.den) schedule->fail(fmt::format("layer {}: must lie in [0, 1], not {}", l, words[l].substr(0, 60)));
        drafts[l].route->capacity = capacity;
      }
      return;
    }
    std::set<std::int64_t> at;
    if (const auto list = section.find("at")) {
      at = layer_set(*list, layers);
    } else {
      const std::int64_t every = section.get("every").integer(1, layers);
      for (std::int64_t l = every - 1; l < layers; l += every) at.insert(l);
    }
    for (const std::int64_t l : at) drafts[static_cast<std::size_t>(l)].route = draft.route;
  }

  const IniFile& file_;
  Network network_;
  BlockDraft base_;
  std::vector<const IniSection*> block_sections_;  // of network_.kinds, where a pattern names them
};

}  // namespace

Network parse_network_ini(std::string_view text, const std::string& name) {
  const IniFile file = IniFile::parse(text, name);
  return Reader(file, name).run();
}

Network read_network_ini(const std::string& path) {
  const IniFile file = IniFile::read(path);
  return Reader(file, path).run();
}

const std::vector<IniKeyDoc>& ini_glossary() {
  static const std::vector<IniKeyDoc> docs = [] {
    std::vector<IniKeyDoc> list;
    const auto add = [&list](const char* section, const auto& rows) {
      for (const auto& row : rows) list.push_back({section, row.key, row.values, row.standard, row.meaning});
    };
    const auto layout = [&list](std::string_view section) {
      for (const LayoutKey& row : kLayout)
        if (row.section == section) list.push_back({row.section, row.key, row.values, row.standard, row.meaning});
    };
    add("network", network_rows());
    layout("network");
    add("network, block.*", block_rows());
    add("mla, block.*", mla_rows());
    layout("moe");
    add("moe, block.*", moe_rows());
    layout("route");
    add("route, block.*", route_rows());
    add("lora", lora_rows());
    return list;
  }();
  return docs;
}

}  // namespace fathom
