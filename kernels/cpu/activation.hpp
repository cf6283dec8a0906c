// Activations, plain y = act(x) and gated y = act(gate) * up (SwiGLU with silu, GeGLU with gelu), forward and backward.
//   gelu (tanh form): 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));  gelu (erf form): x Phi(x);  silu: x sigma(x);
//   relu: max(x, 0);  relu squared: max(x, 0)^2.   The derivative of relu at 0 is 0.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector_kernels.hpp"
#include "lib/dtype.hpp"

namespace fathom::cpu {

// A [rows][columns] matrix whose rows lie `stride` elements apart.
struct ConstRows {
  const void* data = nullptr;
  std::int64_t stride = 0;
};
struct MutableRows {
  void* data = nullptr;
  std::int64_t stride = 0;
};

struct Activation {
  ActivationKind kind = ActivationKind::kSilu;
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// y may be x (or gate) itself.
void activation(const Activation& shape, ConstRows x, MutableRows y, int threads);
void gated_activation(const Activation& shape, ConstRows gate, ConstRows up, MutableRows y, int threads);

// dx = dy * act'(x); dgate = dy * up * act'(gate), dup = dy * act(gate). dx may be dy.
void activation_backward(const Activation& shape, ConstRows x, ConstRows dy, MutableRows dx, int threads);
void gated_activation_backward(const Activation& shape, ConstRows gate, ConstRows up, ConstRows dy, MutableRows dgate, MutableRows dup,
                               int threads);

}  // namespace fathom::cpu
