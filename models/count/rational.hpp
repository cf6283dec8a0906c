// Exact signed rationals with 128-bit numerator and denominator.
//
// Per-token averages of causal attention are half-integers, and some published formulas divide by the head count or the sequence
// length; they stay exact until they are shown. Overflow is an error, never a wrap.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "lib/fraction.hpp"
#include "lib/units.hpp"

namespace fathom {

__extension__ typedef __int128 i128;

class Rational {
 public:
  Rational() = default;
  Rational(std::int64_t value) : num_(value) {}  // NOLINT: integers are rationals
  Rational(i128 num, i128 den);                  // throws Error(kInput) when den is 0
  static Rational of(u128 value);                // throws Error(kInput) past 2^127 - 1
  static Rational of(const Fraction& fraction) { return Rational(fraction.num, fraction.den); }

  bool integer() const { return den_ == 1; }
  bool negative() const { return num_ < 0; }
  bool zero() const { return num_ == 0; }
  i128 num() const { return num_; }
  i128 den() const { return den_; }  // > 0, lowest terms
  // Towards zero.
  Rational truncated() const { return Rational(num_ / den_, 1); }
  double value() const { return static_cast<double>(num_) / static_cast<double>(den_); }
  // "284831232", "-2.5", "302027580.75" where the decimal ends within 30 places, else "n/d".
  std::string str() const;
  // The value as a count; throws Error(kInternal) when it is negative or no integer.
  u128 count() const;

  Rational operator-() const { return Rational(-num_, den_); }
  friend Rational operator+(const Rational& a, const Rational& b);
  friend Rational operator-(const Rational& a, const Rational& b) { return a + -b; }
  friend Rational operator*(const Rational& a, const Rational& b);
  friend Rational operator/(const Rational& a, const Rational& b);
  Rational& operator+=(const Rational& other) { return *this = *this + other; }
  friend bool operator==(const Rational&, const Rational&) = default;
  friend std::strong_ordering operator<=>(const Rational& a, const Rational& b);

 private:
  i128 num_ = 0;
  i128 den_ = 1;
};

}  // namespace fathom
