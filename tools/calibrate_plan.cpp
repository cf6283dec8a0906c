#include "tools/calibrate_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "lib/plan.hpp"

namespace fathom {
namespace {

constexpr double kOverRoofline = 1.5;  // kernels reach about two thirds of the ceilings
// What a call of a reference kernel moves or computes, per thread, and how often one runs around an op: once to settle, before and after, of which ops of a
// class that follow one another share one; those that read from memory need not settle (kernels/cpu/references.hpp).
constexpr double kProductFlops = 33.5e6, kStreamBytes = 1.6e6, kWeightBytes = 1.84e6;
constexpr double kRuns = 3, kRunsStreamed = 2;
constexpr std::int64_t kFewRows = 16;        // whose weights, or keys, are read once: bound by memory
constexpr double kFillRate = 6e8;            // bytes per second: values are drawn, pages are new
constexpr double kLongPass = 0.4;            // seconds: each of its ops is long enough to be its own mean
constexpr double kEndCounts = 2, kLeastGap = 0.05;   // factors of two of rows
constexpr int kPassesShort = 6, kPassesLong = 4;   // one or two that are discarded, and those that count

// Seconds of the reference runs around one use of an op.
double references_around(const OpSpec& spec, const Machine& machine, int threads) {
  const auto time = [threads](double each, const std::optional<Figure>& rate) { return rate && rate->value > 0 ? kOverRoofline * each * threads / rate->value : 0; };
  const auto read = [&](const MemoryLevel& level) { return figure_at(level.rate[static_cast<int>(Access::kRead)], threads); };
  const bool product = std::holds_alternative<Gemm>(spec) || std::holds_alternative<Attention>(spec) || std::holds_alternative<AttentionBackward>(spec);
  if (product && declared(spec).rows > kFewRows) {
    const Peak* peak = machine.peak(DType::kF32);
    return kRuns * time(kProductFlops, peak ? figure_at(peak->rate, threads) : std::nullopt);
  }
  if (machine.levels.empty()) return 0;
  return product ? kRunsStreamed * time(kWeightBytes, read(machine.levels.back())) : kRuns * time(kStreamBytes, read(machine.levels[std::min<std::size_t>(1, machine.levels.size() - 1)]));
}

// How much further the nearest rows of the line would be without those of `which`: in factors of two; beyond the ends of a curve nothing is measured, so an end counts twice.
double gap_without(std::span<const CalibrationCost> costs, const std::vector<bool>& stays, const std::map<std::string, std::vector<double>>& done, std::size_t which) {
  const CalibrationCost& mine = costs[which];
  double below = 0, above = std::numeric_limits<double>::infinity();
  const auto look = [&](double rows) {
    if (rows <= mine.rows) below = std::max(below, rows);
    if (rows >= mine.rows) above = std::min(above, rows);
  };
  for (std::size_t i = 0; i < costs.size(); ++i)
    if (i != which && stays[i] && costs[i].line == mine.line) look(costs[i].rows);
  if (const auto it = done.find(mine.line); it != done.end())
    for (const double rows : it->second) look(rows);
  const double down = below > 0 ? std::log2(mine.rows / below) : 0, up = std::isfinite(above) ? std::log2(above / mine.rows) : 0;
  if (below > 0 && std::isfinite(above)) return std::min(down, up);
  return kEndCounts * (down + up);
}

}  // namespace

CalibrationCost calibration_cost(const Workload& workload, const Machine& machine, double expected, int threads, std::int64_t bracketed_uses) {
  CalibrationCost cost;
  double references = 0;
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i)
    references += static_cast<double>(bracketed_uses > 0 ? std::min(bracketed_uses, workload.uses(i)) : workload.uses(i)) * references_around(workload.ops()[static_cast<std::size_t>(i)].spec, machine, threads);
  cost.pass = kOverRoofline * expected + references;
  cost.passes = cost.pass > kLongPass ? kPassesLong : kPassesShort;
  cost.once = static_cast<double>(plan_memory(workload).arena) / kFillRate;
  return cost;
}

std::vector<bool> fit_to_time(std::span<const CalibrationCost> costs, double seconds, const std::map<std::string, std::vector<double>>& done) {
  std::vector<bool> stays(costs.size(), true);
  std::map<std::string, std::size_t> left;
  for (const auto& [line, rows] : done) left[line] = rows.size();
  double sum = 0;
  for (const CalibrationCost& c : costs) {
    sum += c.planned();
    ++left[c.line];
  }
  while (sum > seconds) {
    std::optional<std::size_t> worst;
    double most = 0;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      if (!stays[i] || left[costs[i].line] <= kFewestLeft) continue;
      const double price = costs[i].planned() / std::max(kLeastGap, gap_without(costs, stays, done, i));
      if (!worst || price > most) {
        worst = i;
        most = price;
      }
    }
    if (!worst) break;
    stays[*worst] = false;
    --left[costs[*worst].line];
    sum -= costs[*worst].planned();
  }
  return stays;
}

}  // namespace fathom
