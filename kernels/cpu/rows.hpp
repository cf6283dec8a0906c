// Moving rows of the residual stream in and out of a routed block, with the router's gate; forward and backward.
//   gather: X~ = X[I];  scatter: Y[I_i] += g(r_i) f_i in place, rows not selected are not touched (bit-identical).
//   backward (G = dL/dY): dF_i = g(r_i) G[I_i]; ds_i = <G[I_i], F_i>; dr_i = g'(r_i) ds_i; gather backward: G[I_i] += dX~_i.
// Indices are rows of the large matrix and must be unique within a scatter (top-k gives that), so threads never meet.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

struct Rows {
  DType type = DType::kF32;
  std::int64_t count = 0;  // rows moved
  std::int64_t width = 0;
};

// y[i] = x[indices[i]].
void gather_rows(const Rows& rows, const void* x, const std::int32_t* indices, void* y, int threads);

// y[indices[i]] += scale[i] * f[i]; scale null: 1 (gather's backward).
void scatter_add_rows(const Rows& rows, const void* f, const float* scale, const std::int32_t* indices, void* y, int threads);

// df[i] = gate[i] * dy[indices[i]] and dscore[i] = derivative[i] * <dy[indices[i]], f[i]> in one pass. df may be f.
void scatter_add_rows_backward(const Rows& rows, const void* dy, const void* f, const float* gate, const float* derivative,
                               const std::int32_t* indices, void* df, float* dscore, int threads);

// The gate g(r): raw r; sigmoid; alpha * sigmoid; a * tanh(r) + b; straight-through (1, derivative 1).
enum class GateKind { kRaw, kSigmoid, kAlphaSigmoid, kTanh, kStraightThrough };
struct Gate {
  GateKind kind = GateKind::kRaw;
  float a = 1.0f;  // alpha of alpha * sigmoid, a of tanh
  float b = 0.0f;  // b of tanh
};

// gate[i] = g(r) and derivative[i] = g'(r) of r = scores[indices[i]] (indices null: scores[i]); derivative may be null.
void gate_values(const Gate& gate, const float* scores, const std::int32_t* indices, std::int64_t count, float* values, float* derivative);

}  // namespace fathom::cpu
