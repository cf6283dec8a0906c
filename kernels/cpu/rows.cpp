#include "kernels/cpu/rows.hpp"

#include <cmath>

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

void gather_rows(const Rows& rows, const void* x, const std::int32_t* indices, void* y, int threads) {
  const auto kernel = vector_kernels().gather[storage(rows.type)];
  over_ranges(rows.count, threads, rows.width * dtype_bytes(rows.type) * 2, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(x, indices, y, rows.width, begin, end); });
}

void scatter_add_rows(const Rows& rows, const void* f, const float* scale, const std::int32_t* indices, void* y, int threads) {
  const ScatterArgs args{f, scale, indices, y, rows.width};
  const auto kernel = vector_kernels().scatter_add[storage(rows.type)];
  over_ranges(rows.count, threads, rows.width * dtype_bytes(rows.type) * 3, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
}

void scatter_add_rows_backward(const Rows& rows, const void* dy, const void* f, const float* gate, const float* derivative,
                               const std::int32_t* indices, void* df, float* dscore, int threads) {
  const ScatterGradArgs args{dy, f, gate, derivative, indices, df, dscore, rows.width};
  const auto kernel = vector_kernels().scatter_grad[storage(rows.type)];
  over_ranges(rows.count, threads, rows.width * dtype_bytes(rows.type) * 3, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
}

void gate_values(const Gate& gate, const float* scores, const std::int32_t* indices, std::int64_t count, float* values, float* derivative) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float r = scores[indices ? indices[i] : i];
    float value = r, slope = 1.0f;
    switch (gate.kind) {
      case GateKind::kRaw: break;
      case GateKind::kSigmoid:
      case GateKind::kAlphaSigmoid: {
        const float factor = gate.kind == GateKind::kSigmoid ? 1.0f : gate.a;
        const float e = std::exp(-std::fabs(r));  // never overflows
        const float s = r < 0 ? e / (1.0f + e) : 1.0f / (1.0f + e);
        value = factor * s;
        slope = factor * e / ((1.0f + e) * (1.0f + e));
        break;
      }
      case GateKind::kTanh: {
        const float e = std::exp(-2.0f * std::fabs(r));
        value = gate.a * std::tanh(r) + gate.b;
        slope = gate.a * 4.0f * e / ((1.0f + e) * (1.0f + e));  // 1 - tanh^2 without cancellation
        break;
      }
      case GateKind::kStraightThrough: value = 1.0f; break;
    }
    values[i] = value;
    if (derivative) derivative[i] = slope;
  }
}

}  // namespace fathom::cpu
