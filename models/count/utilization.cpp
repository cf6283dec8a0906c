#include "models/count/utilization.hpp"

#include <fmt/format.h>

#include <cmath>

#include "lib/error.hpp"

namespace fathom {

StepFlops step_flops(const Workload& list) {
  StepFlops step;
  for (size_t i = 0; i < list.ops().size(); ++i) {
    const Op& op = list.ops()[i];
    const double uses = static_cast<double>(list.uses(static_cast<int>(i)));
    const ExpectedCost expected = expected_cost(op);
    const auto* gemm = std::get_if<Gemm>(&op.spec);
    const bool slots = gemm && gemm->capacity > 0;
    step.executed += uses * ((slots ? declared_cost(op).flops.to_double() : expected.flops) + expected.flops_recompute);
    if (op.pass != Pass::kRecompute) step.model += uses * expected.flops;
  }
  return step;
}

double utilization(double flops, Seconds step, std::int64_t devices, FlopRate peak) {
  const auto positive = [](double value, const char* name) {
    if (!std::isfinite(value) || value <= 0) throw_input(fmt::format("must be positive and finite, not {}", value), {"", 0, name});
  };
  positive(step.value(), "time");
  positive(static_cast<double>(devices), "devices");
  positive(peak.value(), "peak");
  return flops / (step.value() * static_cast<double>(devices) * peak.value());
}

}  // namespace fathom
