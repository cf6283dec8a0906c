// Token-to-expert routing of a mixture of experts, and integrated MoDE's no-op experts (arXiv 2404.02258, 4.3).
//
// Each token takes its `picks` best outputs (ties to the lower one) of softmax or sigmoid scores, with weights that are normalised to sum to 1
// over the picks; outputs at or past `experts` are no-ops of cost 0 and get no row. Rows are sorted by expert, stable in token order:
// tokens[j] is the token of row j (-1 behind the last one), weights[j] its weight, rows of expert e are offsets[e] .. offsets[e+1]-1.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/reference/activation.hpp"
#include "kernels/reference/matrix.hpp"

namespace fathom::reference {

struct ExpertRouting {
  std::int64_t tokens = 0, experts = 0, noops = 0, picks = 0;
  bool sigmoid = false;
  std::int64_t capacity = 0;  // rows per expert; 0: any number
};

// The outputs a token takes, best first, and their normalised weights.
template <class T>
void expert_picks(const ExpertRouting& s, const T* logits, const T* correction, std::vector<std::int64_t>& picks, std::vector<T>& weights) {
  using std::exp;
  std::vector<std::int64_t> order(static_cast<size_t>(s.experts + s.noops));
  std::iota(order.begin(), order.end(), 0);
  // A correction moves the choice, on the scale of the scores, and leaves the weights alone.
  std::vector<T> keys(logits, logits + s.experts + s.noops);
  for (std::int64_t e = 0; correction && e < s.experts; ++e) keys[static_cast<size_t>(e)] = (s.sigmoid ? logistic(logits[e]) : logits[e]) + correction[e];
  for (std::int64_t e = s.experts; correction && s.sigmoid && e < s.experts + s.noops; ++e) keys[static_cast<size_t>(e)] = logistic(logits[e]);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)]; });
  picks.assign(order.begin(), order.begin() + s.picks);
  weights.clear();
  T sum = T(0);
  for (const std::int64_t pick : picks) {
    weights.push_back(s.sigmoid ? logistic(logits[pick]) : exp(logits[pick] - logits[picks[0]]));
    sum += weights.back();
  }
  for (T& weight : weights) weight /= sum;
}

// Returns the number of rows.
template <class T>
std::int64_t expert_select(const ExpertRouting& s, Matrix<T> logits, const T* correction, std::int64_t room, std::int32_t* tokens, T* weights, std::int32_t* offsets) {
  std::vector<std::int64_t> picks;
  std::vector<T> values;
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    offsets[e] = static_cast<std::int32_t>(row);
    for (std::int64_t token = 0; token < s.tokens; ++token) {
      expert_picks(s, static_cast<const T*>(logits.row(token)), correction, picks, values);
      if (s.capacity > 0 && row - offsets[e] >= s.capacity) continue;  // the expert is full: the token is dropped here
      for (size_t j = 0; j < picks.size(); ++j) {
        if (picks[j] != e) continue;
        tokens[row] = static_cast<std::int32_t>(token);
        weights[row++] = values[j];
      }
    }
  }
  offsets[s.experts] = static_cast<std::int32_t>(row);
  for (std::int64_t j = row; j < room; ++j) tokens[j] = -1, weights[j] = T(0);
  return row;
}

// Gradient of the weights through normalisation and scores. For softmax the normalised weights are a softmax over the picks alone:
// dl_p = w_p (dw_p - sum_q w_q dw_q); for sigmoid w = s / sum s: dl_p = (dw_p - sum_q w_q dw_q) s_p (1 - s_p) / sum s.
template <class T>
void expert_select_backward(const ExpertRouting& s, Matrix<T> logits, const T* correction, const std::int32_t* tokens, const std::int32_t* offsets, const T* dweights,
                            Matrix<T> dlogits) {
  std::vector<std::int64_t> picks;
  std::vector<T> values;
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    const T* l = logits.row(token);
    expert_picks(s, l, correction, picks, values);
    for (std::int64_t e = 0; e < dlogits.cols; ++e) dlogits(token, e) = T(0);
    std::vector<T> d(picks.size(), T(0));
    T dot = T(0), sum = T(0);
    for (size_t p = 0; p < picks.size(); ++p) {
      if (picks[p] < s.experts)
        for (std::int32_t j = offsets[picks[p]]; j < offsets[picks[p] + 1]; ++j)
          if (tokens[j] == token) d[p] = dweights[j];
      dot += values[p] * d[p];
      sum += logistic(l[picks[p]]);
    }
    for (size_t p = 0; p < picks.size(); ++p) {
      const T sigma = logistic(l[picks[p]]);
      const T slope = s.sigmoid ? sigma * (T(1) - sigma) / sum : values[p];
      dlogits(token, picks[p]) = slope * (d[p] - dot);
    }
  }
}

template <class T>
void expert_dispatch(std::int64_t rows, Matrix<T> x, const std::int32_t* tokens, Matrix<T> y) {
  for (std::int64_t j = 0; j < rows; ++j) std::copy(x.row(tokens[j]), x.row(tokens[j]) + x.cols, y.row(j));
}

// y[token] = (shared[token] +) sum of weight_j x[j].
template <class T>
void expert_combine(std::int64_t rows, Matrix<T> x, const std::int32_t* tokens, const T* weights, Matrix<T> shared, Matrix<T> gate, Matrix<T> y) {
  for (std::int64_t t = 0; t < y.rows; ++t)
    for (std::int64_t c = 0; c < y.cols; ++c) y(t, c) = !shared ? T(0) : gate ? logistic(gate.data[t]) * shared(t, c) : shared(t, c);
  for (std::int64_t j = 0; j < rows; ++j)
    for (std::int64_t c = 0; c < x.cols; ++c) y(tokens[j], c) += weights[j] * x(j, c);
}

template <class T>
void expert_combine_backward(std::int64_t rows, Matrix<T> dy, Matrix<T> x, const std::int32_t* tokens, const T* weights, Matrix<T> dx, T* dweights) {
  for (std::int64_t j = 0; j < rows; ++j) {
    dweights[j] = T(0);
    for (std::int64_t c = 0; c < x.cols; ++c) {
      dweights[j] += dy(tokens[j], c) * x(j, c);
      dx(j, c) = weights[j] * dy(tokens[j], c);
    }
  }
}

// With y = ... + sigma(gate) shared: dshared = sigma(gate) dy, dgate = sigma' <dy, shared>.
template <class T>
void shared_gate_backward(Matrix<T> dy, Matrix<T> shared, Matrix<T> gate, Matrix<T> dshared, Matrix<T> dgate) {
  for (std::int64_t t = 0; t < dy.rows; ++t) {
    const T sigma = logistic(gate.data[t]);
    T dot = T(0);
    for (std::int64_t c = 0; c < dy.cols; ++c) {
      dot += dy(t, c) * shared(t, c);
      dshared(t, c) = sigma * dy(t, c);
    }
    dgate.data[t] = sigma * (T(1) - sigma) * dot;
  }
}

template <class T>
void expert_dispatch_backward(std::int64_t rows, Matrix<T> dy, const std::int32_t* tokens, bool accumulate, Matrix<T> dx) {
  if (!accumulate) dx.clear();
  for (std::int64_t j = 0; j < rows; ++j)
    for (std::int64_t c = 0; c < dy.cols; ++c) dx(tokens[j], c) += dy(j, c);
}

}  // namespace fathom::reference
