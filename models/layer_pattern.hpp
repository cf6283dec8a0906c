// Layer patterns: how an INI file lists one word per layer without repeating itself.
//
//   pattern = dense 16*(dense mod) dense     ->  34 words
//
// A pattern is words separated by spaces; N*word and N*(words) repeat. Words name blocks, weight sets or capacities.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom {

// The words in order. Throws Error(kInput) without a place (the caller knows it) on unbalanced parentheses, a count of
// 0, an empty group, or more than 100 000 words.
std::vector<std::string> parse_layer_pattern(std::string_view text);

// A short pattern that expands to exactly these words.
std::string layer_pattern_text(const std::vector<std::string>& words);

}  // namespace fathom
