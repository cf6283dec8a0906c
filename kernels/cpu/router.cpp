#include "kernels/cpu/router.hpp"

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

void router_scores(DType type, const void* x, const void* w, float bias, float* r, std::int64_t rows, std::int64_t width, int threads) {
  const auto kernel = vector_kernels().scores[storage(type)];
  over_ranges(rows, threads, width * dtype_bytes(type), 16, [&](std::int64_t begin, std::int64_t end) { kernel(x, w, bias, r, width, begin, end); });
}

void router_input_gradient(DType type, const float* dr, const void* w, const std::int32_t* indices, void* dx, std::int64_t count,
                           std::int64_t width, int threads) {
  const auto kernel = vector_kernels().outer_add[storage(type)];
  over_ranges(count, threads, width * dtype_bytes(type) * 2, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(dr, w, indices, dx, width, begin, end); });
}

double sum_in_order(const float* dr, std::int64_t count) {
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += dr[i];
  return total;
}

double bce_with_logits(const float* logits, const std::uint8_t* targets, std::int64_t count, double weight, float* gradient, bool accumulate) {
  return weight * vector_kernels().bce(logits, targets, count, static_cast<float>(weight), gradient, accumulate);
}

BinaryCounts binary_counts(const float* logits, const std::uint8_t* targets, std::int64_t count) {
  BinaryCounts c;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool yes = logits[i] > 0, truth = targets[i] != 0;
    c.true_positive += yes && truth;
    c.false_positive += yes && !truth;
    c.true_negative += !yes && !truth;
    c.false_negative += !yes && truth;
  }
  return c;
}

}  // namespace fathom::cpu
