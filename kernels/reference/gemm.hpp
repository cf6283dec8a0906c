// Matrix products, plain and grouped over experts, in the three roles of a linear layer:
//   Y[rows,out] = X[rows,in] W[in,out] (+ b),  dX = dY W^T,  dW = X^T dY (and db = column sums of dY).
// Grouped: rows offsets[e] .. offsets[e+1]-1 use weight set e, stored one after the other ([experts * in, out]).
#pragma once

#include "kernels/reference/counting.hpp"
#include "kernels/reference/matrix.hpp"

namespace fathom::reference {

template <class T>
struct GemmOperands {
  Matrix<T> x, w, bias, y;                // dX and dW roles read or write the same names: y is dY, and x (w) is the result
  const std::int32_t* offsets = nullptr;  // experts + 1 entries; null: one weight set for all rows
  std::int64_t rows = 0;                  // executed
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t experts = 1;
  bool transposed = false;                // W is stored [out, in]
  bool accumulate = false;
  std::int64_t batch = 1;                 // parts of a row with a weight each, as in Gemm
  std::int64_t batch_stride = 0;
  std::int64_t out_offset = 0;

  T& x_at(std::int64_t r, std::int64_t part, std::int64_t i) const { return x(r, part * (batch_stride ? batch_stride : in) + i); }
  T& y_at(std::int64_t r, std::int64_t part, std::int64_t o) const { return y(r, out_offset + part * out + o); }
};

// visit(weight set, first row, last row + 1); the set is the expert, or the part of the row.
template <class T, class Visit>
void for_each_expert(const GemmOperands<T>& a, Visit&& visit) {
  if (!a.offsets) {
    for (std::int64_t part = 0; part < a.batch; ++part) visit(part, std::int64_t{0}, a.rows);
    return;
  }
  for (std::int64_t e = 0; e < a.experts; ++e) visit(e, std::int64_t{a.offsets[e]}, std::int64_t{a.offsets[e + 1]});
}

template <class T>
T& weight_at(const GemmOperands<T>& a, std::int64_t expert, std::int64_t i, std::int64_t o) {
  return a.transposed ? a.w.data[o * a.in + i] : a.w.data[(expert * a.in + i) * a.out + o];
}

template <class T>
void gemm_forward(const GemmOperands<T>& a) {
  for_each_expert(a, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t o = 0; o < a.out; ++o) {
        T sum = a.bias ? a.bias.data[e * a.out + o] : T(0);
        for (std::int64_t i = 0; i < a.in; ++i) mac(sum, a.x_at(r, a.offsets ? 0 : e, i), weight_at(a, e, i, o));
        a.y_at(r, a.offsets ? 0 : e, o) = a.accumulate ? a.y_at(r, a.offsets ? 0 : e, o) + sum : sum;
      }
    }
  });
}

template <class T>
void gemm_input_gradient(const GemmOperands<T>& a) {
  for_each_expert(a, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t i = 0; i < a.in; ++i) {
        T sum = T(0);
        for (std::int64_t o = 0; o < a.out; ++o) mac(sum, a.y_at(r, a.offsets ? 0 : e, o), weight_at(a, e, i, o));
        a.x_at(r, a.offsets ? 0 : e, i) = a.accumulate ? a.x_at(r, a.offsets ? 0 : e, i) + sum : sum;
      }
    }
  });
}

template <class T>
void gemm_weight_gradient(const GemmOperands<T>& a) {
  for_each_expert(a, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < a.in; ++i) {
      for (std::int64_t o = 0; o < a.out; ++o) {
        T sum = T(0);
        for (std::int64_t r = begin; r < end; ++r) mac(sum, a.x_at(r, a.offsets ? 0 : e, i), a.y_at(r, a.offsets ? 0 : e, o));
        T& dw = weight_at(a, e, i, o);
        dw = a.accumulate ? dw + sum : sum;
      }
    }
    if (!a.bias) return;
    for (std::int64_t o = 0; o < a.out; ++o) {
      T sum = T(0);
      for (std::int64_t r = begin; r < end; ++r) sum += a.y_at(r, a.offsets ? 0 : e, o);
      T& db = a.bias.data[e * a.out + o];
      db = a.accumulate ? db + sum : sum;
    }
  });
}

}  // namespace fathom::reference
