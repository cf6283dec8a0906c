#include "reports/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace fathom {
namespace {

constexpr char32_t kReplacement = 0xfffd;

bool in_ranges(char32_t c, const std::pair<char32_t, char32_t>* first, const std::pair<char32_t, char32_t>* last) {
  return std::any_of(first, last, [c](const auto& range) { return c >= range.first && c <= range.second; });
}

// The ranges that tokens and names can be expected to hold (Unicode 15 East Asian Width W/F, and general category Mn).
bool is_wide(char32_t c) {
  static constexpr std::array<std::pair<char32_t, char32_t>, 12> kWide{{{0x1100, 0x115f},
                                                                        {0x2e80, 0x303e},
                                                                        {0x3041, 0x33ff},
                                                                        {0x3400, 0x4dbf},
                                                                        {0x4e00, 0x9fff},
                                                                        {0xa000, 0xa4cf},
                                                                        {0xac00, 0xd7a3},
                                                                        {0xf900, 0xfaff},
                                                                        {0xfe30, 0xfe6f},
                                                                        {0xff00, 0xff60},
                                                                        {0x1f300, 0x1faff},
                                                                        {0x20000, 0x3fffd}}};
  return in_ranges(c, kWide.data(), kWide.data() + kWide.size());
}

bool is_zero_width(char32_t c) {
  static constexpr std::array<std::pair<char32_t, char32_t>, 9> kZero{{{0x0300, 0x036f},
                                                                       {0x0483, 0x0489},
                                                                       {0x0591, 0x05bd},
                                                                       {0x0610, 0x061a},
                                                                       {0x064b, 0x065f},
                                                                       {0x200b, 0x200f},
                                                                       {0x20d0, 0x20f0},
                                                                       {0xfe00, 0xfe0f},
                                                                       {0xfe20, 0xfe2f}}};
  return in_ranges(c, kZero.data(), kZero.data() + kZero.size());
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x2028 || c == 0x2029 || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

int width_of(char32_t c) {
  return is_zero_width(c) ? 0 : is_wide(c) ? 2 : 1;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at++);
  if (lead < 0x80) return lead;
  if (lead < 0xc2 || lead > 0xf4) return kReplacement;
  const int more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  char32_t value = lead & (0x3f >> more);
  // The second byte's range excludes overlong forms, surrogates and values past U+10FFFF.
  unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (int i = 0; i < more; ++i) {
    if (at >= text.size() || byte(at) < low || byte(at) > high) return kReplacement;
    value = (value << 6) | (byte(at++) & 0x3f);
    low = 0x80;
    high = 0xbf;
  }
  return value;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_utf8(out, next_code_point(text, at));
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!is_control(c)) {
      append_utf8(out, c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c < 0x80) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\u{{{:x}}}", static_cast<unsigned>(c));
    }
  }
  return out;
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) width += width_of(next_code_point(text, at));
  return width;
}

namespace {

bool is_digit(std::string_view text, std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; }

// Digits, and points and commas between them.
bool in_number(std::string_view text, std::size_t at) {
  return is_digit(text, at) || (at > 0 && at < text.size() && (text[at] == '.' || text[at] == ',') && is_digit(text, at - 1) && is_digit(text, at + 1));
}

}  // namespace

std::string clip_middle(std::string_view text, int width, std::string_view ellipsis) {
  if (display_width(text) <= width) return std::string(text);
  const int room = width - display_width(ellipsis);
  if (room <= 0) return std::string(ellipsis.substr(0, width > 0 ? ellipsis.size() : 0));
  const int tail_room = room - room / 2, head_room = room / 2;  // the end of a path says more than its start
  std::string head;
  int used = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (used + width_of(c) > head_room) break;
    used += width_of(c);
    append_utf8(head, c);
  }
  std::vector<std::pair<std::size_t, int>> points;  // (byte offset, width)
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    points.emplace_back(start, width_of(next_code_point(text, at)));
  }
  std::size_t from = text.size();
  used = 0;
  for (auto point = points.rbegin(); point != points.rend() && used + point->second <= tail_room; ++point) {
    used += point->second;
    from = point->first;
  }
  // Half a number would be another number: it goes as a whole.
  while (from < text.size() && in_number(text, from) && in_number(text, from - 1)) ++from;
  while (!head.empty() && text.starts_with(head) && in_number(text, head.size()) && in_number(text, head.size() - 1)) head.pop_back();
  return head + std::string(ellipsis) + std::string(text.substr(from));
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) + std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
}

std::string pad_left(std::string_view text, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ') + std::string(text);
}

std::vector<std::string> wrap(std::string_view text, int width) {
  width = std::max(width, 1);
  std::vector<std::string> lines;
  std::string line;
  int used = 0;
  const auto flush = [&] {
    lines.push_back(line);
    line.clear();
    used = 0;
  };
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const int word_width = display_width(word);
    if (used > 0 && used + 1 + word_width > width) flush();
    if (word_width > width) {
      for (std::size_t i = 0; i < word.size();) {
        const char32_t c = next_code_point(word, i);
        if (used > 0 && used + width_of(c) > width) flush();
        append_utf8(line, c);
        used += width_of(c);
      }
    } else {
      if (used > 0) line += ' ', ++used;
      line += word;
      used += word_width;
    }
    at = end;
  }
  if (used > 0 || lines.empty()) flush();
  return lines;
}

std::vector<std::string> wrap_items(const std::vector<std::string>& items, int width) {
  std::vector<std::string> lines;
  std::string line;
  for (const std::string& item : items) {
    if (!line.empty() && display_width(line) + 2 + display_width(item) > width) {
      lines.push_back(line);
      line.clear();
    }
    if (display_width(item) > width) {
      for (std::string& part : wrap(item, width)) lines.push_back(std::move(part));
      continue;
    }
    line += (line.empty() ? "" : "  ") + item;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace fathom
