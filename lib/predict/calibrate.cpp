#include "lib/predict/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "lib/predict/op_model.hpp"

namespace fathom {
namespace {

constexpr int kEnoughPoints = 30;      // for quantiles of their own
constexpr double kWidening = 1.5;
constexpr double kNarrowest = 0.02;    // an interval is never narrower than this on either side: the noise of a good day

bool backward(const OpSpec& spec) { return kind_name(spec).ends_with("_backward"); }

const Attention* attention_of(const OpSpec& spec) {
  if (const auto* forward = std::get_if<Attention>(&spec)) return forward;
  if (const auto* back = std::get_if<AttentionBackward>(&spec)) return &back->forward;
  return nullptr;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (at - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

// 10 % and 90 % of measured / predicted, at least kNarrowest to either side of one.
std::pair<double, double> residual_bounds(std::vector<double> ratios) {
  if (ratios.empty()) return {1 / kWidening, kWidening};
  double low = quantile(ratios, 0.1), high = quantile(ratios, 0.9);
  low = std::min(low, 1 - kNarrowest);
  high = std::max(high, 1 + kNarrowest);
  if (static_cast<int>(ratios.size()) < kEnoughPoints) {
    low = std::exp(std::log(low) * kWidening);
    high = std::exp(std::log(high) * kWidening);
  }
  return {low, high};
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Curves of the products among the points, and the residuals of their inner points predicted from their neighbours.
void fit_products(Machine& machine, std::span<const CalibrationPoint> points, int threads) {
  using Key = std::tuple<DType, std::string, std::int64_t, std::int64_t>;
  std::map<Key, std::map<std::int64_t, std::vector<double>>> curves;
  for (const CalibrationPoint& p : points) {
    const auto* gemm = std::get_if<Gemm>(&p.spec);
    if (!gemm) continue;
    // A grouped product is as many products as sets of weights have rows, each of its share of the rows.
    const double groups = product_groups(*gemm, declared(p.spec));
    const ProductShape shape = product_shape(*gemm, p.work.rows / groups);
    curves[{gemm->act, gemm_variant(*gemm), shape.n, shape.k}][std::max(1LL, std::llround(shape.rows))].push_back(p.measured / groups);
  }
  std::map<DType, std::vector<double>> residuals;
  for (const auto& [key, times] : curves) {
    if (times.size() < 2) continue;
    GemmCurve curve;
    curve.dtype = std::get<0>(key);
    curve.variant = std::get<1>(key);
    curve.threads = threads;
    curve.n = std::get<2>(key);
    curve.k = std::get<3>(key);
    for (const auto& [rows, seconds] : times) {
      curve.rows.push_back(rows);
      curve.seconds.push_back(quantile(seconds, 0.5));
    }
    for (size_t i = 1; i + 1 < curve.rows.size(); ++i) {
      GemmCurve without = curve;
      without.rows.erase(without.rows.begin() + static_cast<std::ptrdiff_t>(i));
      without.seconds.erase(without.seconds.begin() + static_cast<std::ptrdiff_t>(i));
      residuals[curve.dtype].push_back(curve.seconds[i] / curve_time(without, static_cast<double>(curve.rows[i])));
    }
    machine.gemm_curves.push_back(std::move(curve));
  }
  for (const auto& [dtype, ratios] : residuals) {
    ClassFit fit;
    fit.name = "gemm";
    fit.dtype = dtype;
    fit.threads = threads;
    std::tie(fit.residual_low, fit.residual_high) = residual_bounds(ratios);
    fit.points = static_cast<int>(ratios.size());
    machine.class_fits.push_back(std::move(fit));
  }
}

void fit_classes(Machine& machine, std::span<const CalibrationPoint> points, int threads) {
  std::map<std::pair<std::string, DType>, std::vector<const CalibrationPoint*>> classes;
  for (const CalibrationPoint& p : points)
    if (!std::holds_alternative<Gemm>(p.spec)) classes[{fit_name(p.spec), p.work.dtype}].push_back(&p);
  for (const auto& [key, members] : classes) {
    const std::vector<std::string> terms = fit_terms(members.front()->spec);
    if (members.size() < terms.size()) continue;  // not enough to say anything: physics answers
    std::vector<std::vector<double>> rows;
    std::vector<double> y;
    ClassFit fit;
    fit.name = key.first;
    fit.dtype = key.second;
    fit.threads = threads;
    for (const CalibrationPoint* p : members) {
      rows.push_back(fit_values(p->spec, p->work, p->roofline, threads));
      y.push_back(p->measured);
      for (const auto& [axis, value] : fit_axes(p->spec, p->work)) {
        const auto [low, fresh] = fit.low.emplace(axis, value);
        if (!fresh) low->second = std::min(low->second, value);
        double& high = fit.high[axis];
        high = std::max(high, value);
      }
    }
    const std::vector<double> coefficients = relative_least_squares(rows, y);
    for (size_t i = 0; i < terms.size(); ++i) fit.coefficients[terms[i]] = coefficients[i];
    std::vector<double> ratios;
    for (size_t out = 0; out < y.size(); ++out) {  // each point predicted without itself
      auto other_rows = rows;
      auto other_y = y;
      other_rows.erase(other_rows.begin() + static_cast<std::ptrdiff_t>(out));
      other_y.erase(other_y.begin() + static_cast<std::ptrdiff_t>(out));
      const double predicted = other_y.size() < terms.size() ? 0 : dot(rows[out], relative_least_squares(other_rows, other_y));
      if (predicted > 0) ratios.push_back(y[out] / predicted);
    }
    std::tie(fit.residual_low, fit.residual_high) = residual_bounds(ratios);
    fit.points = static_cast<int>(ratios.size());
    machine.class_fits.push_back(std::move(fit));
  }
}

}  // namespace

std::string gemm_variant(const Gemm& op) {
  const std::string grouped = op.experts > 1 ? "_grouped" : "";
  switch (op.role) {
    case GemmRole::kForward: return (op.transposed ? "tied" : "forward") + grouped;
    case GemmRole::kInputGradient: return (op.transposed ? "dx_tied" : "dx") + grouped;
    case GemmRole::kWeightGradient: return "dw" + grouped;
  }
  return "?";
}

double product_groups(const Gemm& op, const Executed& executed) {
  return op.experts > 1 ? static_cast<double>(std::max<std::int64_t>(1, executed.experts)) : 1.0;
}

ProductShape product_shape(const Gemm& op, double rows) {
  if (op.role == GemmRole::kInputGradient) return {rows, op.in, op.out};
  return {rows, op.out, op.in};
}

double curve_time(const GemmCurve& curve, double rows, double* octaves) {
  if (octaves) *octaves = 0;
  const double first = static_cast<double>(curve.rows.front()), last = static_cast<double>(curve.rows.back());
  if (rows <= first) {
    if (octaves && rows > 0) *octaves = std::log2(first / rows);
    return curve.seconds.front();
  }
  if (rows >= last) {
    if (octaves) *octaves = std::log2(rows / last);
    return curve.seconds.back() * rows / last;
  }
  const auto above = static_cast<size_t>(std::upper_bound(curve.rows.begin(), curve.rows.end(), rows, [](double r, std::int64_t x) { return r < static_cast<double>(x); }) -
                                         curve.rows.begin());
  const double x0 = std::log(static_cast<double>(curve.rows[above - 1])), x1 = std::log(static_cast<double>(curve.rows[above]));
  const double share = (std::log(rows) - x0) / (x1 - x0);
  return std::exp(std::log(curve.seconds[above - 1]) * (1 - share) + std::log(curve.seconds[above]) * share);
}

std::string fit_name(const OpSpec& spec) {
  // Kinds, not classes: a residual and a scatter are both streams, but run different kernels.
  if (const Attention* attention = attention_of(spec)) {
    std::string name = fmt::format("attention_{}{}", attention->cached ? "cached_" : "", attention->qk_dim);
    return backward(spec) ? name + "_backward" : name;
  }
  return std::string(kind_name(spec));
}

std::vector<std::pair<std::string, double>> fit_axes(const OpSpec& spec, const OpWork& work) {
  if (attention_of(spec)) return {{"rows", work.rows}, {"scores", work.exponentials}};
  return {{"bytes", work.read + work.written}};
}

std::vector<std::string> fit_terms(const OpSpec& spec) {
  if (attention_of(spec)) return {"fixed", "per_score", "per_row"};
  return {"fixed", "scale"};
}

std::vector<double> fit_values(const OpSpec& spec, const OpWork& work, double roofline, int threads) {
  if (const Attention* attention = attention_of(spec)) {
    const double t = std::max(1, threads);
    return {1, work.exponentials / t, work.rows * static_cast<double>(attention->heads) / t};
  }
  return {1, roofline};
}

std::vector<double> relative_least_squares(const std::vector<std::vector<double>>& rows, const std::vector<double>& y) {
  const size_t terms = rows.empty() ? 0 : rows.front().size();
  std::vector<double> c(terms, 0.0);
  // Normal equations of rows / y against ones, columns scaled to unit length.
  std::vector<double> length(terms, 0.0);
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < terms; ++j) length[j] += rows[i][j] / y[i] * (rows[i][j] / y[i]);
  for (double& l : length) l = std::sqrt(l);
  std::vector<std::vector<double>> a(terms, std::vector<double>(terms, 0.0));
  std::vector<double> b(terms, 0.0);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < terms; ++j) {
      if (!(length[j] > 0)) continue;
      const double xj = rows[i][j] / y[i] / length[j];
      b[j] += xj;
      for (size_t k = 0; k < terms; ++k)
        if (length[k] > 0) a[j][k] += xj * rows[i][k] / y[i] / length[k];
    }
  }
  for (int sweep = 0; sweep < 20000; ++sweep) {
    double change = 0;
    for (size_t j = 0; j < terms; ++j) {
      if (!(a[j][j] > 0)) continue;
      double residual = b[j];
      for (size_t k = 0; k < terms; ++k)
        if (k != j) residual -= a[j][k] * c[k];
      const double value = std::max(0.0, residual / a[j][j]);
      change = std::max(change, std::abs(value - c[j]));
      c[j] = value;
    }
    if (change < 1e-13) break;
  }
  for (size_t j = 0; j < terms; ++j) c[j] = length[j] > 0 ? c[j] / length[j] : 0;
  return c;
}

std::vector<CalibrationPoint> calibration_points(const Machine& machine, std::span<const CalibrationRun> runs, int threads) {
  const Ceilings ceilings(machine, threads);
  std::vector<CalibrationPoint> points;
  for (const CalibrationRun& run : runs) {
    const Workload& w = *run.workload;
    if (!run.measurement->ops.belongs_to(w)) throw_internal("calibration: a measurement of another workload");
    const MemoryPlan plan = plan_memory(w);
    const PerOp<Residency> where = residency(w, machine, ceilings.threads(), &plan, run.bytes_between_ops);
    for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) {
      const OpMeasurement& m = run.measurement->ops[i];
      const OpSpec& spec = w.ops()[static_cast<size_t>(i)].spec;
      if (m.status == MeasureStatus::kNotRun || !(m.seconds > 0) || rows_of(spec).routed()) continue;
      CalibrationPoint p{spec, work_of(spec, declared(spec)), 0, 0, m.seconds};
      const Prediction r = predict_roofline(ceilings, p.work, where[i]);
      p.launch = r.launch;
      p.roofline = r.seconds - r.launch;
      points.push_back(std::move(p));
    }
  }
  return points;
}

void fit_points(Machine& machine, std::span<const CalibrationPoint> points, int threads) {
  std::erase_if(machine.gemm_curves, [threads](const GemmCurve& c) { return c.threads == threads; });
  std::erase_if(machine.class_fits, [threads](const ClassFit& f) { return f.threads == threads; });
  fit_products(machine, points, threads);
  fit_classes(machine, points, threads);
}

void calibrate(Machine& machine, std::span<const CalibrationRun> runs, int threads) {
  const std::vector<CalibrationPoint> points = calibration_points(machine, runs, threads);
  fit_points(machine, points, threads);
}

}  // namespace fathom
