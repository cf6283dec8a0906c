#include "models/count/rational.hpp"

#include <algorithm>

#include "lib/error.hpp"

namespace fathom {
namespace {

i128 gcd(i128 a, i128 b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) {
    const i128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

i128 times(i128 a, i128 b) {
  i128 result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw_count_overflow("multiplication of rationals");
  return result;
}

i128 plus(i128 a, i128 b) {
  i128 result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw_count_overflow("addition of rationals");
  return result;
}

}  // namespace

Rational::Rational(i128 num, i128 den) {
  if (den == 0) throw_input("division by zero");
  if (den < 0) {
    num = -num;
    den = -den;
  }
  const i128 divisor = std::max<i128>(1, gcd(num, den));
  num_ = num / divisor;
  den_ = den / divisor;
}

Rational Rational::of(u128 value) {
  if (value >> 127) throw_count_overflow("conversion to a signed count");
  return Rational(static_cast<i128>(value), 1);
}

std::string Rational::str() const {
  const bool minus = num_ < 0;
  const u128 num = minus ? static_cast<u128>(-(num_ + 1)) + 1 : static_cast<u128>(num_);
  const u128 den = static_cast<u128>(den_);
  std::string text = (minus ? "-" : "") + to_string(num / den);
  u128 rest = num % den;
  if (rest == 0) return text;
  std::string decimals;
  while (rest != 0 && decimals.size() < 30 && rest < (static_cast<u128>(1) << 124)) {
    rest *= 10;
    decimals.push_back(static_cast<char>('0' + static_cast<int>(rest / den)));
    rest %= den;
  }
  if (rest != 0) return (minus ? "-" : "") + to_string(num) + "/" + to_string(den);
  return text + "." + decimals;
}

u128 Rational::count() const {
  if (den_ != 1 || num_ < 0) throw_internal("'" + str() + "' is no count");
  return static_cast<u128>(num_);
}

// Common factors are taken out first, so that intermediate values overflow only where the result nearly does.
Rational operator+(const Rational& a, const Rational& b) {
  const i128 common = gcd(a.den_, b.den_);
  const i128 left = times(a.num_, b.den_ / common);
  const i128 right = times(b.num_, a.den_ / common);
  return Rational(plus(left, right), times(a.den_, b.den_ / common));
}

Rational operator*(const Rational& a, const Rational& b) {
  const Rational left(a.num_, b.den_);
  const Rational right(b.num_, a.den_);
  return Rational(times(left.num_, right.num_), times(left.den_, right.den_));
}

Rational operator/(const Rational& a, const Rational& b) {
  return a * Rational(b.den_, b.num_);
}

std::strong_ordering operator<=>(const Rational& a, const Rational& b) {
  const i128 common = gcd(a.den_, b.den_);
  return times(a.num_, b.den_ / common) <=> times(b.num_, a.den_ / common);
}

}  // namespace fathom
