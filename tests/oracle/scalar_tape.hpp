// Reverse-mode differentiation of scalar programs: every operation is recorded with its local derivatives, and one sweep backwards gives
// the derivative of the last value by every input. Knows nothing of transformers, so it cannot share a mistake with a hand-written backward pass.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace fathom::testing {

class Var {
 public:
  Var(double value = 0) : value_(value) {}  // a constant: no derivative
  static Var input(double value) { return Var(value, add(-1, 0, -1, 0)); }
  double value() const { return value_; }
  int node() const { return node_; }
  static void clear() { tape().clear(); }

  // Derivatives of `result` by every recorded value, by node.
  static std::vector<double> derivatives(const Var& result) {
    std::vector<double> d(tape().size(), 0.0);
    if (result.node_ >= 0) d[static_cast<size_t>(result.node_)] = 1;
    for (size_t i = tape().size(); i-- > 0;) {
      const Node& n = tape()[i];
      if (n.a >= 0) d[static_cast<size_t>(n.a)] += d[i] * n.da;
      if (n.b >= 0) d[static_cast<size_t>(n.b)] += d[i] * n.db;
    }
    return d;
  }

  friend Var operator+(Var a, Var b) { return binary(a.value_ + b.value_, a, 1, b, 1); }
  friend Var operator-(Var a, Var b) { return binary(a.value_ - b.value_, a, 1, b, -1); }
  friend Var operator*(Var a, Var b) { return binary(a.value_ * b.value_, a, b.value_, b, a.value_); }
  friend Var operator/(Var a, Var b) { return binary(a.value_ / b.value_, a, 1 / b.value_, b, -a.value_ / (b.value_ * b.value_)); }
  friend Var operator-(Var a) { return binary(-a.value_, a, -1, Var(), 0); }
  Var& operator+=(Var other) { return *this = *this + other; }
  friend bool operator>(Var a, Var b) { return a.value_ > b.value_; }
  friend bool operator<(Var a, Var b) { return a.value_ < b.value_; }

  friend Var exp(Var a) { return binary(std::exp(a.value_), a, std::exp(a.value_), Var(), 0); }
  friend Var log(Var a) { return binary(std::log(a.value_), a, 1 / a.value_, Var(), 0); }
  friend Var sqrt(Var a) { return binary(std::sqrt(a.value_), a, 0.5 / std::sqrt(a.value_), Var(), 0); }
  friend Var tanh(Var a) { return binary(std::tanh(a.value_), a, 1 - std::tanh(a.value_) * std::tanh(a.value_), Var(), 0); }
  friend Var erf(Var a) { return binary(std::erf(a.value_), a, 2 / std::sqrt(M_PI) * std::exp(-a.value_ * a.value_), Var(), 0); }

 private:
  struct Node {
    int a, b;
    double da, db;
  };
  Var(double value, int node) : value_(value), node_(node) {}
  static std::vector<Node>& tape() {
    static std::vector<Node> nodes;
    return nodes;
  }
  static int add(int a, double da, int b, double db) {
    tape().push_back({a, b, da, db});
    return static_cast<int>(tape().size()) - 1;
  }
  static Var binary(double value, const Var& a, double da, const Var& b, double db) {
    if (a.node_ < 0 && b.node_ < 0) return Var(value);
    return Var(value, add(a.node_, da, b.node_, db));
  }

  double value_;
  int node_ = -1;
};

inline double value_of(double x) { return x; }
inline double value_of(const Var& x) { return x.value(); }

}  // namespace fathom::testing
