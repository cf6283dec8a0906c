#include "models/ini_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"
#include "models/ini.hpp"

namespace fathom {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Length of the UTF-8 character at `i`, or 0 when there is none (Unicode 15, table 3-7: no overlong forms, no
// surrogates).
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const unsigned char lead = byte_at(text, i);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k)
    if ((byte_at(text, i + k) & 0xc0) != 0x80) return 0;
  const unsigned char second = byte_at(text, i + 1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
      (lead == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

}  // namespace

std::string_view check_ini_text(std::string_view text, const std::string& name) {
  if (text.size() > kMaxIniBytes)
    throw_input(fmt::format("larger than {} MiB, which no INI file of fathom is", kMaxIniBytes >> 20), {name, 0, ""});
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    throw_input("is UTF-16 text", {name, 1, ""}, "save it as UTF-8");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  int line = 1;
  std::size_t line_begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char c = byte_at(text, i);
    const auto fail = [&](const std::string& message, const char* hint = "") {
      throw_input(message, {name, line, ""}, hint);
    };
    if (c == '\n') {
      ++line;
      line_begin = ++i;
      continue;
    }
    if (c == 0) fail("contains a NUL byte: this is not a text file");
    if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7f)
      fail(fmt::format("contains the control character 0x{:02x}", c));
    if (c == '\r' && i + 1 < text.size() && text[i + 1] != '\n')
      fail("contains a carriage return inside a line", "line ends are LF or CRLF");
    const std::size_t length = utf8_length(text, i);
    if (length == 0) fail(fmt::format("byte 0x{:02x} is not UTF-8", c), "save the file as UTF-8");
    i += length;
    if (i - line_begin > kMaxIniLine) fail(fmt::format("a line of more than {} KiB", kMaxIniLine >> 10));
  }
  return text;
}

std::string_view trim_ini(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string ini_excerpt(std::string_view text) {
  constexpr std::size_t kShown = 60;
  if (text.size() <= kShown) return std::string(text);
  std::size_t end = kShown;
  while (end > 0 && (byte_at(text, end) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace fathom
