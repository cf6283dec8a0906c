// Cross-entropy, gradient norm and AdamW (Loshchilov and Hutter, arXiv 1711.05101).
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/reference/matrix.hpp"

namespace fathom::reference {

// `weight` times the mean over rows with a label (-1: none) of log(sum exp) - logit[label]. With `gradient` the logits become weight (p - onehot) / counted rows;
// columns past `vocab` (padding of the table) and rows without a label become 0.
template <class T>
T cross_entropy(std::int64_t rows, std::int64_t vocab, Matrix<T> logits, const std::int32_t* labels, bool gradient, double weight) {
  using std::exp;
  using std::log;
  const std::int64_t counted = std::count_if(labels, labels + rows, [](std::int32_t label) { return label >= 0; });
  const T scale = T(counted > 0 ? weight / static_cast<double>(counted) : 0.0);
  T loss = T(0);
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = logits.row(r);
    const T top = vocab > 0 ? *std::max_element(row, row + vocab) : T(0);
    T sum = T(0);
    for (std::int64_t c = 0; c < vocab; ++c) sum += exp(row[c] - top);
    if (labels[r] >= 0) loss += top + log(sum) - row[labels[r]];
    if (!gradient) continue;
    for (std::int64_t c = 0; c < logits.cols; ++c) {
      const bool live = c < vocab && labels[r] >= 0;
      row[c] = live ? (exp(row[c] - top) / sum - (c == labels[r] ? T(1) : T(0))) * scale : T(0);
    }
  }
  return loss * scale;
}

template <class T>
T square_sum(Matrix<T> gradient) {
  T sum = T(0);
  for (std::int64_t i = 0; i < gradient.rows * gradient.cols; ++i) sum += gradient.data[i] * gradient.data[i];
  return sum;
}

struct AdamWSettings {
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double gradient_scale = 1;  // min(1, clip / norm)
  std::int64_t step = 1;      // from 1
};

template <class T>
void adamw(const AdamWSettings& s, Matrix<T> gradient, Matrix<T> weight, Matrix<T> m, Matrix<T> v) {
  using std::sqrt;
  const T correction1 = T(1 - std::pow(s.beta1, static_cast<double>(s.step)));
  const T correction2 = T(1 - std::pow(s.beta2, static_cast<double>(s.step)));
  for (std::int64_t i = 0; i < weight.rows * weight.cols; ++i) {
    const T g = gradient.data[i] * T(s.gradient_scale);
    m.data[i] = T(s.beta1) * m.data[i] + T(1 - s.beta1) * g;
    v.data[i] = T(s.beta2) * v.data[i] + T(1 - s.beta2) * g * g;
    const T step = m.data[i] / correction1 / (sqrt(v.data[i] / correction2) + T(s.epsilon));
    weight.data[i] = weight.data[i] - T(s.learning_rate) * (step + T(s.weight_decay) * weight.data[i]);
  }
}

}  // namespace fathom::reference
