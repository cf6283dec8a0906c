#include "tools/calibrate_plan.hpp"

#include <algorithm>
#include <optional>

#include "lib/plan.hpp"

namespace fathom {
namespace {

constexpr double kOverRoofline = 1.5;        // kernels reach about two thirds of the ceilings
constexpr double kReferenceFlops = 134e6;    // of the reference product, per thread: run twice around an op, once to settle (kernels/cpu/references.hpp)
constexpr double kReferencesEach = 1.5;      // consecutive ops of a class share one
constexpr double kFillRate = 1e9;            // bytes per second: values are drawn, pages are new
constexpr double kLongPass = 0.4;            // seconds: each of its ops is long enough to be its own mean
constexpr int kPassesShort = 6, kPassesLong = 4;   // one or two that are discarded, and those that count

}  // namespace

CalibrationCost calibration_cost(const Workload& workload, const Machine& machine, double expected, int threads, std::int64_t bracketed_uses) {
  CalibrationCost cost;
  const Peak* peak = machine.peak(DType::kF32);
  const std::optional<Figure> rate = peak ? figure_at(peak->rate, threads) : std::nullopt;
  const double reference = rate && rate->value > 0 ? kOverRoofline * kReferenceFlops * threads / rate->value : 0;
  double bracketed = 0;
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i)
    bracketed += static_cast<double>(bracketed_uses > 0 ? std::min(bracketed_uses, workload.uses(i)) : workload.uses(i));
  cost.pass = kOverRoofline * expected + kReferencesEach * bracketed * reference;
  cost.passes = cost.pass > kLongPass ? kPassesLong : kPassesShort;
  cost.once = static_cast<double>(plan_memory(workload).arena) / kFillRate;
  return cost;
}

std::vector<bool> fit_to_time(std::span<const CalibrationCost> costs, double seconds, const std::map<std::string, int>& done) {
  std::vector<bool> stays(costs.size(), true);
  std::map<std::string, int> left = done;
  double sum = 0;
  for (const CalibrationCost& c : costs) {
    sum += c.planned();
    ++left[c.line];
  }
  while (sum > seconds) {
    std::optional<std::size_t> longest;
    for (std::size_t i = 0; i < costs.size(); ++i)
      if (stays[i] && left[costs[i].line] > kFewestLeft && (!longest || costs[i].planned() > costs[*longest].planned())) longest = i;
    if (!longest) break;
    stays[*longest] = false;
    --left[costs[*longest].line];
    sum -= costs[*longest].planned();
  }
  return stays;
}

}  // namespace fathom
