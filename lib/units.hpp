// Exact counts and physical quantities.
//
// Counts (Flops, Bytes, Elements, Params) are unsigned 128-bit integers with checked arithmetic: a whole training run of a
// 671B model is 2.4e24 FLOP, past 64 bits, and a wrapped count would be a silent lie. Physical quantities (Seconds, FlopRate,
// ByteRate) are doubles. Only combinations that mean something compile: Flops + Bytes does not, Flops / FlopRate is Seconds.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace fathom {

__extension__ typedef unsigned __int128 u128;

[[noreturn]] void throw_count_overflow(const char* operation);

// Checked 128-bit arithmetic; throws Error(kInput) on overflow or on a negative difference.
constexpr u128 checked_add(u128 a, u128 b) {
  const u128 sum = a + b;
  if (sum < a) throw_count_overflow("addition");
  return sum;
}
constexpr u128 checked_sub(u128 a, u128 b) {
  if (b > a) throw_count_overflow("subtraction");
  return a - b;
}
constexpr u128 checked_mul(u128 a, u128 b) {
  if (((a | b) >> 64) == 0) return static_cast<u128>(static_cast<std::uint64_t>(a)) * static_cast<std::uint64_t>(b);
  u128 product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw_count_overflow("multiplication");
  return product;
}
// Product of non-negative integers; a negative factor is a bug in the caller.
template <typename... Factors>
constexpr u128 product(Factors... factors) {
  u128 result = 1;
  ((result = checked_mul(result, static_cast<u128>(factors))), ...);
  return result;
}

std::string to_string(u128 value);
// Parses decimal digits; throws Error(kInput) on anything else or on overflow.
u128 parse_u128(const std::string& digits);
constexpr double to_double(u128 value) {
  return static_cast<double>(static_cast<std::uint64_t>(value >> 64)) * 18446744073709551616.0 +
         static_cast<double>(static_cast<std::uint64_t>(value));
}

template <class Tag>
class Count {
 public:
  constexpr Count() = default;
  explicit constexpr Count(u128 value) : value_(value) {}
  constexpr u128 value() const { return value_; }
  constexpr double to_double() const { return fathom::to_double(value_); }
  std::string str() const { return to_string(value_); }

  constexpr Count& operator+=(Count other) {
    value_ = checked_add(value_, other.value_);
    return *this;
  }
  friend constexpr Count operator+(Count a, Count b) { return Count(checked_add(a.value_, b.value_)); }
  friend constexpr Count operator-(Count a, Count b) { return Count(checked_sub(a.value_, b.value_)); }
  friend constexpr Count operator*(Count a, u128 factor) { return Count(checked_mul(a.value_, factor)); }
  friend constexpr Count operator*(u128 factor, Count a) { return a * factor; }
  friend constexpr auto operator<=>(Count a, Count b) = default;

 private:
  u128 value_ = 0;
};

using Flops = Count<struct FlopsTag>;        // 1 multiply-add = 2 FLOP
using Bytes = Count<struct BytesTag>;
using Elements = Count<struct ElementsTag>;  // elements touched once by a vector-type op
using Params = Count<struct ParamsTag>;

template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  explicit constexpr Quantity(double value) : value_(value) {}
  constexpr double value() const { return value_; }
  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator*(Quantity a, double factor) { return Quantity(a.value_ * factor); }
  friend constexpr Quantity operator*(double factor, Quantity a) { return a * factor; }
  friend constexpr Quantity operator/(Quantity a, double divisor) { return Quantity(a.value_ / divisor); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }
  friend constexpr auto operator<=>(Quantity a, Quantity b) = default;

 private:
  double value_ = 0;
};

using Seconds = Quantity<struct SecondsTag>;
using FlopRate = Quantity<struct FlopRateTag>;  // FLOP per second
using ByteRate = Quantity<struct ByteRateTag>;  // bytes per second

constexpr Seconds operator/(Flops flops, FlopRate rate) { return Seconds(flops.to_double() / rate.value()); }
constexpr Seconds operator/(Bytes bytes, ByteRate rate) { return Seconds(bytes.to_double() / rate.value()); }
constexpr FlopRate operator/(Flops flops, Seconds time) { return FlopRate(flops.to_double() / time.value()); }
constexpr ByteRate operator/(Bytes bytes, Seconds time) { return ByteRate(bytes.to_double() / time.value()); }

}  // namespace fathom
