// UTF-8 text for people: repair, terminal width, clipping and wrapping.
//
// File names, tokens and model names reach reports as arbitrary bytes. Every renderer passes them through here first,
// so that invalid UTF-8 becomes U+FFFD and control characters (which could move a terminal's cursor) become visible
// escapes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

// Decodes the code point at `at` (which must be below text.size()) and advances `at`. An invalid sequence yields U+FFFD
// and advances past its maximal valid prefix, as the Unicode standard (chapter 3, "substitution of maximal subparts")
// recommends.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& out, char32_t code_point);

// Valid UTF-8: invalid sequences replaced by U+FFFD, everything else unchanged.
std::string valid_utf8(std::string_view text);

// valid_utf8, and control characters written as \n, \t, \x1b, \u{85}; bidirectional overrides too. One printable line.
std::string printable(std::string_view text);

// Terminal columns of printable text: combining marks 0, East Asian wide and emoji 2, else 1.
int display_width(std::string_view text);

// `text` if it fits `width` columns, else with its middle replaced by `ellipsis` (paths keep both ends).
std::string clip_middle(std::string_view text, int width, std::string_view ellipsis = "…");

// `text` followed (or preceded) by spaces up to `width` columns.
std::string pad_right(std::string_view text, int width);
std::string pad_left(std::string_view text, int width);

// Breaks at spaces into lines of at most `width` columns; words longer than a line are cut. At least one line.
std::vector<std::string> wrap(std::string_view text, int width);

// Legend entries side by side, two blanks apart; an entry is broken only where it is wider than a line.
std::vector<std::string> wrap_items(const std::vector<std::string>& items, int width);

}  // namespace fathom
