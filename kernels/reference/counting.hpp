// A scalar that counts: the reference kernels are templates over the scalar type, and run with Counted they must execute exactly the
// multiply-adds that the cost rules state.
//
// Only matrix-type loops go through mac(): GEMM, attention core, router scores and their gradients. Everything else (norms, softmax,
// activations, gates, residual adds) is an element count, not a FLOP.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace fathom::reference {

// Multiply-adds executed by this thread since it started; read it before and after.
inline std::uint64_t& mac_count() {
  static thread_local std::uint64_t count = 0;
  return count;
}

template <class Base>
struct Counted {
  Base value{};

  Counted() = default;
  Counted(Base v) : value(v) {}
  explicit operator double() const { return static_cast<double>(value); }
  explicit operator float() const { return static_cast<float>(value); }

  Counted& operator+=(Counted other) { return value += other.value, *this; }
  Counted& operator-=(Counted other) { return value -= other.value, *this; }
  Counted& operator*=(Counted other) { return value *= other.value, *this; }
  Counted& operator/=(Counted other) { return value /= other.value, *this; }
  friend Counted operator+(Counted a, Counted b) { return a += b; }
  friend Counted operator-(Counted a, Counted b) { return a -= b; }
  friend Counted operator*(Counted a, Counted b) { return a *= b; }
  friend Counted operator/(Counted a, Counted b) { return a /= b; }
  friend Counted operator-(Counted a) { return Counted(-a.value); }
  friend auto operator<=>(Counted a, Counted b) { return a.value <=> b.value; }
  friend bool operator==(Counted a, Counted b) { return a.value == b.value; }

  friend Counted exp(Counted a) { return Counted(std::exp(a.value)); }
  friend Counted log(Counted a) { return Counted(std::log(a.value)); }
  friend Counted log1p(Counted a) { return Counted(std::log1p(a.value)); }
  friend Counted sqrt(Counted a) { return Counted(std::sqrt(a.value)); }
  friend Counted tanh(Counted a) { return Counted(std::tanh(a.value)); }
  friend Counted erf(Counted a) { return Counted(std::erf(a.value)); }
  friend Counted abs(Counted a) { return Counted(std::abs(a.value)); }
  friend bool isnan(Counted a) { return std::isnan(a.value); }
};

// One multiply-add of a matrix-type loop.
template <class T>
void mac(T& sum, const T& a, const T& b) {
  sum += a * b;
}
template <class Base>
void mac(Counted<Base>& sum, const Counted<Base>& a, const Counted<Base>& b) {
  ++mac_count();
  sum.value += a.value * b.value;
}

}  // namespace fathom::reference
