// ANSI attributes and backtick removal for the terminal renderer.
#pragma once

#include <string>
#include <string_view>

#include "reports/text.hpp"

namespace fathom {

inline std::string attribute(std::string_view text, const char* code, const TextOptions& options) {
  if (!options.colour || text.empty()) return std::string(text);
  return std::string("\x1b[") + code + "m" + std::string(text) + "\x1b[0m";
}
inline std::string bold(std::string_view text, const TextOptions& options) {
  return attribute(text, "1", options);
}
inline std::string dim(std::string_view text, const TextOptions& options) {
  return attribute(text, "2", options);
}
inline std::string yellow(std::string_view text, const TextOptions& options) {
  return attribute(text, "33", options);
}

// A verdict's colour: green within, yellow slow or fast, red faster-than-light, dim for what was not graded.
inline std::string verdict_colour(std::string_view text, const TextOptions& options) {
  if (text.starts_with("within")) return attribute(text, "32", options);
  if (text.starts_with("faster-than-light")) return attribute(text, "31", options);
  if (text.starts_with("slow") || text.starts_with("fast")) return attribute(text, "33", options);
  return dim(text, options);
}

inline std::string without_ticks(std::string text) {
  std::erase(text, '`');
  return text;
}

}  // namespace fathom
