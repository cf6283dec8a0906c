#include "lib/predict/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "lib/predict/handover.hpp"
#include "lib/predict/op_model.hpp"

namespace fathom {
namespace {

constexpr int kEnoughPoints = 30;      // for quantiles of their own
constexpr double kWidening = 1.5;
constexpr double kNarrowest = 0.02;    // an interval is never narrower than this on either side: the noise of a good day
constexpr double kBestNoise = 0.02;    // points more certain than this count alike
constexpr double kWorstNoise = 0.5;    // points less certain than this say nothing
constexpr double kClearlyBetter = 0.95;  // a form with more terms must predict left-out points better than this
constexpr double kMostHanded = 1.5;    // a byte from another core's cache takes at most this many times as long as one from memory

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

double weight_of(const CalibrationPoint& p) { return kBestNoise / std::max(kBestNoise, p.noise); }

// Most points well, whatever the others; or a compromise of all, where the few (products whose weights stay in a cache) matter as much as the many.
enum class Aim : std::uint8_t { kMost, kAll };

// One form of a fit: which regressors it uses.
using Form = std::vector<int>;
// The largest coefficient that each may have; 0: any. Where few bytes change hands, what an op takes for other reasons would else be put down to them, at a hundred times
// what a byte can take, and the first op of which many bytes do is predicted fifty times too long.
using Limits = FitValues;

// A form fitted to points, and how it predicts those that were left out of the fit.
struct Fitted {
  FitValues coefficients{};
  std::vector<double> ratios;   // measured / predicted of each point without itself; only where it could be predicted
  double error = 1e9;           // weighted mean of |ln ratio|
};

FitValues solve(Form form, const std::vector<FitValues>& values, const std::vector<double>& y, const std::vector<double>& weights, const Limits& limits, size_t without) {
  FitValues c{};
  for (;;) {
    std::vector<std::vector<double>> rows;
    std::vector<double> left, left_weights;
    for (size_t i = 0; i < y.size(); ++i) {
      const double rest = y[i] - fit_time(c, values[i]);  // beyond the terms that are at their limits
      if (i == without || !(rest > 0)) continue;
      std::vector<double>& row = rows.emplace_back();
      for (const int term : form) row.push_back(values[i][static_cast<size_t>(term)]);
      left.push_back(rest);
      left_weights.push_back(weights[i] * rest / y[i]);  // errors stay relative to the whole
    }
    if (rows.size() < form.size()) return {};
    const std::vector<double> solved = relative_least_squares(rows, left, left_weights);
    size_t over = form.size();
    for (size_t j = 0; j < form.size(); ++j)
      if (const double limit = limits[static_cast<size_t>(form[j])]; limit > 0 && solved[j] > limit) over = j;
    if (over == form.size()) {
      for (size_t j = 0; j < form.size(); ++j) c[static_cast<size_t>(form[j])] = solved[j];
      return c;
    }
    c[static_cast<size_t>(form[over])] = limits[static_cast<size_t>(form[over])];
    form.erase(form.begin() + static_cast<std::ptrdiff_t>(over));
  }
}

// Least squares of the relative error prefer a time that is too low to one that is too high, and follow a few points that are far off. So points are weighted anew until
// the sum is that of |ln(predicted / measured)|: near its median, most are predicted well.
std::vector<double> logarithmic(const Form& form, const std::vector<FitValues>& values, const std::vector<double>& y, const std::vector<double>& weights, const Limits& limits) {
  constexpr int kRounds = 12;
  constexpr double kSmallest = 0.02;  // errors below count alike
  std::vector<double> w = weights;
  for (int round = 0; round < kRounds; ++round) {
    const FitValues c = solve(form, values, y, w, limits, y.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const double ratio = std::max(1e-3, fit_time(c, values[i]) / y[i]), error = std::max(kSmallest, std::abs(ratio - 1));
      w[i] = weights[i] * std::sqrt(std::max(kSmallest, std::abs(std::log(ratio)))) / error;
    }
  }
  return w;
}

Fitted fitted(const Form& form, const std::vector<FitValues>& values, const std::vector<double>& y, const std::vector<double>& certain, const Limits& limits, Aim aim) {
  Fitted f;
  const std::vector<double> weights = aim == Aim::kMost ? logarithmic(form, values, y, certain, limits) : certain;
  f.coefficients = solve(form, values, y, weights, limits, y.size());
  double sum = 0, total = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double predicted = fit_time(solve(form, values, y, weights, limits, i), values[i]);
    if (!(predicted > 0)) continue;
    f.ratios.push_back(y[i] / predicted);
    sum += certain[i] * std::abs(std::log(y[i] / predicted));
    total += certain[i];
  }
  if (total > 0) f.error = sum / total;
  return f;
}

int level_count(const Machine& machine) { return std::min<int>(kMaxLevels, static_cast<int>(machine.levels.size())); }

// Do enough of the points have more than a negligible part of their bytes of this kind to tell what such a byte takes?
template <class Bytes>
bool has_evidence(const std::vector<const CalibrationPoint*>& members, const Bytes& bytes) {
  constexpr double kShare = 0.05, kPoints = 0.1;
  constexpr int kFewest = 3;
  const auto enough = std::count_if(members.begin(), members.end(), [&](const CalibrationPoint* p) { return bytes(*p) > kShare * (p->work.read + p->work.written); });
  return enough >= kFewest && static_cast<double>(enough) > kPoints * static_cast<double>(members.size());
}

bool has_evidence(int level, const std::vector<const CalibrationPoint*>& members) {
  return has_evidence(members, [level](const CalibrationPoint& p) { return p.passing.levels[static_cast<size_t>(level)]; });
}

// What a byte that comes from one level further out takes longer, by the probed rates of copying: of levels that the points say nothing about.
double probed_cost(const Machine& machine, int level, int threads) {
  const auto seconds = [&](int l) {
    const auto rate = figure_at(machine.levels[static_cast<size_t>(l)].rate[static_cast<size_t>(Access::kCopy)], threads);
    return rate && rate->value > 0 ? 1 / rate->value : 0.0;
  };
  return level > 0 ? std::max(0.0, seconds(level) - seconds(level - 1)) : 0;
}

// By the probed rate of copying through main memory.
Limits limits_of(const Machine& machine, int threads) {
  Limits limits{};
  if (machine.levels.empty()) return limits;
  const auto copy = figure_at(machine.levels.back().rate[static_cast<size_t>(Access::kCopy)], threads);
  if (copy && copy->value > 0) limits[FitTerm::kHanded] = limits[FitTerm::kHandedNear] = kMostHanded / copy->value;
  return limits;
}

// The best of the forms for these points, as a fit of the machine. Points too noisy to say anything are left out while enough others remain.
void add_fit(Machine& machine, const std::string& name, DType dtype, std::vector<const CalibrationPoint*> members, const std::vector<Form>& forms, int threads, Aim aim) {
  const auto vague = [](const CalibrationPoint* p) { return p->noise > kWorstNoise; };
  const auto clear = static_cast<size_t>(std::count_if(members.begin(), members.end(), [&](const CalibrationPoint* p) { return !vague(p); }));
  if (clear >= 2 * forms.front().size()) std::erase_if(members, vague);
  std::vector<FitValues> values;
  std::vector<double> y, weights;
  ClassFit fit;
  fit.name = name;
  fit.dtype = dtype;
  fit.threads = threads;
  for (const CalibrationPoint* p : members) {
    values.push_back(fit_values(p->spec, p->work, p->roofline, p->passing, threads));
    y.push_back(p->measured);
    weights.push_back(weight_of(*p));
    for (const auto& [axis, value] : fit_axes(p->spec, p->work)) {
      const auto [low, fresh] = fit.low.emplace(axis, value);
      if (!fresh) low->second = std::min(low->second, value);
      double& high = fit.high[axis];
      high = std::max(high, value);
    }
  }
  const Limits limits = limits_of(machine, threads);
  Fitted best;
  const Form* chosen = nullptr;
  for (const Form& form : forms) {
    // The first form answers however few points there are; richer ones need enough of them.
    if (members.size() < (chosen ? 2 * form.size() : form.size())) continue;
    Fitted f = fitted(form, values, y, weights, limits, aim);
    if (chosen && !(f.error < (form.size() > chosen->size() ? kClearlyBetter : 1) * best.error)) continue;
    best = std::move(f);
    chosen = &form;
  }
  if (!chosen) return;  // not enough to say anything: physics answers
  for (const int term : *chosen) fit.coefficients[fit_term(term, members.front()->spec, machine)] = best.coefficients[static_cast<size_t>(term)];
  if (chosen->back() >= FitTerm::kFirstLevel)
    for (int l = 1; l < level_count(machine); ++l)
      if (!has_evidence(l, members)) fit.coefficients[fit_term(FitTerm::kFirstLevel + l, members.front()->spec, machine)] = probed_cost(machine, l, threads);
  std::tie(fit.residual_low, fit.residual_high) = residual_bounds(best.ratios);
  fit.points = static_cast<int>(best.ratios.size());
  machine.class_fits.push_back(std::move(fit));
}

// `form` and what comes from another core's cache, in either placement.
Form with_handed(Form form, const std::vector<const CalibrationPoint*>& members) {
  for (const bool apart : {true, false})
    if (has_evidence(members, [apart](const CalibrationPoint& p) { return p.passing.apart == apart ? p.passing.fetched + kReclaiming * p.passing.reclaimed : 0.0; }))
      form.push_back(apart ? FitTerm::kHanded : FitTerm::kHandedNear);
  return form;
}

// The same and the bytes that pass each level.
Form with_levels(Form form, const Machine& machine, const std::vector<const CalibrationPoint*>& members) {
  form = with_handed(std::move(form), members);
  // What memory takes longer where the cores share a path to it shows beside points where they do not.
  const int memory = level_count(machine) - 1;
  if (memory > 0 && has_evidence(members, [](const CalibrationPoint& p) { return p.passing.near_memory; }) &&
      has_evidence(members, [memory](const CalibrationPoint& p) { return p.passing.apart ? p.passing.levels[static_cast<size_t>(memory)] : 0.0; }))
    form.push_back(FitTerm::kNearMemory);
  for (int l = 0; l < level_count(machine); ++l)
    if (l == 0 || has_evidence(l, members)) form.push_back(FitTerm::kFirstLevel + l);
  return form;
}

double rows_each(const CalibrationPoint& p) {
  const auto* gemm = std::get_if<Gemm>(&p.spec);
  return gemm ? p.work.rows / product_groups(*gemm, declared(p.spec)) : p.work.rows;
}

double few_rows(const StreamedRows& streamed, DType dtype) {
  const auto found = streamed.find(dtype);
  return found == streamed.end() ? 0 : static_cast<double>(found->second);
}

// Weights that change have no code path of their own for few rows.
bool plain(const CalibrationPoint& p, const Gemm& op) { return p.plain_weights && !op.transposed; }

// What separates products whose operands are in different places.
void fit_product_places(Machine& machine, std::span<const CalibrationPoint> points, int threads, const StreamedRows& streamed) {
  std::map<std::pair<std::string, DType>, std::vector<const CalibrationPoint*>> groups;
  for (const CalibrationPoint& p : points)
    if (const auto* gemm = std::get_if<Gemm>(&p.spec)) groups[{product_fit_name(*gemm, rows_each(p), plain(p, *gemm) ? 0 : few_rows(streamed, gemm->act)), gemm->act}].push_back(&p);
  for (const auto& [key, members] : groups) {
    const Form form = with_levels({FitTerm::kFixed, FitTerm::kPerFlop}, machine, members);
    const size_t before = machine.class_fits.size();
    if (members.size() >= 3 * form.size()) add_fit(machine, key.first, key.second, members, {form}, threads, Aim::kAll);
    if (key.first != "product_few" || machine.class_fits.size() == before) continue;
    machine.class_fits.back().low["rows"] = 1;
    machine.class_fits.back().high["rows"] = few_rows(streamed, key.second);
  }
}

// Curves of the products among the points, and the residuals of their inner points predicted from their neighbours.
void fit_products(Machine& machine, std::span<const CalibrationPoint> points, int threads) {
  using Key = std::tuple<DType, std::string, std::int64_t, std::int64_t>;
  struct Sample {
    double seconds, weight;  // weight: how certain, and how near to main memory its operands were
  };
  std::map<Key, std::map<std::int64_t, std::vector<Sample>>> curves;
  for (const CalibrationPoint& p : points) {
    const auto* gemm = std::get_if<Gemm>(&p.spec);
    if (!gemm) continue;
    // A grouped product is as many products as sets of weights have rows, each of its share of the rows.
    const double groups = product_groups(*gemm, declared(p.spec));
    const double few = plain(p, *gemm) ? 0 : streamed_rows(machine, gemm->act, threads);
    const ProductShape shape = product_shape(*gemm, p.work.rows / groups);
    double seconds = p.measured / groups, weight = weight_of(p);
    if (const ClassFit* places = fit_named(machine, product_fit_name(*gemm, p.work.rows / groups, few), gemm->act, threads)) {
      const FitValues c = fit_coefficients(*places, p.spec, machine);
      const double here = fit_time(c, fit_values(p.spec, p.work, p.roofline, p.passing, threads));
      const double far = fit_time(c, fit_values(p.spec, p.work, p.roofline, all_from_memory(p.work, static_cast<int>(machine.levels.size())), threads));
      if (here > 0 && far > 0) seconds *= far / here, weight *= std::pow(std::min(1.0, here / far), 4);
    }
    curves[{gemm->act, gemm_variant(*gemm, p.work.rows / groups, few, plain(p, *gemm)), shape.n, shape.k}][std::max(1LL, std::llround(shape.rows))].push_back({seconds, weight});
  }
  std::map<DType, std::vector<double>> residuals;
  for (auto& [key, times] : curves) {
    if (times.size() < 2) continue;
    GemmCurve curve;
    curve.dtype = std::get<0>(key);
    curve.variant = std::get<1>(key);
    curve.threads = threads;
    curve.n = std::get<2>(key);
    curve.k = std::get<3>(key);
    // Row counts that lie between some that were measured as they are asked for, and were not themselves, only disturb; beyond the ends even a vague point says more
    // than none.
    const auto best_weight = [](const std::vector<Sample>& samples) {
      double best = 0;
      for (const Sample& s : samples) best = std::max(best, s.weight);
      return best;
    };
    const auto good = [&](const auto& at) { return best_weight(at.second) > 0.5; };
    const auto first_good = std::find_if(times.begin(), times.end(), good);
    const auto last_good = std::find_if(times.rbegin(), times.rend(), good);
    for (auto& [rows, samples] : times) {
      double best = 0;
      if (best_weight(samples) < 0.25 && first_good != times.end() && rows > first_good->first && rows < last_good->first) continue;
      for (const Sample& s : samples) best = std::max(best, s.weight);
      std::vector<double> seconds;  // of those about as certain as the best
      for (const Sample& s : samples)
        if (s.weight >= 0.5 * best) seconds.push_back(s.seconds);
      curve.rows.push_back(rows);
      curve.seconds.push_back(quantile(std::move(seconds), 0.5));
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
    if (!std::holds_alternative<Gemm>(p.spec)) classes[{fit_name(p.spec, fit_size(p.spec, p.work, threads)), p.work.dtype}].push_back(&p);
  for (const auto& [key, members] : classes) {
    std::vector<Form> forms;
    if (op_class(members.front()->spec) == OpClass::kAttention)
      forms = {{FitTerm::kFixed, FitTerm::kPerExp, FitTerm::kPerRow}, with_handed({FitTerm::kFixed, FitTerm::kPerExp, FitTerm::kPerRow}, members), with_levels({FitTerm::kFixed, FitTerm::kPerExp, FitTerm::kPerRow}, machine, members)};
    else if (op_class(members.front()->spec) == OpClass::kSelect)
      forms = {{FitTerm::kFixed, FitTerm::kScale}, {FitTerm::kFixed, FitTerm::kScale, FitTerm::kPerRow}};  // one thread looks at the candidates and writes those that stay
    else
      forms = {{FitTerm::kFixed, FitTerm::kScale}, with_handed({FitTerm::kFixed, FitTerm::kScale}, members), with_levels({FitTerm::kFixed, FitTerm::kPerRow, FitTerm::kPerExp}, machine, members)};
    add_fit(machine, key.first, key.second, members, forms, threads, Aim::kMost);
  }
}

}  // namespace

std::vector<CalibrationPoint> calibration_points(const Machine& machine, std::span<const CalibrationRun> runs, int threads) {
  std::vector<CalibrationPoint> points;
  for (const CalibrationRun& run : runs) {
    const Machine here = placed(machine, run.measurement->placement);
    const Ceilings ceilings(here, threads);
    const Workload& w = *run.workload;
    if (!run.measurement->ops.belongs_to(w)) throw_internal("calibration: a measurement of another workload");
    const MemoryPlan plan = plan_memory(w);
    const PerOp<Residency> where = residency(w, here, ceilings.threads(), &plan, run.bytes_between_ops);
    const bool plain = weights_change(w);
    for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) {
      const OpMeasurement& m = run.measurement->ops[i];
      const OpSpec& spec = w.ops()[static_cast<size_t>(i)].spec;
      if (m.status == MeasureStatus::kNotRun || !(m.seconds > 0) || rows_of(spec).routed()) continue;
      CalibrationPoint p{spec, work_of(spec, declared(spec)), 0, 0, m.seconds, m.noise, {}};
      const Prediction r = predict_roofline(ceilings, p.work, where[i]);
      p.launch = r.launch;
      p.roofline = r.seconds - r.launch;
      p.passing = passing_of(p.work, where[i]);
      p.plain_weights = plain;
      points.push_back(std::move(p));
    }
  }
  return points;
}

void fit_points(Machine& machine, std::span<const CalibrationPoint> points, int threads, const StreamedRows& streamed) {
  std::erase_if(machine.gemm_curves, [threads](const GemmCurve& c) { return c.threads == threads; });
  std::erase_if(machine.class_fits, [threads](const ClassFit& f) { return f.threads == threads; });
  fit_product_places(machine, points, threads, streamed);
  fit_products(machine, points, threads);
  fit_classes(machine, points, threads);
}

}  // namespace fathom
