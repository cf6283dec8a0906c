// From predictions and measurements to the figures of a record.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.hpp"
#include "reports/record_tables.hpp"
#include "tools/results.hpp"
#include "tools/timed.hpp"
#include "tools/upper_cell.hpp"

namespace fathom {
namespace {

double plain_flops(const Timed& timed) { return comparable_flops(*timed.workload); }

// Tokens that a step processes (prefill, train) or makes (decode).
double tokens_of(const Timed& timed) {
  const Scenario& s = timed.configuration.scenario;
  return static_cast<double>(s.batch) * (s.phase == Phase::kDecode ? 1.0 : static_cast<double>(s.length));
}

Cell seconds(double value) { return value > 0 ? Cell::number(value) : Cell::status("not measured"); }

// Nothing runs above its ceiling: a fraction that says so tells that the probe of the ceiling was held up, not that the op was fast.
Cell fraction_cell(double fraction) { return fraction > 1.1 ? Cell::status("the probe of the ceiling was disturbed") : Cell::number(fraction); }

}  // namespace

void add_prediction(Result& result, const Timed& timed, const Machine& machine) {
  result.machine = machine.name;
  result.machine_hash = timed.raw.machine_hash;
  const StepPrediction& step = timed.raw;
  Figures& totals = result.totals;
  totals.set("predicted_s", Cell::number(step.seconds));
  if (step.lo < step.hi) {
    totals.set("predicted_lo_s", Cell::number(step.lo));
    totals.set("predicted_hi_s", upper_cell(step.hi));
  }
  if (step.seconds > 0) totals.set("predicted_tokens_per_s", Cell::number(tokens_of(timed) / step.seconds));
  totals.set("light_s", Cell::number(timed.light.seconds));
  if (timed.workload->routed()) {
    totals.set("predicted_p50_s", Cell::number(step.p50));
    totals.set("predicted_p95_s", Cell::number(step.p95));
    totals.set("predicted_p99_s", Cell::number(step.p99));
  }
  totals.set("compute_s", Cell::number(step.compute));
  totals.set("memory_s", Cell::number(step.memory));
  totals.set("launch_s", Cell::number(step.launch));
  totals.set("provenance", Cell::text(std::string(provenance_name(step.provenance))));
  const Cell* asked = result.scenario.find("threads");
  const int threads = asked && asked->is_number() ? static_cast<int>(asked->value()) : machine.default_threads();
  if (const Peak* peak = machine.peak(timed.configuration.scenario.dtype))
    if (const auto rate = figure_at(peak->rate, threads)) totals.set("peak_flops_per_s", Cell::number(rate->value));
  for (int access = 0; access < kAccesses && !machine.levels.empty() && !totals.has("peak_bytes_per_s"); ++access)  // read, else copy, ...
    if (const auto rate = figure_at(machine.levels.back().rate[access], threads)) totals.set("peak_bytes_per_s", Cell::number(rate->value));
  if (const StepPrediction& other = timed.raw_otherwise; !other.workload.empty()) {
    const auto lie = [](Placement p) { return p == Placement::kApart ? "with last caches of their own" : "that share their last cache"; };
    result.notes.push_back({Note::Severity::kNote, fmt::format("predicted for cores {}; for cores {}: {}", lie(step.placement), lie(other.placement), format_value(other.seconds, Unit::kSeconds))});
  }
  for (size_t i = 0; i < result.ops.size(); ++i) {
    const OpPrediction& op = step.ops[static_cast<int>(i)];
    result.ops[i].set("predicted_s", Cell::number(op.total));
    if (op.total_lo < op.total_hi) {
      result.ops[i].set("predicted_lo_s", Cell::number(op.total_lo));
      result.ops[i].set("predicted_hi_s", upper_cell(op.total_hi));
    }
    result.ops[i].set("light_s", Cell::number(timed.light.ops[static_cast<int>(i)].total));
    result.ops[i].set("binding", Cell::text(std::string(binding_name(op.each.binding))));
    result.ops[i].set("provenance", Cell::text(std::string(provenance_name(op.each.provenance))));
  }
}

void add_measurement(Result& result, const Timed& timed) {
  const StepMeasurement& step = timed.measurement.step;
  Figures& totals = result.totals;
  totals.set("measured_s", seconds(step.raw_median));
  totals.set("normalised_s", seconds(step.normalised));
  totals.set("min_s", seconds(step.raw_min));
  totals.set("p50_s", seconds(step.p50));
  totals.set("p95_s", seconds(step.p95));
  totals.set("p99_s", seconds(step.p99));
  if (timed.allocated > 0) totals.set("arena_bytes", Cell::count(static_cast<u128>(timed.allocated)));
  totals.set("samples", Cell::count(static_cast<u128>(step.raw.values.size())));
  result.samples_s = step.raw.values;
  result.rounds_s.assign(result.ops.size(), {});
  const bool passes = step.raw_median > 0;
  totals.set("spread", passes ? Cell::number((step.raw.quantile(0.75) - step.raw.quantile(0.25)) / step.raw_median) : Cell::status("not measured"));
  totals.set("noise", passes ? Cell::number(step.raw_noise) : Cell::status("not measured"));
  if (step.raw_median > 0) totals.set("tokens_per_s", Cell::number(tokens_of(timed) / step.raw_median));
  if (step.raw_median > 0) totals.set("achieved_flops_per_s", Cell::number(plain_flops(timed) / step.raw_median));
  double executed = 0;
  bool ran = false;
  for (size_t i = 0; i < result.ops.size(); ++i) {
    const OpMeasurement& op = timed.measurement.ops[static_cast<int>(i)];
    Figures& row = result.ops[i];
    executed += op.executed_flops * static_cast<double>(op.uses);
    if (op.status == MeasureStatus::kNotRun) {
      row.set("measured_s", Cell::status(op.reason.empty() ? "not run" : op.reason));
      continue;
    }
    ran = true;
    row.set("measured_s", Cell::number(op.total));
    row.set("share", Cell::number(step.normalised > 0 ? op.total / step.normalised : 0));
    row.set("min_s", Cell::number(op.raw_min * static_cast<double>(op.uses)));
    row.set("p95_s", Cell::number(op.raw_p95 * static_cast<double>(op.uses)));
    row.set("samples", Cell::count(static_cast<u128>(op.raw.values.size())));
    row.set("noise", Cell::number(op.noise));
    result.rounds_s[i] = op.round_total;
    row.set("rows_executed", Cell::number(op.rows_executed));
    if (op.executed_flops > 0) row.set("flops_executed", Cell::number(op.executed_flops * static_cast<double>(op.uses)));
    const Cost cost = declared_cost(timed.workload->ops()[i].spec);
    const double per_use = op.total / static_cast<double>(std::max<std::int64_t>(1, op.uses));
    if (per_use > 0 && cost.flops.value() > 0) row.set("achieved_flops_per_s", Cell::number(expected_cost(timed.workload->ops()[i].spec).flops / per_use));
    if (per_use > 0 && cost.flops.value() == 0) row.set("achieved_bytes_per_s", Cell::number((cost.read + cost.written).to_double() / per_use));
    row.set("implementation", Cell::text(op.implementation));
    if (op.status == MeasureStatus::kTooShort || op.status == MeasureStatus::kDisturbed) row.set("status", Cell::text(op.reason));
  }
  totals.set("flops_executed", ran || result.ops.empty() ? Cell::number(executed) : Cell::status("not measured"));
  result.routing = timed.routing;
  const auto note = [&](std::string text) { result.notes.push_back({Note::Severity::kNote, std::move(text)}); };
  constexpr double kOutliers = 1.5, kNoisy = 0.05;
  if (step.raw.values.size() >= 20 && step.p95 > kOutliers * step.p50)
    note(fmt::format("one pass in twenty took {:.1f} times the median or longer: something held those passes up", step.p95 / step.p50));
  if (timed.measurement.stopped_by == "time" && step.raw_noise > kNoisy)
    note(fmt::format("--time was over while the median was still unsure by {:.1f} % (by how much it differs between one half of the passes and the other): a longer --time may narrow that", step.raw_noise * 100));
}

void add_fractions(Result& result, const Timed& timed, const Machine* machine, const TimedFlags& flags) {
  // The ceiling as probed during the run; the machine file's where the backend has no such probe.
  double rate = 0;
  const auto& probed = timed.measurement.ceiling_rate;
  if (const auto product = probed.find("product"); product != probed.end()) {
    rate = product->second;
  } else if (const Peak* peak = machine ? machine->peak(timed.configuration.scenario.dtype) : nullptr) {
    if (const auto figure = figure_at(peak->rate, flags.threads > 0 ? flags.threads : machine->default_threads())) rate = figure->value;
  }
  if (!(rate > 0)) return;
  for (size_t i = 0; i < result.ops.size(); ++i) {
    Figures& row = result.ops[i];
    const double achieved = row.number("achieved_flops_per_s");
    if (!(achieved > 0)) continue;
    const double ceiling = timed.measurement.ops[static_cast<int>(i)].ceiling_flops;
    row.set("peak_fraction", fraction_cell(ceiling > 0 ? expected_cost(timed.workload->ops()[i].spec).flops / ceiling : achieved / rate));
  }
  if (const double achieved = result.totals.number("achieved_flops_per_s"); achieved > 0) result.totals.set("peak_fraction", fraction_cell(achieved / rate));
}

void add_comparison(Result& result, const Timed& timed) {
  const Comparison& c = timed.comparison;
  Figures& totals = result.totals;
  if (c.raw.measured > 0) {
    totals.set("error", Cell::number(c.raw.error));
    totals.set("time_ratio", Cell::number(c.raw.ratio));
  }
  totals.set("verdict", Cell::text(std::string(verdict_name(c.raw.verdict))));
  totals.set("mape", c.graded > 0 ? Cell::number(c.mape) : Cell::status("no op was graded"));
  totals.set("median_error", c.graded > 0 ? Cell::number(c.median_error) : Cell::status("no op was graded"));
  for (size_t i = 0; i < result.ops.size(); ++i) {
    const OpComparison& op = c.ops[static_cast<int>(i)];
    Figures& row = result.ops[i];
    // Ops stand between reference kernels in a bracketed pass, so they are graded against the prediction of that pass.
    row.set("predicted_s", Cell::number(op.predicted));
    if (const OpPrediction& bracketed = timed.bracketed.ops[static_cast<int>(i)]; bracketed.total_lo < bracketed.total_hi) {
      row.set("predicted_lo_s", Cell::number(bracketed.total_lo));
      row.set("predicted_hi_s", Cell::number(bracketed.total_hi));
    }
    if (op.measured > 0) row.set("error", Cell::number(op.error));
    row.set("verdict", Cell::text(std::string(verdict_name(op.verdict))));
    if (!op.reason.empty()) row.set("status", Cell::text(op.reason));
  }
  if (c.dropped > 0 && c.graded == 0)
    result.notes.push_back({Note::Severity::kNote, fmt::format("none of {} ops graded (their verdict and status say why)", c.dropped)});
  else if (c.dropped > 0)
    result.notes.push_back({Note::Severity::kNote, fmt::format("{} ops graded, {} not graded (their verdict and status say why); mean |error| per op {:.1f} %, weighted by time {:.1f} %",
                                                               c.graded, c.dropped, c.mape * 100, c.weighted_error * 100)});
}

void add_pair(Result& result, const Timed& timed, const Timed& twin, bool predicted, bool measured) {
  const double flops = plain_flops(timed);
  const double base = plain_flops(twin);
  if (base > 0) result.totals.set("flops_ratio", Cell::number(flops / base));
  if (predicted && twin.raw.seconds > 0) result.totals.set("predicted_ratio", Cell::number(timed.raw.seconds / twin.raw.seconds));
  if (!measured || !(twin.measurement.step.raw_median > 0) || !(timed.measurement.step.raw_median > 0)) return;
  const PairRatio pair = pair_ratio(flops, base, timed.measurement.step.raw_median, twin.measurement.step.raw_median);
  result.totals.set("measured_ratio", Cell::number(pair.time_ratio));
  result.totals.set("ratio_noise", Cell::number(std::hypot(timed.measurement.step.raw_noise, twin.measurement.step.raw_noise)));
  result.totals.set("realised", pair.status.empty() ? Cell::number(pair.realised) : Cell::status(pair.status));
  result.totals.set("realised", realised_cell(result.totals));
}

}  // namespace fathom
