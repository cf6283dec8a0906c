// AdamW with decoupled weight decay in one pass over a flat range of parameters (Loshchilov and Hutter, arXiv 1711.05101):
//   g = grad_scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p = p (1 - lr weight_decay) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
// Master weights and moments are f32. 28 bytes per parameter: f32 gradients, or bf16 gradients with a bf16 copy of the weights.
#pragma once

#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cpu {

struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double grad_scale = 1.0;  // clipping (and loss unscaling), applied in the pass
  std::int64_t step = 1;    // t, from 1
};

// copy: bf16 weights of the compute path, written; null: none.
void adamw(const AdamW& settings, float* master, float* first_moment, float* second_moment, DType grad_type, const void* grad, bf16* copy,
           std::int64_t count, int threads);

// The factor that brings a gradient of norm sqrt(sum_squares) to at most max_norm: min(1, max_norm / norm).
double clip_factor(double sum_squares, double max_norm);

}  // namespace fathom::cpu
