#include "reports/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "reports/json_writer.hpp"

namespace fathom {
namespace {

// A decimal number as digits d.ddd x 10^exponent, already rounded.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

Decimal round_count(u128 value, int digits) {
  std::string text = to_string(value);
  Decimal result{false, text, static_cast<int>(text.size()) - 1};
  const auto keep = static_cast<std::size_t>(digits);
  if (text.size() <= keep) {
    result.digits.append(keep - text.size(), '0');
    return result;
  }
  const bool up = text[keep] >= '5';
  result.digits = text.substr(0, keep);
  if (up) {
    auto at = result.digits.rbegin();
    while (at != result.digits.rend() && *at == '9') *at++ = '0';
    if (at != result.digits.rend()) {
      ++*at;
    } else {
      result.digits = "1" + result.digits.substr(0, keep - 1);
      ++result.exponent;
    }
  }
  return result;
}

Decimal round_real(double value, int digits) {
  const std::string text = fmt::format("{:.{}e}", std::fabs(value), digits - 1);
  const auto e = text.find('e');
  Decimal result{std::signbit(value) && value != 0, {}, std::atoi(text.c_str() + e + 1)};
  for (std::size_t i = 0; i < e; ++i) {
    if (text[i] != '.') result.digits += text[i];
  }
  return result;
}

// The decimal divided by 10^shift, as fixed-point text with all its digits.
std::string fixed(const Decimal& decimal, int shift) {
  const int point = decimal.exponent - shift + 1;  // digits before the point
  std::string text = decimal.digits;
  if (point <= 0) {
    text = "0." + std::string(static_cast<std::size_t>(-point), '0') + text;
  } else if (point < static_cast<int>(text.size())) {
    text.insert(static_cast<std::size_t>(point), ".");
  } else {
    text.append(static_cast<std::size_t>(point) - text.size(), '0');
  }
  return (decimal.negative ? "-" : "") + text;
}

constexpr std::array<const char*, 14> kSymbols{"p", "n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y", "R"};
constexpr int kLowest = -12;
constexpr int kHighest = 27;

int floor_to_three(int exponent) {
  return 3 * static_cast<int>(std::floor(exponent / 3.0));
}

std::string prefix_symbol(int exponent) {
  return kSymbols[static_cast<std::size_t>((exponent - kLowest) / 3)];
}

// Smallest prefix used: nothing is counted in milli-bytes, but 0.3 tokens/s stays readable.
int lowest_prefix(Unit unit) {
  switch (unit) {
    case Unit::kSeconds:
    case Unit::kJoules:
      return kLowest;
    default:
      return 0;
  }
}

std::string with_prefix(const Decimal& decimal, Unit unit) {
  const int shift = std::clamp(floor_to_three(decimal.exponent), lowest_prefix(unit), kHighest);
  const std::string symbol = prefix_symbol(shift) + std::string(unit_symbol(unit));
  return fixed(decimal, shift) + (symbol.empty() ? "" : " ") + symbol;
}

// In the unit that a time of `like` seconds is read in.
std::string long_time(double seconds, double like, int digits) {
  const double size = std::fabs(like);
  if (size < 600) return significant(seconds, digits) + " s";
  if (size < 2 * 3600) return significant(seconds / 60, digits) + " min";
  if (size < 2 * 86400) return significant(seconds / 3600, digits) + " h";
  if (size < 3 * 365.25 * 86400) return significant(seconds / 86400, digits) + " d";
  return significant(seconds / (365.25 * 86400), digits) + " years";
}

std::string percent(double fraction, bool sign) {
  const double value = fraction * 100;
  const double size = std::fabs(value);
  // One decimal, none from 1000 % on, two below 1 %; what rounds to nothing has no sign.
  std::string text = size >= 1000              ? fmt::format("{:.0f}", value)
                     : size >= 1 || value == 0 ? fmt::format("{:.1f}", value)
                     : size >= 0.005           ? fmt::format("{:.2f}", value)
                                               : "0.00";
  if (sign && value > 0 && size >= 0.005) text = "+" + text;
  return text + " %";
}

bool has_prefixes(Unit unit) {
  switch (unit) {
    case Unit::kCount:
    case Unit::kFlop:
    case Unit::kBytes:
    case Unit::kSeconds:
    case Unit::kFlopRate:
    case Unit::kByteRate:
    case Unit::kTokenRate:
    case Unit::kJoules:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string grouped(u128 value) {
  std::string text = to_string(value);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return "(not finite)";
  if (value == 0) return "0";
  const Decimal decimal = round_real(value, digits);
  if (decimal.exponent < -4 || decimal.exponent > 14) return fmt::format("{:.{}e}", value, digits - 1);
  return fixed(decimal, 0);
}

std::string format_value(u128 value, Unit unit, int digits) {
  if (unit == Unit::kPercent || unit == Unit::kSignedPercent)
    return percent(to_double(value), unit == Unit::kSignedPercent);
  if (unit == Unit::kSeconds && value >= 100) return long_time(to_double(value), to_double(value), digits);
  const std::string symbol(unit_symbol(unit));
  if (value < 10000 || !has_prefixes(unit)) {
    if (value >= 1000 && unit == Unit::kBytes) return with_prefix(round_count(value, digits), unit);
    return grouped(value) + (symbol.empty() ? "" : " " + symbol);
  }
  return with_prefix(round_count(value, digits), unit);
}

std::string format_value(double value, Unit unit, int digits) {
  if (!std::isfinite(value)) return "(not finite)";
  const std::string symbol(unit_symbol(unit));
  if (unit == Unit::kPercent || unit == Unit::kSignedPercent) return percent(value, unit == Unit::kSignedPercent);
  if (value == 0) return symbol.empty() ? "0" : "0 " + symbol;
  if (!has_prefixes(unit)) return significant(value, digits) + (symbol.empty() ? "" : " " + symbol);
  if (unit == Unit::kSeconds && std::fabs(value) >= 100) return long_time(value, value, digits);
  const Decimal decimal = round_real(value, digits);
  if (decimal.exponent < kLowest - 2 || decimal.exponent > kHighest + 2 ||
      (lowest_prefix(unit) == 0 && decimal.exponent < -3)) {
    return significant(value, digits) + (symbol.empty() ? "" : " " + symbol);
  }
  return with_prefix(decimal, unit);
}

std::string format_time_like(double seconds, double like, int digits) {
  if (!std::isfinite(seconds) || !(std::fabs(like) >= 100)) return format_value(seconds, Unit::kSeconds, digits);
  return long_time(seconds, like, digits);
}

std::string exact_in_brackets(const Cell& cell, Unit unit) {
  const u128* count = cell.exact();
  if (count == nullptr || *count < 10000 || unit == Unit::kSeconds) return "";
  const std::string exact = format_cell(cell, unit), digits = grouped(*count), symbol(unit_symbol(unit));
  if (exact == digits) return "";  // shown with all its digits already
  return " (" + digits + (symbol.empty() ? "" : " " + symbol) + ")";
}

std::string format_cell(const Cell& cell, Unit unit, int digits) {
  if (const u128* count = cell.exact()) return format_value(*count, unit, digits);
  if (const double* number = cell.real()) return format_value(*number, unit, digits);
  if (const std::string* words = cell.words()) return *words;
  if (const Cell::Status* status = cell.missing()) return "(" + status->reason + ")";
  return "";
}

std::string exact_text(const Cell& cell) {
  if (const u128* count = cell.exact()) return to_string(*count);
  if (const double* number = cell.real()) return shortest(*number);
  if (const std::string* words = cell.words()) return *words;
  return "";
}

SiPrefix prefix_for(double largest, Unit unit) {
  if (!has_prefixes(unit) || largest == 0 || !std::isfinite(largest)) return {};
  const int exponent = static_cast<int>(std::floor(std::log10(std::fabs(largest)) + 1e-9));
  const int shift = std::clamp(floor_to_three(exponent), lowest_prefix(unit), kHighest);
  return {shift, prefix_symbol(shift)};
}

}  // namespace fathom
