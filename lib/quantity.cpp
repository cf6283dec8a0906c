#include "lib/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "lib/error.hpp"

namespace fathom {
namespace {

// scale = 10^exp10 * 2^exp2.
struct Prefix {
  std::string_view text;
  int exp10;
  int exp2;
};

constexpr std::array kNone = {Prefix{"", 0, 0}};
constexpr std::array kDecimal = {Prefix{"", 0, 0},   Prefix{"k", 3, 0},  Prefix{"M", 6, 0}, Prefix{"G", 9, 0},
                                 Prefix{"T", 12, 0}, Prefix{"P", 15, 0}, Prefix{"E", 18, 0}};
constexpr std::array kBinary = {Prefix{"Ki", 0, 10}, Prefix{"Mi", 0, 20}, Prefix{"Gi", 0, 30}, Prefix{"Ti", 0, 40},
                                Prefix{"Pi", 0, 50}};
// Of seconds; the micro sign exists twice in Unicode (U+00B5, U+03BC).
constexpr std::array kSmall = {Prefix{"n", -9, 0}, Prefix{"u", -6, 0}, Prefix{"\xc2\xb5", -6, 0},
                               Prefix{"\xce\xbc", -6, 0}, Prefix{"m", -3, 0}};

struct Base {
  Dimension dimension;
  std::string_view unit;
  std::string_view text;
  std::span<const Prefix> prefixes;
  std::span<const Prefix> more;
};

const std::array kBases = {
    Base{Dimension::kTime, "s", "a time, such as 2.5 us", kSmall, kNone},
    Base{Dimension::kBytes, "B", "an amount of memory, such as 50 MiB (1024^2) or 80 GB (1000^3)", kDecimal, kBinary},
    Base{Dimension::kByteRate, "B/s", "bytes per second, such as 3.35 TB/s", kDecimal, kBinary},
    Base{Dimension::kFlops, "FLOP", "a number of operations, such as 6.1 GFLOP", kDecimal, {}},
    Base{Dimension::kFlopRate, "FLOP/s", "operations per second, such as 989 TFLOP/s", kDecimal, {}},
    Base{Dimension::kElementRate, "elem/s", "elements per second, such as 4.2 Gelem/s", kDecimal, {}},
    Base{Dimension::kFrequency, "Hz", "a frequency, such as 1.98 GHz", kDecimal, {}},
    Base{Dimension::kPower, "W", "a power, such as 700 W", kDecimal, {}},
};

const Base& base_of(Dimension dimension) {
  for (const Base& base : kBases)
    if (base.dimension == dimension) return base;
  throw_internal("no unit table for this dimension");
}

const Prefix* find_unit(const Base& base, std::string_view unit) {
  if (!unit.ends_with(base.unit)) return nullptr;
  const std::string_view text = unit.substr(0, unit.size() - base.unit.size());
  for (const auto& prefixes : {base.prefixes, base.more})
    for (const Prefix& prefix : prefixes)
      if (prefix.text == text) return &prefix;
  return nullptr;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

[[noreturn]] void unknown_unit(std::string_view text, std::string_view unit, const Base& base) {
  const std::string needed(base.text);
  if (unit.empty()) throw_input(fmt::format("'{}' has no unit", text), {}, "this is " + needed);
  for (const Base& other : kBases)
    if (find_unit(other, unit) != nullptr)
      throw_input(fmt::format("'{}' is {}", unit, other.text.substr(0, other.text.find(','))), {}, "this is " + needed);
  if (unit.starts_with("K") && !unit.starts_with("Ki")) {
    const std::string rest(unit.substr(1));
    if (find_unit(base, "k" + rest) != nullptr)
      throw_input(fmt::format("unknown unit '{}'", unit), {},
                  base.more.empty() ? fmt::format("write k{} (1000)", rest)
                                    : fmt::format("write k{} (1000) or Ki{} (1024)", rest, rest));
  }
  std::string nearest = nearest_name(unit, unit_names(base.dimension));
  for (const std::string& name : unit_names(base.dimension))
    if (std::equal(name.begin(), name.end(), unit.begin(), unit.end(),
                   [](char a, char b) { return lower(a) == lower(b); }))
      nearest = name;  // the same letters in another case
  throw_input(fmt::format("unknown unit '{}'", unit), {},
              nearest.empty() ? "this is " + needed : fmt::format("did you mean '{}'? This is {}", nearest, needed));
}

struct Parts {
  std::string_view number;
  Prefix prefix;
};

// Splits number and unit, checks both. The number is digits with at most one point, and perhaps an exponent.
Parts split(std::string_view text, Dimension dimension) {
  const Base& base = base_of(dimension);
  const std::string_view shown = text.substr(0, 60);
  size_t i = 0;
  size_t digits = 0;
  const auto skip_digits = [&] {
    const size_t begin = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - begin;
  };
  if (text.starts_with('-'))
    throw_input(fmt::format("'{}' is negative", shown), {}, "this is " + std::string(base.text));
  digits += skip_digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    digits += skip_digits();
  }
  if (digits == 0)
    throw_input(fmt::format("'{}' does not begin with a number", shown), {}, "this is " + std::string(base.text));
  // An 'e' is an exponent only with digits after it, so that a unit may begin with one ("3 elem/s", "3elem/s").
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const size_t mark = i++;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (skip_digits() == 0) i = mark;
  }
  const std::string_view number = text.substr(0, i);
  while (i < text.size() && (text[i] == ' ' || text[i] == '\t')) ++i;
  const std::string_view unit = text.substr(i);
  const Prefix* prefix = find_unit(base, unit);
  if (prefix == nullptr) unknown_unit(shown, unit.substr(0, 60), base);
  return {number, *prefix};
}

}  // namespace

double parse_quantity(std::string_view text, Dimension dimension) {
  const Parts parts = split(text, dimension);
  // The decimal prefix is added to the exponent before conversion, so that the result is rounded once. Powers of two
  // are exact in a double.
  const size_t mark = parts.number.find_first_of("eE");
  int exponent = parts.prefix.exp10;
  const auto out_of_range = [&] { throw_input(fmt::format("'{}' is out of range", text.substr(0, 60))); };
  if (mark != std::string_view::npos) {
    std::string_view digits = parts.number.substr(mark + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int written = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), written);
    if (code != std::errc() || end != digits.data() + digits.size() || std::abs(written) > 400) out_of_range();
    exponent += written;
  }
  const std::string plain = fmt::format("{}e{}", parts.number.substr(0, mark), exponent);
  double value = 0;
  const auto [end, code] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (code == std::errc()) value = std::ldexp(value, parts.prefix.exp2);
  if (code != std::errc() || end != plain.data() + plain.size() || !std::isfinite(value)) out_of_range();
  return value;
}

Bytes parse_bytes(std::string_view text) {
  const Parts parts = split(text, Dimension::kBytes);
  if (parts.number.find_first_of("eE") != std::string_view::npos)
    throw_input(fmt::format("'{}' has an exponent", text.substr(0, 60)), {}, "use a larger unit: kB, KiB, ... PB, PiB");
  u128 digits = 0;
  u128 divisor = 1;
  bool point = false;
  for (char c : parts.number) {
    if (c == '.') {
      point = true;
      continue;
    }
    digits = checked_add(checked_mul(digits, 10), static_cast<u128>(c - '0'));
    if (point) divisor = checked_mul(divisor, 10);
  }
  u128 scale = u128{1} << parts.prefix.exp2;
  for (int i = 0; i < parts.prefix.exp10; ++i) scale = checked_mul(scale, 10);
  const u128 scaled = checked_mul(digits, scale);
  if (scaled % divisor != 0) throw_input(fmt::format("'{}' is not a whole number of bytes", text.substr(0, 60)));
  return Bytes(scaled / divisor);
}

std::string_view dimension_text(Dimension dimension) {
  return base_of(dimension).text;
}

std::vector<std::string> unit_names(Dimension dimension) {
  const Base& base = base_of(dimension);
  std::vector<std::string> names;
  for (const auto& prefixes : {base.prefixes, base.more})
    for (const Prefix& prefix : prefixes)
      if (prefix.text.size() < 2 || prefix.exp2 > 0)  // the micro signs are spellings of "u"
        names.push_back(std::string(prefix.text) + std::string(base.unit));
  return names;
}

}  // namespace fathom
