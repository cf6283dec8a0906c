#include "models/count/utilization.hpp"

#include <fmt/format.h>

#include <cmath>

#include "lib/error.hpp"

namespace fathom {

StepFlops step_flops(const ListTotals& totals) {
  StepFlops step;
  step.model = totals.pass(Pass::kForward) + totals.pass(Pass::kBackward);
  step.executed = totals.total.flops + totals.total.flops_recompute;
  return step;
}

double utilization(Flops flops, Seconds step, std::int64_t devices, FlopRate peak) {
  const auto positive = [](double value, const char* name) {
    if (!std::isfinite(value) || value <= 0) throw_input(fmt::format("must be positive and finite, not {}", value), {"", 0, name});
  };
  positive(step.value(), "time");
  positive(static_cast<double>(devices), "devices");
  positive(peak.value(), "peak");
  return flops.to_double() / (step.value() * static_cast<double>(devices) * peak.value());
}

}  // namespace fathom
