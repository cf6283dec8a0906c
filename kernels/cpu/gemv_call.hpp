// From a Gemm op to the product of a few rows (gemv.hpp).
#pragma once

#include "kernels/cpu/gemv.hpp"
#include "lib/op.hpp"

namespace fathom::cpu {

// Sizes, types and layout of `rows` rows of the op; operands and strides are the caller's.
inline Gemv gemv_call(const fathom::Gemm& op, std::int64_t rows, GemvLayout layout) {
  Gemv call;
  call.m = rows;
  call.n = op.out;
  call.k = op.in;
  call.dtype = op.act;
  call.out = op.result;
  call.layout = layout;
  call.accumulate = op.accumulate;
  return call;
}

}  // namespace fathom::cpu
