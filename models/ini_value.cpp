// The typed getters of IniValue.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "models/ini.hpp"
#include "models/ini_text.hpp"

namespace fathom {

void IniValue::fail(const std::string& message, std::string hint) const {
  throw_input(message, where_, std::move(hint));
}

void IniValue::unknown_choice(const std::vector<std::string>& names) const {
  fail(fmt::format("unknown value '{}'", ini_excerpt(text_)), name_hint(text_, names));
}

std::int64_t IniValue::integer(std::int64_t low, std::int64_t high, std::string_view allowed) const {
  const char* const end = text_.data() + text_.size();
  std::int64_t value = 0;
  const auto [stop, code] = std::from_chars(text_.data(), end, value);
  const bool digits = stop == end && (code == std::errc() || code == std::errc::result_out_of_range);
  if (!digits) fail(fmt::format("'{}' is not an integer", ini_excerpt(text_)), "write plain digits, such as 2048");
  const bool open = high == std::numeric_limits<std::int64_t>::max();
  if (code != std::errc() && open) fail(fmt::format("{} does not fit in 64 bits", ini_excerpt(text_)));
  if (code == std::errc() && value >= low && value <= high) return value;
  if (open) fail(fmt::format("{} is too small; the least is {}", value, low));
  fail(fmt::format("{} is out of range; allowed are {}", ini_excerpt(text_), allowed.empty() ? fmt::format("{} to {}", low, high) : std::string(allowed)));
}

Fraction IniValue::fraction() const {
  return parse(parse_fraction);
}

double IniValue::real(double low, double high) const {
  const char* const end = text_.data() + text_.size();
  double value = 0;
  const auto [stop, code] = std::from_chars(text_.data(), end, value);
  if (stop == end && code == std::errc::result_out_of_range)
    fail(fmt::format("{} is out of range", ini_excerpt(text_)));
  if (stop != end || code != std::errc() || !std::isfinite(value))
    fail(fmt::format("'{}' is not a number", ini_excerpt(text_)), "write a number such as 0.5 or 1e-5, without a unit");
  if (value < low || value > high) fail(fmt::format("{} is out of range; allowed are {} to {}", value, low, high));
  return value;
}

bool IniValue::boolean() const {
  return choice<bool>({{"true", true}, {"false", false}, {"yes", true}, {"no", false}, {"on", true}, {"off", false}});
}

double IniValue::quantity(Dimension dimension) const {
  return parse([dimension](std::string_view text) { return parse_quantity(text, dimension); });
}

Bytes IniValue::bytes() const {
  return parse(parse_bytes);
}

DType IniValue::dtype() const {
  return parse(parse_dtype);
}

std::vector<IniValue> IniValue::list() const {
  std::vector<IniValue> elements;
  std::string_view rest = text_;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view element = trim_ini(rest.substr(0, comma));
    if (element.empty()) fail(fmt::format("element {} of the list is empty", elements.size() + 1));
    elements.emplace_back(std::string(element), where_);
    if (comma == std::string_view::npos) return elements;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace fathom
