// RMSNorm and LayerNorm, forward and backward (Zhang and Sennrich, arXiv 1910.07467; Ba et al., arXiv 1607.06450).
//   RMSNorm:   y = x * inverse * gain,            inverse = 1 / sqrt(mean(x^2) + epsilon)
//   LayerNorm: y = (x - mean) * inverse * gain + bias, inverse = 1 / sqrt(var + epsilon), var the biased variance
// Statistics lie as [rows * groups] for RMSNorm, and as all means, then all inverses, for LayerNorm.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/reference/matrix.hpp"

namespace fathom::reference {

template <class T>
struct NormOperands {
  Matrix<T> x, gain, bias, y, stats;  // bias and stats may be empty
  std::int64_t rows = 0;              // executed
  std::int64_t declared_rows = 0;     // where LayerNorm's inverses start in stats
  std::int64_t width = 0;
  std::int64_t groups = 1;            // RMSNorm: norms per row, from column `offset`
  std::int64_t offset = 0;            // of y, dy and dx (and of x in the forward pass)
  Matrix<T> saved;                    // in place: the columns of x before they are overwritten, [rows, groups * width]
  double epsilon = 1e-5;
};

// Gains [1, width] are the same for every group, [groups, width] each group's own.
template <class T>
T gain_at(const NormOperands<T>& a, std::int64_t group, std::int64_t c) {
  if (!a.gain) return T(1);
  return a.gain.data[(a.gain.rows > 1 ? group * a.width : 0) + c];
}

template <class T>
void rms_norm(const NormOperands<T>& a) {
  using std::sqrt;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t group = 0; group < a.groups; ++group) {
      const T* x = a.x.row(r) + a.offset + group * a.width;
      T* y = a.y.row(r) + a.offset + group * a.width;
      if (a.saved) std::copy(x, x + a.width, a.saved.row(r) + group * a.width);
      T squares = T(0);
      for (std::int64_t c = 0; c < a.width; ++c) squares += x[c] * x[c];
      const T inverse = T(1) / sqrt(squares / T(static_cast<double>(a.width)) + T(a.epsilon));
      if (a.stats) a.stats.data[r * a.groups + group] = inverse;
      for (std::int64_t c = 0; c < a.width; ++c) y[c] = x[c] * inverse * gain_at(a, group, c);
    }
  }
}

template <class T>
void layer_norm(const NormOperands<T>& a) {
  using std::sqrt;
  const T width = T(static_cast<double>(a.width));
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x.row(r);
    T mean = T(0), variance = T(0);
    for (std::int64_t c = 0; c < a.width; ++c) mean += x[c];
    mean /= width;
    for (std::int64_t c = 0; c < a.width; ++c) variance += (x[c] - mean) * (x[c] - mean);
    const T inverse = T(1) / sqrt(variance / width + T(a.epsilon));
    if (a.stats) {
      a.stats.data[r] = mean;
      a.stats.data[a.declared_rows + r] = inverse;
    }
    for (std::int64_t c = 0; c < a.width; ++c) {
      T value = (x[c] - mean) * inverse;
      if (a.gain) value *= a.gain.data[c];
      if (a.bias) value += a.bias.data[c];
      a.y(r, c) = value;
    }
  }
}

template <class T>
struct NormGradients {
  Matrix<T> dy, dx, dgain, dbias;    // dgain and dbias may be empty (frozen)
  bool accumulate = false;           // dx
  bool accumulate_weights = false;   // dgain, dbias
};

// With h = (x - mean) * inverse and u = dy * gain: dx = inverse * (u - mean(u) - h * mean(u * h)); RMSNorm has no mean(u) term.
template <class T>
void norm_row_backward(const NormOperands<T>& a, const NormGradients<T>& g, std::int64_t r, std::int64_t group, const T& mean, const T& inverse,
                       bool centred) {
  const T width = T(static_cast<double>(a.width));
  const std::int64_t at = a.offset + group * a.width;
  const T* x = a.x.row(r) + group * a.width;
  const T* dy = g.dy.row(r) + at;
  const std::int64_t gains = g.dgain && g.dgain.rows > 1 ? group * a.width : 0;
  T sum_u = T(0), sum_uh = T(0);
  for (std::int64_t c = 0; c < a.width; ++c) {
    const T h = (x[c] - mean) * inverse;
    const T u = dy[c] * gain_at(a, group, c);
    sum_u += u;
    sum_uh += u * h;
    if (g.dgain) g.dgain.data[gains + c] += dy[c] * h;
    if (g.dbias) g.dbias.data[c] += dy[c];
  }
  for (std::int64_t c = 0; c < a.width; ++c) {
    const T h = (x[c] - mean) * inverse;
    const T u = dy[c] * gain_at(a, group, c);
    const T d = inverse * (u - (centred ? sum_u / width : T(0)) - h * (sum_uh / width));
    T& dx = g.dx.row(r)[at + c];
    dx = g.accumulate ? dx + d : d;
  }
}

template <class T>
void rms_norm_backward(const NormOperands<T>& a, const NormGradients<T>& g) {
  if (!g.accumulate_weights && g.dgain) g.dgain.clear();
  for (std::int64_t r = 0; r < a.rows; ++r)
    for (std::int64_t group = 0; group < a.groups; ++group)
      norm_row_backward(a, g, r, group, T(0), a.stats.data[r * a.groups + group], false);
}

template <class T>
void layer_norm_backward(const NormOperands<T>& a, const NormGradients<T>& g) {
  if (!g.accumulate_weights && g.dgain) g.dgain.clear();
  if (!g.accumulate_weights && g.dbias) g.dbias.clear();
  for (std::int64_t r = 0; r < a.rows; ++r) norm_row_backward(a, g, r, 0, a.stats.data[r], a.stats.data[a.declared_rows + r], true);
}

}  // namespace fathom::reference
