#include "lib/gpu/table_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/error.hpp"

namespace fathom::gpu {
namespace {

constexpr int kMinIntervalRows = 30;

void fit_physics(const std::vector<TableRow>& rows, const GpuDevice& device, const FitOptions& options, OpModel& model) {
  if (model.op == OpClass::kGemm) model.gemm = fit_gemm(rows, device, options);
  else model.classes = fit_attention(rows, model.op, device, options);
}

// One row's out-of-fold result.
struct Graded {
  int fold = 0;
  double measured_s = 0, physics_s = 0, predicted_s = 0;
  std::string regime, binding;
};

double quantile_low(std::vector<double> sorted) {
  const auto n = static_cast<double>(sorted.size());
  const auto at = static_cast<std::size_t>(std::max(0.0, std::floor(0.1 * (n + 1)) - 1));
  return sorted[at];
}

double quantile_high(std::vector<double> sorted) {
  const auto n = static_cast<double>(sorted.size());
  const auto at = static_cast<std::size_t>(std::min(n - 1, std::ceil(0.9 * (n + 1)) - 1));
  return sorted[at];
}

double rounded(double value) { return std::round(value * 1e5) / 1e5; }

// Intervals from the graded rows of all folds but `without` (-1: all).
std::vector<ConformalInterval> conformal(const std::vector<Graded>& graded, int without) {
  std::map<std::string, std::vector<double>> by_regime;
  for (const Graded& g : graded) {
    if (g.fold == without) continue;
    const double error = std::log(g.measured_s / g.predicted_s);
    by_regime[g.regime].push_back(error);
    by_regime[g.binding].push_back(error);
    by_regime["all"].push_back(error);
  }
  std::vector<ConformalInterval> intervals;
  for (auto& [regime, errors] : by_regime) {
    if (static_cast<int>(errors.size()) < kMinIntervalRows) continue;
    std::sort(errors.begin(), errors.end());
    intervals.push_back({regime, static_cast<int>(errors.size()), rounded(quantile_low(errors)), rounded(quantile_high(errors))});
  }
  return intervals;
}

void check_rows(const std::vector<TableRow>& rows) {
  if (rows.empty()) throw_input("no rows with a time to fit");
  for (const TableRow& row : rows)
    if (row.op != rows.front().op || row.dtype != rows.front().dtype) throw_internal("rows of several ops or dtypes in one fit");
}

std::vector<TableRow> timed(const std::vector<TableRow>& rows) {
  std::vector<TableRow> kept;
  for (const TableRow& row : rows)
    if (row.time_us > 0) kept.push_back(row);
  return kept;
}

}  // namespace

TreeOptions default_trees(int rows) {
  const bool few = rows < 1000;
  TreeOptions trees;
  trees.depth = few ? 4 : 6;
  trees.trees = few ? 250 : 400;
  trees.learning_rate = few ? 0.05 : 0.06;
  trees.l2 = 2;
  trees.min_leaf = 5;
  trees.seeds = 2;
  return trees;
}

std::vector<TableRow> choose_rows(const std::vector<TableRow>& rows, int count, std::uint64_t seed) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::uint64_t hash = mix_hash(seed);
    for (auto part : rows[i].key) hash = mix_hash(hash ^ static_cast<std::uint64_t>(part));
    order.push_back({hash, i});
  }
  std::sort(order.begin(), order.end());
  if (static_cast<int>(order.size()) > count) order.resize(static_cast<std::size_t>(count));
  std::vector<TableRow> chosen;
  for (const auto& [hash, i] : order) chosen.push_back(rows[i]);
  return chosen;
}

HeldOut error_summary(const std::string& variant, const std::vector<double>& predicted, const std::vector<double>& measured) {
  HeldOut h;
  h.variant = variant;
  h.rows = static_cast<int>(predicted.size());
  if (predicted.empty()) return h;
  std::vector<double> errors;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const double e = predicted[i] / measured[i] - 1;
    h.bias += 100 * e / h.rows;
    errors.push_back(100 * std::abs(e));
    h.mean += errors.back() / h.rows;
  }
  std::sort(errors.begin(), errors.end());
  h.median = errors[errors.size() / 2];
  h.p90 = errors[std::min(errors.size() - 1, errors.size() * 9 / 10)];
  for (double* v : {&h.mean, &h.median, &h.p90, &h.bias}) *v = std::round(*v * 1000) / 1000;
  return h;
}

OpModel fit_op(const std::vector<TableRow>& all, const GpuDevice& device, const TableFitOptions& options) {
  const auto rows = timed(all);
  check_rows(rows);
  OpModel model;
  model.op = rows.front().op;
  model.name = op_name(model.op);
  model.dtype = rows.front().dtype;
  model.source = options.source;
  model.rows = static_cast<int>(rows.size());
  model.clamp = options.clamp > 0 ? options.clamp : model.op == OpClass::kGemm ? 0.3 : 0.7;
  model.hull = hull_of(rows);
  fit_physics(rows, device, options.physics, model);
  if (!options.residual) return model;
  Matrix x;
  std::vector<double> y;
  for (const TableRow& row : rows) {
    const double physics_s = physics_of(model, device, row).seconds;
    const auto features = residual_features(model, device, row);
    x.columns = static_cast<int>(features.size());
    x.values.insert(x.values.end(), features.begin(), features.end());
    y.push_back(std::log(row.time_us * 1e-6 / physics_s));
  }
  model.residual = fit_trees(x, y, options.trees.value_or(default_trees(model.rows)));
  return model;
}

OpModel fit_op_with_errors(const std::vector<TableRow>& all, const GpuDevice& device, const TableFitOptions& options) {
  const auto rows = timed(all);
  OpModel model = fit_op(rows, device, options);
  if (options.folds < 2) return model;
  constexpr int kFew = 400;
  std::vector<Graded> graded;
  std::vector<double> few_physics, few_calibrated, few_measured;
  for (int fold = 0; fold < options.folds; ++fold) {
    std::vector<TableRow> seen, unseen;
    for (const TableRow& row : rows) (fold_of(row, options.folds, options.seed) == fold ? unseen : seen).push_back(row);
    if (unseen.empty() || seen.size() < 48) continue;
    const OpModel blind = fit_op(seen, device, options);
    for (const TableRow& row : unseen) {
      const GpuPrediction p = predict_op(blind, device, row);
      graded.push_back({fold, row.time_us * 1e-6, p.physics_s, p.predicted_s, regime_of(p.binding, p.predicted_s), p.binding});
    }
    if (options.few_rows && static_cast<int>(seen.size()) > 2 * kFew) {
      const OpModel small = fit_op(choose_rows(seen, kFew, options.seed), device, options);
      for (const TableRow& row : unseen) {
        const GpuPrediction p = predict_op(small, device, row);
        few_physics.push_back(p.physics_s);
        few_calibrated.push_back(p.predicted_s);
        few_measured.push_back(row.time_us * 1e-6);
      }
    }
  }
  model.intervals = conformal(graded, -1);
  std::vector<double> physics, calibrated, measured;
  int covered = 0;
  for (int fold = 0; fold < options.folds; ++fold) {  // coverage of a fold by the intervals of the others
    OpModel others = model;
    others.intervals = conformal(graded, fold);
    for (const Graded& g : graded) {
      if (g.fold != fold) continue;
      double low = 0, high = 0;
      interval_for(others, g.binding.c_str(), g.predicted_s, low, high);
      const double error = std::log(g.measured_s / g.predicted_s);
      covered += error >= low && error <= high;
    }
  }
  for (const Graded& g : graded) {
    physics.push_back(g.physics_s);
    calibrated.push_back(g.predicted_s);
    measured.push_back(g.measured_s);
  }
  model.held_out.push_back(error_summary("physics", physics, measured));
  model.held_out.push_back(error_summary("calibrated", calibrated, measured));
  if (!graded.empty()) model.held_out.back().coverage = std::round(1000.0 * covered / static_cast<double>(graded.size())) / 1000;
  if (!few_measured.empty()) {
    model.held_out.push_back(error_summary("physics_400", few_physics, few_measured));
    model.held_out.push_back(error_summary("calibrated_400", few_calibrated, few_measured));
  }
  return model;
}

GpuModel fit_from_table(const std::vector<TableRow>& all, const TableFitOptions& options) {
  const auto rows = timed(all);
  if (rows.empty()) throw_input("no rows with a time to fit");
  GpuModel model;
  model.device = device_named(rows.front().chip);
  for (const TableRow& row : rows)
    if (row.chip != model.device.name)
      throw_input("rows of two chips, '" + model.device.name + "' and '" + row.chip + "'", {{}, row.line, "chip"}, "fit one chip at a time");
  for (OpClass op : {OpClass::kGemm, OpClass::kPrefill, OpClass::kDecode}) {
    std::vector<TableRow> of_op;
    for (const TableRow& row : rows)
      if (row.op == op) of_op.push_back(row);
    if (of_op.empty()) continue;
    model.ops.push_back(fit_op_with_errors(of_op, model.device, options));
  }
  return model;
}

}  // namespace fathom::gpu
