// The routing of a Mixture-of-Depths block: scores, selection, gather, gated scatter, the auxiliary loss, and their gradients (arXiv 2404.02258, section 3).
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/reference/activation.hpp"
#include "kernels/reference/counting.hpp"
#include "kernels/reference/matrix.hpp"
#include "lib/op.hpp"

namespace fathom::reference {

template <class T>
T gate_value(const Gate& gate, const T& r) {
  using std::tanh;
  switch (gate.kind) {
    case GateKind::kNone: return T(1);
    case GateKind::kRaw: return r;
    case GateKind::kSigmoid: return logistic(r);
    case GateKind::kScaledSigmoid: return T(gate.alpha) * logistic(r);
    case GateKind::kTanh: return T(gate.alpha) * tanh(r) + T(gate.beta);
  }
  return T(1);
}

template <class T>
T gate_slope(const Gate& gate, const T& r) {
  using std::tanh;
  switch (gate.kind) {
    case GateKind::kNone: return T(0);
    case GateKind::kRaw: return T(1);
    case GateKind::kSigmoid: return logistic(r) * (T(1) - logistic(r));
    case GateKind::kScaledSigmoid: return T(gate.alpha) * logistic(r) * (T(1) - logistic(r));
    case GateKind::kTanh: return T(gate.alpha) * (T(1) - tanh(r) * tanh(r));
  }
  return T(0);
}

// r_i = <x_i, w> + b.
template <class T>
void router_score(std::int64_t rows, Matrix<T> x, Matrix<T> w, Matrix<T> bias, Matrix<T> scores) {
  for (std::int64_t r = 0; r < rows; ++r) {
    T sum = T(0);
    for (std::int64_t c = 0; c < x.cols; ++c) mac(sum, x(r, c), w.data[c]);
    scores.data[r] = bias ? sum + bias.data[0] : sum;
  }
}

// The k best of one sequence in the total order (-score, position), ascending. The first NaN's position, or -1.
template <class T>
std::int64_t select_top(const T* scores, std::int64_t length, std::int64_t k, std::vector<std::int32_t>& chosen) {
  using std::isnan;
  for (std::int64_t i = 0; i < length; ++i)
    if (isnan(scores[i])) return i;
  std::vector<std::int32_t> order(static_cast<size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); });
  chosen.assign(order.begin(), order.begin() + k);
  std::sort(chosen.begin(), chosen.end());
  return -1;
}

// Positions with score > threshold, strictly. The first NaN's position, or -1.
template <class T>
std::int64_t select_above(const T* scores, std::int64_t length, double threshold, std::vector<std::int32_t>& chosen) {
  using std::isnan;
  chosen.clear();
  for (std::int64_t i = 0; i < length; ++i) {
    if (isnan(scores[i])) return i;
    if (scores[i] > T(threshold)) chosen.push_back(static_cast<std::int32_t>(i));
  }
  return -1;
}

template <class T>
void gather_rows(std::int64_t rows, Matrix<T> x, const std::int32_t* indices, Matrix<T> y) {
  for (std::int64_t r = 0; r < rows; ++r) std::copy(x.row(indices[r]), x.row(indices[r]) + x.cols, y.row(r));
}

// dx[indices] += dy.
template <class T>
void gather_backward(std::int64_t rows, Matrix<T> dy, const std::int32_t* indices, Matrix<T> dx) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < dy.cols; ++c) dx(indices[r], c) += dy(r, c);
}

// y = x; y[indices] += g(score) f. Rows that are not selected are copied bit by bit.
template <class T>
void scatter_add_rows(const Gate& gate, bool replace, std::int64_t rows, Matrix<T> x, Matrix<T> f, const std::int32_t* indices, Matrix<T> scores, Matrix<T> y) {
  if (x.data != y.data) std::copy(x.data, x.data + x.rows * x.cols, y.data);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T g = scores ? gate_value(gate, scores.data[indices[r]]) : T(1);
    for (std::int64_t c = 0; c < f.cols; ++c) y(indices[r], c) = (replace ? T(0) : y(indices[r], c)) + g * f(r, c);
  }
}

// df = g dy; dscore_i (+)= g'(r_i) <dy_i, f_i>, with f itself, not g f.
template <class T>
void scatter_add_backward(const Gate& gate, std::int64_t rows, Matrix<T> dy, Matrix<T> f, const std::int32_t* indices, Matrix<T> scores,
                          bool accumulate, Matrix<T> df, Matrix<T> dscores) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T score = scores ? scores.data[indices[r]] : T(0);
    const T g = scores ? gate_value(gate, score) : T(1);
    T dot = T(0);
    for (std::int64_t c = 0; c < f.cols; ++c) {
      if (scores) dot += dy(indices[r], c) * f(r, c);
      df(r, c) = g * dy(indices[r], c);
    }
    if (!scores) continue;
    T& d = dscores.data[indices[r]];
    d = (accumulate ? d : T(0)) + gate_slope(gate, score) * dot;
  }
}

// lambda * mean over `rows` of BCE(sigma(r), was selected), and its gradient lambda / rows * (sigma(r) - z).
template <class T>
T router_loss(std::int64_t rows, double lambda, Matrix<T> scores, const std::int32_t* indices, std::int64_t selected, Matrix<T> dscores) {
  using std::abs;
  using std::exp;
  using std::log1p;
  std::vector<bool> chosen(static_cast<size_t>(rows), false);
  for (std::int64_t i = 0; i < selected; ++i) chosen[static_cast<size_t>(indices[i])] = true;
  const T weight = T(rows > 0 ? lambda / static_cast<double>(rows) : 0.0);
  T loss = T(0);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T r = scores.data[i];
    const T z = chosen[static_cast<size_t>(i)] ? T(1) : T(0);
    loss += (r > T(0) ? r : T(0)) - r * z + log1p(exp(-abs(r)));
    dscores.data[i] = weight * (logistic(r) - z);
  }
  return weight * loss;
}

template <class T>
struct RouterGradient {
  Matrix<T> y;        // the block's output: rows that were not selected are its input, unchanged
  Matrix<T> gathered; // input rows that were selected
  Matrix<T> w, dscores, dw, db, dx;
  const std::int32_t* indices = nullptr;
  std::int64_t selected = 0;
  bool all_weight_rows = false;  // dw over every row (auxiliary loss), else over the selected ones
  bool all_input_rows = false;
  bool accumulate = false;       // dw, db
  Matrix<T> scores;              // with a detached auxiliary loss of weight detached_lambda / rows
  double detached_lambda = 0;
};

template <class T>
void router_score_backward(std::int64_t rows, const RouterGradient<T>& a) {
  std::vector<std::int64_t> compact(static_cast<size_t>(rows), -1);
  for (std::int64_t r = 0; r < a.selected; ++r) compact[static_cast<size_t>(a.indices[r])] = r;
  if (!a.accumulate && a.dw) a.dw.clear();
  if (!a.accumulate && a.db) a.db.clear();
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t at = compact[static_cast<size_t>(i)];
    const T d = a.dscores.data[i];
    if (a.dw && (a.all_weight_rows || at >= 0)) {
      const T* x = at >= 0 ? a.gathered.row(at) : a.y.row(i);
      for (std::int64_t c = 0; c < a.w.cols; ++c) mac(a.dw.data[c], d, x[c]);
      if (a.db) a.db.data[0] += d;
    }
    if (!a.dx || (!a.all_input_rows && at < 0)) continue;
    const T detached = a.detached_lambda > 0 ? T(a.detached_lambda / static_cast<double>(rows)) * (logistic(a.scores.data[i]) - T(1)) : T(0);
    for (std::int64_t c = 0; c < a.w.cols; ++c) mac(a.dx(i, c), d - detached, a.w.data[c]);
  }
}

// The last layer of an MLP router or a predictor, whose input x is at hand: all rows, dx overwritten; dw, db or dx may be missing.
template <class T>
void score_backward(std::int64_t rows, Matrix<T> x, Matrix<T> w, Matrix<T> dscores, bool accumulate, Matrix<T> dw, Matrix<T> db, Matrix<T> dx) {
  if (!accumulate && dw) dw.clear();
  if (!accumulate && db) db.clear();
  if (dx) dx.clear();
  for (std::int64_t i = 0; i < rows; ++i) {
    if (db) db.data[0] += dscores.data[i];
    for (std::int64_t c = 0; c < w.cols; ++c) {
      if (dw) mac(dw.data[c], dscores.data[i], x(i, c));
      if (dx) mac(dx(i, c), dscores.data[i], w.data[c]);
    }
  }
}

}  // namespace fathom::reference
