#include "lib/predict/gpu_classes.hpp"

#include <algorithm>
#include <cmath>

namespace fathom {

GpuClassRates gpu_class_rates(std::string_view isa) {
  if (isa == "sm_80" || isa == "sm_89") return {0.87, 0.45};
  if (isa == "sm_100") return {0.88, 0.11};  // mma.sync keeps Hopper's rate there: half the share of a peak twice as high
  return {0.88, 0.25};
}

int gpu_kernels(const OpSpec& spec) {
  if (std::holds_alternative<AttentionBackward>(spec)) return 3;   // row sums, dK and dV, dQ
  if (std::holds_alternative<EmbeddingBackward>(spec)) return 4;   // sort passes, then one sum per token
  if (std::holds_alternative<GradientNorm>(spec) || std::holds_alternative<ExpertSelect>(spec)) return 2;
  return 1;
}

double gpu_select_seconds(double candidates, double rows, double sms) {
  constexpr double kBarrier = 0.3e-6, kLoad = 0.1e-6, kThreads = 1024;
  const double passes = std::ceil(candidates / kThreads);
  const double waves = std::max(1.0, std::ceil(rows / (2 * std::max(1.0, sms))));  // two blocks of 1024 threads share an SM
  return waves * ((16 + 2 * passes) * kBarrier + 5 * passes * kLoad);
}

}  // namespace fathom
