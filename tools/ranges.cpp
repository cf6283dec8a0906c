#include "tools/ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/error.hpp"
#include "tools/cli.hpp"

namespace fathom {
namespace {

constexpr std::uint64_t kMostOfAll = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostFractions = 1'000'000;
constexpr std::int64_t kFinest = 1'000'000;  // denominator of a range's first value and step

Where place(std::string_view flag) { return {"", 0, std::string(flag)}; }

std::int64_t parse_integer(std::string_view text, std::string_view flag) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) throw_input(fmt::format("'{}' is too large", text), place(flag));
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorKind::kUsage, fmt::format("{}: '{}' is not an integer", flag, text), {}, "write one number, a list 1,2,4, or a range 64:512:64 or 1:128:x2");
  return value;
}

// Which piece holds the value of this number.
template <class Piece>
const Piece& piece_of(const std::vector<Piece>& pieces, std::uint64_t index) {
  if (pieces.size() == 1) return pieces.front();
  return *std::prev(std::upper_bound(pieces.begin(), pieces.end(), index, [](std::uint64_t wanted, const Piece& piece) { return wanted < piece.before; }));
}

Fraction value_of(const Fraction& first, const Fraction& step, std::uint64_t index) {
  if (step.num == 0) return first;
  return make_fraction(first.num * step.den + static_cast<std::int64_t>(index) * step.num * first.den, first.den * step.den);
}

}  // namespace

void NumberList::add(std::int64_t first, std::int64_t step, std::uint64_t count) {
  pieces_.push_back({first, step, size_});
  size_ += count;
}

NumberList NumberList::parse(const std::string& text, std::string_view flag) {
  NumberList list;
  const auto refuse = [&](const std::string& item, const char* why, const char* hint = "") { throw_input(fmt::format("the range {} {}", item, why), place(flag), hint); };
  for (const std::string& item : split(text, ',')) {
    const std::vector<std::string> parts = split(item, ':');
    if (parts.size() == 1) {
      list.add(parse_integer(parts[0], flag), 0, 1);
      continue;
    }
    if (parts.size() > 3) throw Error(ErrorKind::kUsage, fmt::format("{}: '{}' is not a range", flag, item), {}, "write first:last:step or first:last:x2");
    const std::int64_t first = parse_integer(parts[0], flag), last = parse_integer(parts[1], flag);
    const bool factor = parts.size() == 3 && !parts[2].empty() && parts[2][0] == 'x';
    const std::int64_t step = parts.size() == 2 ? 1 : parse_integer(factor ? std::string_view(parts[2]).substr(1) : std::string_view(parts[2]), flag);
    if (last < first) refuse(item, "runs backwards");
    if (factor ? step < 2 || first < 1 : step < 1) refuse(item, "never ends", "steps are at least 1, factors at least 2 from at least 1");
    if (!factor) {
      // The distance is counted without a sign: it may be more than a signed number holds.
      const std::uint64_t steps = (static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first)) / static_cast<std::uint64_t>(step);
      if (steps >= kMostOfAll - list.size_) refuse(item, "has more than 4e18 values");
      list.add(first, step, steps + 1);
      continue;
    }
    for (std::int64_t value = first;; value *= step) {  // at most 63 of them
      list.add(value, 0, 1);
      if (value > last / step) break;
    }
  }
  return list;
}

std::int64_t NumberList::at(std::uint64_t index) const {
  const Piece& piece = piece_of(pieces_, index);
  // Modulo 2^64: the value itself lies between first and last.
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(piece.first) + (index - piece.before) * static_cast<std::uint64_t>(piece.step));
}

void FractionList::add(const Fraction& first, const Fraction& step, std::uint64_t count, bool none) {
  pieces_.push_back({first, step, size_, none});
  size_ += count;
}

FractionList FractionList::parse(const std::string& text, std::string_view flag) {
  FractionList list;
  const auto refuse = [&](const std::string& item, const char* why) { throw_input(fmt::format("the range {} {}", item, why), place(flag)); };
  for (const std::string& item : split(text, ',')) {
    if (item == "none") {
      list.add({0, 1}, {0, 1}, 1, true);
      continue;
    }
    const std::vector<std::string> parts = split(item, ':');
    if (parts.size() == 1) {
      list.add(parse_fraction_flag(item, flag), {0, 1}, 1);
      continue;
    }
    if (parts.size() != 3) throw Error(ErrorKind::kUsage, fmt::format("{}: '{}' is not a range", flag, item), {}, "write first:last:step, such as 0.125:0.5:0.125");
    const Fraction first = parse_fraction_flag(parts[0], flag), last = parse_fraction_flag(parts[1], flag), step = parse_fraction_flag(parts[2], flag);
    if (step.num <= 0) refuse(item, "never ends");
    if (last.value() < first.value()) refuse(item, "runs backwards");
    const double steps = (last.value() - first.value()) / step.value();
    if (steps > static_cast<double>(kMostFractions)) refuse(item, "has more than a million values");
    // The largest product of numerators and denominators that a value is made of.
    if (first.den > kFinest || step.den > kFinest || (last.value() + step.value()) * static_cast<double>(first.den) * static_cast<double>(step.den) > 4e18)
      throw_input(fmt::format("the fractions of {} are too fine", item), place(flag));
    auto count = static_cast<std::uint64_t>(steps) + 1;
    while (value_of(first, step, count).value() <= last.value()) ++count;
    while (count > 1 && value_of(first, step, count - 1).value() > last.value()) --count;
    list.add(first, step, count);
  }
  return list;
}

std::optional<Fraction> FractionList::at(std::uint64_t index) const {
  const Piece& piece = piece_of(pieces_, index);
  if (piece.none) return std::nullopt;
  return value_of(piece.first, piece.step, index - piece.before);
}

std::string share_text(const Fraction& share) {
  constexpr int kDigits = 15;                // a decimal of so many digits is the same after it was a double
  constexpr std::int64_t kExponent = 10'000;  // readers write doubles below 1 / 10 000 with an exponent, which is no fraction here
  if (share.num > 0 && share.den / share.num > kExponent) return share.str();
  std::int64_t other = share.den, scale = 1;
  int twos = 0, fives = 0;
  for (; other % 2 == 0; other /= 2) ++twos;
  for (; other % 5 == 0; other /= 5) ++fives;
  const int decimals = std::max(twos, fives);
  if (other != 1 || decimals > kDigits) return share.str();
  for (int i = 0; i < decimals; ++i) scale *= 10;
  std::int64_t digits = 0;  // of the number without its point
  if (__builtin_mul_overflow(share.num, scale / share.den, &digits) || digits > 999'999'999'999'999) return share.str();
  if (decimals == 0) return fmt::format("{}", digits);
  return fmt::format("{}.{:0{}}", digits / scale, digits % scale, decimals);
}

bool FractionList::has_none() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.none; });
}

}  // namespace fathom
