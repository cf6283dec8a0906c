#include "kernels/cpu/optimizer.hpp"

#include <cmath>

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

void adamw(const AdamW& s, float* master, float* first_moment, float* second_moment, DType grad_type, const void* grad, bf16* copy,
           std::int64_t count, int threads) {
  if (s.step < 1) throw_internal("adamw: steps count from 1");
  const double t = static_cast<double>(s.step);
  AdamWArgs args{master, first_moment, second_moment, grad, copy, 0, 0, 0, 0, 0, 0, 0};
  args.beta1 = static_cast<float>(s.beta1);
  args.beta2 = static_cast<float>(s.beta2);
  args.decay = static_cast<float>(1 - s.learning_rate * s.weight_decay);
  args.step = static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, t)));
  args.inverse_root2 = static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, t)));
  args.epsilon = static_cast<float>(s.epsilon);
  args.grad_scale = static_cast<float>(s.grad_scale);
  const auto kernel = vector_kernels().adamw[storage(grad_type)];
  over_ranges(count, threads, 28, 64, [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
}

double clip_factor(double sum_squares, double max_norm) {
  const double norm = std::sqrt(sum_squares);
  return norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace fathom::cpu
