// Activations and their derivatives; plain y = act(x) and gated y = act(gate) * up (Shazeer, arXiv 2002.05202).
#pragma once

#include <cmath>

#include "kernels/reference/matrix.hpp"
#include "lib/op.hpp"

namespace fathom::reference {

template <class T>
T logistic(const T& x) {
  using std::exp;
  return T(1) / (T(1) + exp(-x));
}

template <class T>
T activate(ActivationKind kind, const T& x) {
  using std::erf;
  using std::tanh;
  switch (kind) {
    case ActivationKind::kGeluTanh: return T(0.5) * x * (T(1) + tanh(T(std::sqrt(2 / M_PI)) * (x + T(0.044715) * x * x * x)));
    case ActivationKind::kGeluErf: return T(0.5) * x * (T(1) + erf(x * T(M_SQRT1_2)));
    case ActivationKind::kSilu: return x * logistic(x);
    case ActivationKind::kRelu: return x > T(0) ? x : T(0);
    case ActivationKind::kRelu2: return x > T(0) ? x * x : T(0);
  }
  return x;
}

template <class T>
T activation_slope(ActivationKind kind, const T& x) {
  using std::erf;
  using std::exp;
  using std::tanh;
  switch (kind) {
    case ActivationKind::kGeluTanh: {
      const T c = T(std::sqrt(2 / M_PI));
      const T t = tanh(c * (x + T(0.044715) * x * x * x));
      return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * c * (T(1) + T(3 * 0.044715) * x * x);
    }
    case ActivationKind::kGeluErf: return T(0.5) * (T(1) + erf(x * T(M_SQRT1_2))) + x * exp(T(-0.5) * x * x) * T(1 / std::sqrt(2 * M_PI));
    case ActivationKind::kSilu: {
      const T s = logistic(x);
      return s * (T(1) + x * (T(1) - s));
    }
    case ActivationKind::kRelu: return x > T(0) ? T(1) : T(0);
    case ActivationKind::kRelu2: return x > T(0) ? T(2) * x : T(0);
  }
  return T(1);
}

// `up` may be empty (plain).
template <class T>
void activation(ActivationKind kind, std::int64_t rows, Matrix<T> x, Matrix<T> up, Matrix<T> y) {
  for (std::int64_t i = 0; i < rows * y.cols; ++i) {
    const T a = activate(kind, x.data[i]);
    y.data[i] = up ? a * up.data[i] : a;
  }
}

template <class T>
void activation_backward(ActivationKind kind, std::int64_t rows, Matrix<T> x, Matrix<T> up, Matrix<T> dy, Matrix<T> dx, Matrix<T> dup) {
  for (std::int64_t i = 0; i < rows * dy.cols; ++i) {
    const T g = dy.data[i];
    const T slope = activation_slope(kind, x.data[i]);
    const T value = activate(kind, x.data[i]);
    dx.data[i] = up ? g * up.data[i] * slope : g * slope;
    if (up) dup.data[i] = g * value;
  }
}

}  // namespace fathom::reference
