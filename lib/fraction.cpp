#include "lib/fraction.hpp"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "lib/error.hpp"

namespace fathom {
namespace {

__extension__ typedef __int128 i128;

[[noreturn]] void bad_fraction(std::string_view text, std::string_view why) {
  throw_input(fmt::format("'{}' is not a fraction: {}", text.substr(0, 60), why), {},
              "write a decimal (0.125), a fraction (1/8) or a percentage (12.5%)");
}

// Digits with at most one '.', as num / 10^decimals.
Fraction parse_decimal(std::string_view text, std::string_view whole) {
  std::int64_t num = 0;
  std::int64_t den = 1;
  bool point = false;
  bool digits = false;
  for (char c : text) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') bad_fraction(whole, "unexpected character");
    digits = true;
    if (__builtin_mul_overflow(num, std::int64_t{10}, &num) || __builtin_add_overflow(num, std::int64_t{c - '0'}, &num) ||
        (point && __builtin_mul_overflow(den, std::int64_t{10}, &den)))
      bad_fraction(whole, "too many digits");
  }
  if (!digits) bad_fraction(whole, "no digits");
  return make_fraction(num, den);
}

}  // namespace

std::int64_t Fraction::of(std::int64_t count, Rounding mode) const {
  const i128 scaled = static_cast<i128>(num) * count;
  i128 result = scaled / den;
  const i128 rest = scaled % den;
  if (mode == Rounding::kCeil && rest > 0) ++result;
  if (mode == Rounding::kHalfUp && 2 * rest >= den) ++result;
  if (result > std::numeric_limits<std::int64_t>::max()) throw_input(fmt::format("{} x {} is too large", str(), count));
  return static_cast<std::int64_t>(result);
}

std::string Fraction::str() const { return den == 1 ? fmt::format("{}", num) : fmt::format("{}/{}", num, den); }

Fraction make_fraction(std::int64_t num, std::int64_t den) {
  if (den <= 0) throw_input(fmt::format("a fraction needs a positive denominator, not {}", den));
  const std::int64_t divisor = std::gcd(num, den);
  return divisor == 0 ? Fraction{0, 1} : Fraction{num / divisor, den / divisor};
}

Fraction parse_fraction(std::string_view text) {
  std::string_view body = text;
  if (!body.empty() && body.back() == '%') {
    const Fraction percent = parse_decimal(body.substr(0, body.size() - 1), text);
    std::int64_t den = 0;
    if (__builtin_mul_overflow(percent.den, std::int64_t{100}, &den)) bad_fraction(text, "too many digits");
    return make_fraction(percent.num, den);
  }
  const size_t slash = body.find('/');
  if (slash == std::string_view::npos) return parse_decimal(body, text);
  const Fraction num = parse_decimal(body.substr(0, slash), text);
  const Fraction den = parse_decimal(body.substr(slash + 1), text);
  if (num.den != 1 || den.den != 1) bad_fraction(text, "numerator and denominator must be integers");
  if (den.num == 0) bad_fraction(text, "the denominator is 0");
  return make_fraction(num.num, den.num);
}

Rounding parse_rounding(std::string_view text) {
  for (Rounding mode : {Rounding::kFloor, Rounding::kHalfUp, Rounding::kCeil})
    if (rounding_name(mode) == text) return mode;
  throw_input(fmt::format("unknown rounding '{}'", text), {}, name_hint(text, {"floor", "half-up", "ceil"}));
}

std::string_view rounding_name(Rounding mode) {
  switch (mode) {
    case Rounding::kFloor: return "floor";
    case Rounding::kHalfUp: return "half-up";
    case Rounding::kCeil: return "ceil";
  }
  return "?";
}

}  // namespace fathom
