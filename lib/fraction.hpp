// Exact rationals for capacities and probabilities.
//
// A capacity of 0.12 over 2048 tokens must give floor(0.12 * 2048) = 245 on every machine; binary floats do not promise that
// (arXiv 2404.02258, 3.1), so fractions are parsed from their decimal or fraction text and stay integers until displayed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fathom {

enum class Rounding : std::uint8_t { kFloor, kHalfUp, kCeil };

struct Fraction {
  std::int64_t num = 0;
  std::int64_t den = 1;  // > 0, lowest terms

  double value() const { return static_cast<double>(num) / static_cast<double>(den); }
  // round_mode(this * count); exact. Throws Error(kInput) when the result leaves 64 bits.
  std::int64_t of(std::int64_t count, Rounding mode) const;
  std::string str() const;  // "1/8", "1", "0"

  friend bool operator==(const Fraction&, const Fraction&) = default;
};

// Lowest terms; throws Error(kInput) when den is 0 or negative.
Fraction make_fraction(std::int64_t num, std::int64_t den);
// "0.125", "1/8", "3", "12.5%"; throws Error(kInput) on anything else, including NaN, exponents and overflow.
Fraction parse_fraction(std::string_view text);
Rounding parse_rounding(std::string_view text);  // floor, half-up, ceil
std::string_view rounding_name(Rounding mode);

}  // namespace fathom
