#include "models/import/hf_reader.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lib/error.hpp"

namespace fathom {
namespace {

bool equal(const JsonNode& a, const JsonNode& b) {
  return a.kind == b.kind && a.truth == b.truth && a.text == b.text && a.names == b.names &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
}

}  // namespace

HfReader::HfReader(const JsonNode& object, std::string file, std::vector<std::string>& notes, std::string prefix)
    : object_(object), file_(std::move(file)), notes_(notes), prefix_(std::move(prefix)) {
  if (object.kind != JsonNode::Kind::kObject)
    throw_input(fmt::format("a configuration must be an object, this is {}", json_kind_name(object.kind)),
                {file_, object.line, prefix_});
}

bool HfReader::is_null(const char* name) const {
  const JsonNode* node = object_.find(name);
  return node != nullptr && node->kind == JsonNode::Kind::kNull;
}

void HfReader::fail(const char* name, const std::string& message, std::string hint) const {
  const JsonNode* node = object_.find(name);
  throw_input(message, {file_, node == nullptr ? object_.line : node->line, prefix_ + name}, std::move(hint));
}

void HfReader::missing(Names names) const {
  const char* name = *names.begin();
  std::vector<std::string> present;
  for (const std::string& key : object_.names) present.push_back(json_excerpt(key));
  const std::string near = nearest_name(name, present);
  throw_input("is missing, and this family has no default for it", {file_, object_.line, prefix_ + name},
              near.empty() ? "" : fmt::format("the file has '{}'", near));
}

const JsonNode* HfReader::find(Names names, const char** found) {
  const JsonNode* first = nullptr;
  for (const char* name : names) {
    asked_.emplace_back(name);
    const JsonNode* node = object_.find(name);
    if (node == nullptr) continue;
    consumed_.insert(name);
    if (first == nullptr) {
      first = node;
      *found = name;
    } else if (!equal(*first, *node)) {
      fail(name, fmt::format("differs from '{}', which means the same", *found), "keep one of the two");
    }
  }
  return first;
}

void HfReader::used_default(Names names, const std::string& value) {
  note(fmt::format("default: {}{} = {}", prefix_, *names.begin(), value));
}

std::int64_t HfReader::to_integer(const char* name, const JsonNode& node, std::int64_t low, std::int64_t high) const {
  if (node.kind != JsonNode::Kind::kInteger)
    fail(name, fmt::format("must be an integer, is {}", json_kind_name(node.kind)));
  std::int64_t value = 0;
  const char* const end = node.text.data() + node.text.size();
  const auto [stop, code] = std::from_chars(node.text.data(), end, value);
  if (code != std::errc() || stop != end || value < low || value > high)
    fail(name, fmt::format("{} is out of range; allowed are {} to {}", json_excerpt(node.text), low, high));
  return value;
}

std::int64_t HfReader::integer(Names names, std::int64_t low, std::int64_t high) {
  const char* found = nullptr;
  const JsonNode* node = find(names, &found);
  if (node == nullptr) missing(names);
  return to_integer(found, *node, low, high);
}

std::int64_t HfReader::integer_or(Names names, std::int64_t standard, std::int64_t low, std::int64_t high) {
  const char* found = nullptr;
  const JsonNode* node = find(names, &found);
  if (node != nullptr) return to_integer(found, *node, low, high);
  used_default(names, std::to_string(standard));
  return standard;
}

std::int64_t HfReader::nullable(Names names, std::optional<std::int64_t> absent, std::int64_t null, std::int64_t low,
                                std::int64_t high) {
  const char* found = nullptr;
  const JsonNode* node = find(names, &found);
  if (node == nullptr) {
    if (!absent) missing(names);
    used_default(names, *absent == 0 ? "none" : std::to_string(*absent));
    return *absent;
  }
  return node->kind == JsonNode::Kind::kNull ? null : to_integer(found, *node, low, high);
}

std::optional<std::int64_t> HfReader::maybe_integer(const char* name, std::int64_t low, std::int64_t high) {
  const char* found = nullptr;
  const JsonNode* node = find({name}, &found);
  if (node == nullptr || node->kind == JsonNode::Kind::kNull) return std::nullopt;
  return to_integer(name, *node, low, high);
}

bool HfReader::boolean_or(Names names, bool standard) {
  const char* found = nullptr;
  const JsonNode* node = find(names, &found);
  if (node == nullptr) {
    used_default(names, standard ? "true" : "false");
    return standard;
  }
  if (node->kind != JsonNode::Kind::kBool)
    fail(found, fmt::format("must be true or false, is {}", json_kind_name(node->kind)));
  return node->truth;
}

double HfReader::real_or(Names names, double standard) {
  const char* found = nullptr;
  const JsonNode* node = find(names, &found);
  if (node == nullptr) {
    used_default(names, fmt::format("{}", standard));
    return standard;
  }
  if (node->kind != JsonNode::Kind::kReal && node->kind != JsonNode::Kind::kInteger)
    fail(found, fmt::format("must be a number, is {}", json_kind_name(node->kind)));
  double value = 0;
  const char* const end = node->text.data() + node->text.size();
  const auto [stop, code] = std::from_chars(node->text.data(), end, value);
  if (code != std::errc() || stop != end || !std::isfinite(value))
    fail(found, fmt::format("{} is out of range", json_excerpt(node->text)));
  return value;
}

std::string HfReader::text_or(Names names, const std::string& standard) {
  const char* found = nullptr;
  const JsonNode* node = find(names, &found);
  if (node == nullptr) {
    used_default(names, standard);
    return standard;
  }
  if (node->kind != JsonNode::Kind::kString)
    fail(found, fmt::format("must be a string, is {}", json_kind_name(node->kind)));
  return node->text;
}

std::optional<std::vector<std::int64_t>> HfReader::integers(const char* name, std::int64_t low, std::int64_t high) {
  const char* found = nullptr;
  const JsonNode* node = find({name}, &found);
  if (node == nullptr || node->kind == JsonNode::Kind::kNull) return std::nullopt;
  if (node->kind != JsonNode::Kind::kArray)
    fail(name, fmt::format("must be a list of integers, is {}", json_kind_name(node->kind)));
  std::vector<std::int64_t> values;
  for (const JsonNode& item : node->items) values.push_back(to_integer(name, item, low, high));
  return values;
}

std::optional<std::vector<std::string>> HfReader::strings(const char* name) {
  const char* found = nullptr;
  const JsonNode* node = find({name}, &found);
  if (node == nullptr || node->kind == JsonNode::Kind::kNull) return std::nullopt;
  if (node->kind != JsonNode::Kind::kArray)
    fail(name, fmt::format("must be a list of strings, is {}", json_kind_name(node->kind)));
  std::vector<std::string> values;
  for (const JsonNode& item : node->items) {
    if (item.kind != JsonNode::Kind::kString)
      fail(name, fmt::format("must be a list of strings, holds {}", json_kind_name(item.kind)));
    values.push_back(item.text);
  }
  return values;
}

const JsonNode* HfReader::object(const char* name) {
  const char* found = nullptr;
  const JsonNode* node = find({name}, &found);
  if (node == nullptr || node->kind == JsonNode::Kind::kNull) return nullptr;
  if (node->kind != JsonNode::Kind::kObject)
    fail(name, fmt::format("must be an object, is {}", json_kind_name(node->kind)));
  return node;
}

void HfReader::irrelevant(Names names) {
  for (const char* name : names)
    if (has(name) && consumed_.insert(name).second) without_effect_.push_back(prefix_ + name);
}

// Names of one size in several families. A family asks for its own; a file that has another one too, with another value, contradicts itself.
void HfReader::check_other_names() const {
  static constexpr std::initializer_list<const char*> kGroups[] = {{"hidden_size", "n_embd", "d_model"},
                                                                    {"num_hidden_layers", "n_layer"},
                                                                    {"num_attention_heads", "n_head"},
                                                                    {"num_key_value_heads", "num_kv_heads"},
                                                                    {"head_dim", "kv_channels"},
                                                                    {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"},
                                                                    {"num_experts_per_tok", "experts_per_token"}};
  for (const auto& group : kGroups)
    for (const char* asked : group) {
      const JsonNode* const mine = consumed_.count(asked) > 0 ? object_.find(asked) : nullptr;
      if (mine == nullptr || mine->kind != JsonNode::Kind::kInteger) continue;
      for (const char* other : group) {
        const JsonNode* const node = consumed_.count(other) > 0 ? nullptr : object_.find(other);
        if (node != nullptr && node->kind == JsonNode::Kind::kInteger && !equal(*mine, *node)) fail(other, fmt::format("differs from '{}', which means the same", asked), "keep one of the two");
      }
    }
}

void HfReader::finish(bool strict) {
  check_other_names();
  if (!without_effect_.empty()) note(fmt::format("ignored: known to change no count: {}", fmt::join(without_effect_, ", ")));
  for (std::size_t i = 0; i < object_.names.size(); ++i) {
    const std::string& key = object_.names[i];
    if (consumed_.count(key) > 0) continue;
    const int line = object_.items[i].line;
    const std::string shown = prefix_ + json_excerpt(key);
    if (strict) throw_input("unknown key", {file_, line, shown}, name_hint(key, asked_));
    note(fmt::format("ignored: unknown key '{}' (line {})", shown, line));
  }
}

}  // namespace fathom
