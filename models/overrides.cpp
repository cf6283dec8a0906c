#include "models/overrides.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/layer_rules.hpp"
#include "models/limits.hpp"
#include "models/network_keys.hpp"

namespace fathom {
namespace {

constexpr const char* kSections[] = {"network", "network", "network", "mla", "moe", "route", "lora", "moe", "moe", "route", ""};

// Keys of a file that no value of a range can replace, and what does.
struct FixedKey {
  const char* key;
  const char* why;
  const char* hint;
};
constexpr FixedKey kFixed[] = {
    {"name", "is a label and changes no figure", "leave it out"},
    {"summary", "is a label and changes no figure", "leave it out"},
    {"pattern", "names the block of every layer", "layers, first_dense, moe.every and route.every follow rules; else write a file per pattern: a sweep takes several models"},
    {"weights", "names the weight set of every layer", "write a file per pattern: a sweep takes several models"},
    {"at", "lists layers one by one", "first_dense, moe.every and route.every follow rules; else write a file per list: a sweep takes several models"},
    {"capacities", "gives every layer its own capacity", "capacity=LIST sets one in all routed layers; else write a file per schedule: a sweep takes several models"},
};

template <class T>
std::ptrdiff_t row_of(const std::vector<KeyRow<T>>& rows, std::string_view key) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].key == key) return static_cast<std::ptrdiff_t>(i);
  return -1;
}

template <class T>
void add_names(std::vector<std::string>& names, const std::vector<KeyRow<T>>& rows) {
  for (const KeyRow<T>& row : rows) names.emplace_back(row.key);
}

// "name" and "summary" are words about a network, no part of it.
bool is_label(std::string_view key) { return key == "name" || key == "summary"; }

bool has_experts(const Network& network) {
  return std::any_of(network.kinds.begin(), network.kinds.end(), [](const BlockConfig& kind) { return kind.mlp && kind.mlp->moe; });
}

bool same_from(const std::vector<int>& layers, std::size_t prefix, std::size_t period) {
  for (std::size_t i = prefix + period; i < layers.size(); ++i)
    if (layers[i] != layers[i - period]) return false;
  return true;
}

}  // namespace

NetworkOverrides::NetworkOverrides(std::vector<std::string> keys) : keys_(std::move(keys)) {
  using enum Target::Table;
  for (const std::string& full : keys_) {
    const std::size_t dot = full.find('.');
    const std::string section = dot == std::string::npos ? "" : full.substr(0, dot);
    const std::string key = dot == std::string::npos ? full : full.substr(dot + 1);
    const auto find = [&](Target::Table table, std::ptrdiff_t row) {
      if (row < 0 || is_label(key)) return false;
      if (!section.empty() && section != kSections[static_cast<int>(table)]) return false;
      targets_.push_back({table, static_cast<std::size_t>(row)});
      return true;
    };
    const auto layout = [&](const char* name) { return key == name ? 0 : -1; };
    if (find(kLayers, layout("layers")) || (!section.empty() && (find(kMoeEvery, layout("every")) || find(kRouteEvery, layout("every")))) || find(kFirstDense, layout("first_dense")) ||
        find(kEvery, layout("every")) || find(kNetwork, row_of(network_rows(), key)) || find(kBlock, row_of(block_rows(), key)) ||
        find(kMla, row_of(mla_rows(), key)) || find(kMoe, row_of(moe_rows(), key)) || find(kRoute, row_of(route_rows(), key)) ||
        find(kLora, row_of(lora_rows(), key)))
      continue;
    for (const FixedKey& fixed : kFixed)
      if (key == fixed.key) throw_input(fmt::format("'{}' {}: it is nothing to vary", full.substr(0, 80), fixed.why), {"", 0, ""}, fixed.hint);
    std::vector<std::string> names = {"layers", "first_dense", "every"};
    add_names(names, network_rows()), add_names(names, block_rows()), add_names(names, mla_rows()), add_names(names, moe_rows());
    add_names(names, route_rows()), add_names(names, lora_rows());
    std::erase_if(names, is_label);
    throw_input(fmt::format("unknown network key '{}'", full.substr(0, 80)), {"", 0, ""}, name_hint(key, names) + " (fathom explain ini lists all)");
  }
  const auto place_of = [&](std::size_t i, bool any) { return any && (targets_[i].table == kMoeEvery || targets_[i].table == kRouteEvery) ? kEvery : targets_[i].table; };
  for (std::size_t i = 0; i < keys_.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const bool any = targets_[i].table == kEvery || targets_[j].table == kEvery;
      if (place_of(i, any) == place_of(j, any) && targets_[i].row == targets_[j].row) throw_input(fmt::format("'{}' is varied twice", keys_[i]));
    }
  const auto row_is = [&](const Target& target, Target::Table table, std::string_view key) {
    return target.table == table && (table == kMoe ? moe_rows()[target.row].key : route_rows()[target.row].key) == key;
  };
  const auto both = [&](Target::Table table, const char* one, const char* other) {
    for (const char* key : {one, other})
      if (std::none_of(targets_.begin(), targets_.end(), [&](const Target& target) { return row_is(target, table, key); })) return;
    throw_input(fmt::format("'{}' and '{}' exclude each other", one, other), {"", 0, ""}, "vary one of them");
  };
  both(kRoute, "capacity", "slots");
  both(kMoe, "expert_skew", "expert_loads");
}

void NetworkOverrides::place(std::span<const IniValue> values, Network& out) const {
  using enum Target::Table;
  std::optional<std::int64_t> experts_every, first_dense, routes_every, dense_width;
  const bool experts = has_experts(out), routes = out.has_routes();
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Target::Table table = targets_[i].table;
    if (table == kBlock && std::string_view(block_rows()[targets_[i].row].key) == "mlp") dense_width = values[i].integer(0, kMaxSize);
    if (table < kMoeEvery) continue;
    const std::int64_t value = values[i].integer(table == kFirstDense ? 0 : 1, out.layer_count());
    if (table == kEvery && experts && routes) throw_input("experts and routes have each a key of this name", {"", 0, keys_[i]}, "write moe.every or route.every");
    if (table == kEvery && !experts && !routes) throw_input(fmt::format("{} has neither experts nor routes", out.name), {"", 0, keys_[i]}, "--mod-every M --capacity F routes a dense model");
    if (table == kFirstDense) first_dense = value;
    else (table == kMoeEvery || (table == kEvery && experts) ? experts_every : routes_every) = value;
  }
  if (!out.weights_of.empty() && (experts_every || first_dense || routes_every)) throw_input("blocks share weights: their layers cannot be moved", {"", 0, "every"});
  if (experts_every || first_dense) place_experts(out, experts_every.value_or(1), first_dense.value_or(0), dense_width);
  if (routes_every) place_routes(out, *routes_every);
}

void NetworkOverrides::apply(const Network& base, std::span<const IniValue> values, Network& out) const {
  using enum Target::Table;
  out = base;
  if (values.size() != keys_.size()) throw_internal("one value per key");
  bool blocks = false;
  bool places = false;
  for (const Target& target : targets_) blocks = blocks || target.table != kLayers, places = places || target.table >= kMoeEvery;
  // Drafts are taken before the network changes: whether a head size is "width / heads" or stated on its own is read off the base.
  const std::size_t kinds = blocks ? base.kinds.size() : 0;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].table == kLayers) repeat_layers(base, values[i].integer(1, kMaxLayers), out);
    if (targets_[i].table == kNetwork) network_rows()[targets_[i].row].read(out, values[i]);
    if (targets_[i].table == kLora) {
      if (!out.lora) throw_input("the model has no adapters", {"", 0, keys_[i]});
      lora_rows()[targets_[i].row].read(*out.lora, values[i]);
    }
  }
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].table < kBlock || targets_[i].table >= kLora) continue;
    const auto has = [&](const BlockConfig& block) {
      switch (targets_[i].table) {
        case kMla: return block.attention && block.attention->mla.has_value();
        case kMoe: return block.mlp && block.mlp->moe.has_value();
        case kRoute: return block.route.has_value();
        default: break;
      }
      const std::string_view key = block_rows()[targets_[i].row].key;
      if (key == "mlp") return block.mlp && (!block.mlp->moe || places);  // a layer that gives its experts away takes one
      if (key == "heads" || key == "kv_heads" || key == "head_dim" || key == "window" || key == "chunk") return block.attention.has_value();
      return true;
    };
    if (std::none_of(base.kinds.begin(), base.kinds.end(), has))
      throw_input(fmt::format("no block of {} has the part that this key describes", base.name), {"", 0, keys_[i]});
  }
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    const BlockConfig& block = base.kinds[kind];
    BlockDraft draft = draft_of(block, base);
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const std::size_t row = targets_[i].row;
      switch (targets_[i].table) {
        case kBlock: block_rows()[row].read(draft, values[i]); break;
        case kMla:
          if (draft.mla) mla_rows()[row].read(draft, values[i]);
          break;
        case kMoe:
          if (draft.moe) {
            // Skew and loads exclude each other; naming one replaces the other.
            const std::string_view key = moe_rows()[row].key;
            if (key == "expert_skew") draft.moe->loads.clear();
            if (key == "expert_loads") draft.moe->skew = 0;
            moe_rows()[row].read(draft, values[i]);
          }
          break;
        case kRoute:
          if (draft.route) {
            // Capacity and slots exclude each other; naming one replaces the other.
            const std::string_view key = route_rows()[row].key;
            if (key == "capacity") draft.route->slots.reset();
            if (key == "slots") draft.route->capacity.reset();
            route_rows()[row].read(draft, values[i]);
          }
          break;
        default: break;
      }
    }
    // A block of experts alone (or of nothing but attention) stays without a dense MLP.
    if (draft.moe || !block.mlp) draft.mlp.width = 0;
    out.kinds[kind] = finished(draft, out);
  }
  if (places) place(values, out);
  validate(out);
}

void repeat_layers(const Network& base, std::int64_t count, Network& out) {
  if (!base.weights_of.empty()) throw_input("blocks share weights: their number cannot be varied", {"", 0, "layers"});
  const std::vector<int>& layers = base.layers;
  std::size_t best_prefix = 0, best_period = layers.size();
  // The shortest description: a prefix, then a period seen at least twice (a uniform tail is a period of 1).
  for (std::size_t length = 1; length <= layers.size(); ++length) {
    bool found = false;
    for (std::size_t period = 1; period <= length && !found; ++period) {
      const std::size_t prefix = length - period;
      if (prefix + 2 * period > layers.size() && !(prefix == 0 && layers.size() == 1)) continue;
      if (same_from(layers, prefix, period)) best_prefix = prefix, best_period = period, found = true;
    }
    if (found) break;
  }
  if (best_period == layers.size() && layers.size() > 1)
    throw_input(fmt::format("the layers of {} follow no period: their number cannot be varied", base.name), {"", 0, "layers"});
  out.layers.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.layers.size(); ++i)
    out.layers[i] = i < best_prefix ? layers[i] : layers[best_prefix + (i - best_prefix) % best_period];
  // Kinds that no layer uses any more would be contradictions.
  std::vector<bool> used(base.kinds.size(), false);
  for (int kind : out.layers) used[static_cast<std::size_t>(kind)] = true;
  if (std::find(used.begin(), used.end(), false) != used.end())
    throw_input(fmt::format("{} layers are too few for the kinds of block of {}", count, base.name), {"", 0, "layers"});
}

}  // namespace fathom
