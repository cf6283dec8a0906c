// A JSON file as a tree that knows its lines: what config.json files are read through.
//
// nlohmann's parser does the reading, by its event interface, in this one source file; its own tree keeps no line
// numbers, turns large integers into doubles and takes duplicate keys silently. Numbers keep the text they were written
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

inline constexpr std::size_t kMaxJsonBytes = std::size_t{10} << 20;
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonNodes = 200000;  // a config has some hundred values

struct JsonNode {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kReal, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool truth = false;
  int line = 0;
  std::string text;                // a string's value, or a number as written
  std::vector<std::string> names;  // of an object's members, in file order, parallel to items
  std::vector<JsonNode> items;

  // The member of an object, or nullptr.
  const JsonNode* find(std::string_view name) const;
};

// "null", "a boolean", "an integer" ...: for messages.
std::string_view json_kind_name(JsonNode::Kind kind);

// Throws Error(kInput) with file and line: syntax, duplicate keys, nesting past 64, more than 200 000 values or 10 MB.
JsonNode parse_json_tree(std::string_view text, const std::string& file);
JsonNode read_json_tree(const std::string& path);

// At most about 60 printable ASCII characters of a text, for messages and notes; anything else becomes '?'.
std::string json_excerpt(std::string_view text);

}  // namespace fathom
