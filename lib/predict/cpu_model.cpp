// Calibrated time of ops on a CPU: probed curves for matrix products, fitted models for the rest, roofline where neither reaches.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "lib/predict/calibrate.hpp"
#include "lib/predict/op_model.hpp"
#include "lib/predict/unbounded.hpp"

namespace fathom {
namespace {

constexpr double kOctavesAllowed = 1;     // beyond the hull
constexpr double kBlendScale = 0.25;      // octaves: how sharply nearer curves count more
constexpr double kUncalibratedLow = 0.5, kUncalibratedHigh = 2.0;
constexpr double kNothing = 1e-12;        // seconds, a hundredth of a clock: what rounding leaves of fitted terms that are none

class CpuModel : public OpModel {
 public:
  CpuModel(const Ceilings& c, const StepContext& context) : c_(c), summary_(context.summary) {
    for (const GemmCurve& curve : c.machine().gemm_curves)
      if (curve.threads == c.threads()) {
        curves_.push_back({&curve, logarithms(curve.rows), logarithms(curve.seconds)});
        if (context.plain_weights && curve.variant.ends_with("_plain")) plain_[static_cast<std::size_t>(curve.dtype)] = true;
      }
    for (const ClassFit& fit : c.machine().class_fits)
      if (fit.threads == c.threads()) {
        fits_[{fit.name, fit.dtype}] = &fit;
        if (fit.name == "product_few") few_[static_cast<std::size_t>(fit.dtype)] = streamed_rows(c.machine(), fit.dtype, c.threads());
      }
    if (curves_.empty() && fits_.empty())
      throw_input(fmt::format("machine '{}' is not calibrated for {} threads", c.machine().name, c.threads()), {},
                  "run 'fathom calibrate', or predict with light or roofline");
  }

  Prediction predict(const OpSpec& spec, const Executed& executed, const OpWork& work, const Residency& residency) const override {
    Prediction p = predict_roofline(c_, work, residency);
    if (!(p.seconds > 0)) return p;
    const auto* gemm = std::get_if<Gemm>(&spec);
    if (gemm)
      product(spec, *gemm, work, product_groups(*gemm, executed), passing_of(work, residency), p);
    else
      other(spec, work, passing_of(work, residency), p);
    return p;
  }

 private:
  // A curve and the logarithms of its points: one interpolation between them would else take three of them, for each of the curves that lend to a shape.
  struct LogCurve {
    const GemmCurve* curve;
    std::vector<double> rows, seconds;
  };
  template <class Numbers>
  static std::vector<double> logarithms(const Numbers& numbers) {
    std::vector<double> logs;
    for (const auto& number : numbers) logs.push_back(std::log(static_cast<double>(number)));
    return logs;
  }
  // Logarithm of curve_time().
  static double log_curve_time(const LogCurve& c, double rows, double log_rows) {
    if (rows <= static_cast<double>(c.curve->rows.front())) return c.seconds.front();
    if (rows >= static_cast<double>(c.curve->rows.back())) return std::log(curve_time(*c.curve, rows));
    const auto above = static_cast<std::size_t>(std::upper_bound(c.rows.begin(), c.rows.end(), log_rows) - c.rows.begin());
    const std::size_t high = std::clamp<std::size_t>(above, 1, c.rows.size() - 1), low = high - 1;
    const double share = (log_rows - c.rows[low]) / (c.rows[high] - c.rows[low]);
    return c.seconds[low] * (1 - share) + c.seconds[high] * share;
  }

  // Ends of a fit's interval as factors, in logarithms.
  struct LogInterval {
    double low = std::log(kUncalibratedLow), high = std::log(kUncalibratedHigh);
    double low_factor = std::exp(low), high_factor = upper_factor(std::exp(high));
  };
  static LogInterval interval_of(const ClassFit* fit) {
    if (!fit) return {};
    LogInterval interval{std::log(fit->residual_low), std::log(fit->residual_high)};
    interval.low_factor = std::exp(interval.low), interval.high_factor = upper_factor(std::exp(interval.high));
    return interval;
  }

  // What the curves lend to one shape, whatever its rows: an exact one, or all of its type by their distance in octaves of n and k.
  struct Blend {
    std::int64_t n = 0, k = 0;
    DType dtype = DType::kF32;
    int type = 0;                     // of gemm_variant: role, transposed, grouped
    const GemmCurve* exact = nullptr;
    const GemmCurve* close = nullptr;
    double nearest = 1e9, weights = 0;
    struct Lender {
      const LogCurve* curve;
      double weight, log_size;  // of 2 n k
    };
    std::vector<Lender> lenders;
    LogInterval interval;
  };
  // A machine on which no training was measured lends the times of weights that were laid out.
  bool plain(const Gemm& op) const { return plain_[static_cast<std::size_t>(op.act)] && !op.transposed; }
  double few(const Gemm& op) const { return plain(op) ? 0 : few_[static_cast<std::size_t>(op.act)]; }
  int type_of(const Gemm& op, double rows) const { return (static_cast<int>(op.role) * 4 + op.transposed * 2 + (op.experts > 1)) * 2 + (op.role == GemmRole::kForward && rows <= few(op)); }

  const Blend& blend(const Gemm& op, const ProductShape& shape) const {
    const int type = type_of(op, shape.rows);
    for (const Blend& known : blends_)
      if (known.n == shape.n && known.k == shape.k && known.dtype == op.act && known.type == type) return known;
    if (blends_.size() == kMostBlends) blends_.clear();
    Blend& b = blends_.emplace_back();
    b.n = shape.n, b.k = shape.k, b.dtype = op.act, b.type = type;
    const std::string variant = gemm_variant(op, shape.rows, few(op), plain(op));
    for (const LogCurve& each : curves_) {
      const GemmCurve* curve = each.curve;
      if (curve->dtype != op.act || curve->variant != variant) continue;
      if (curve->n == shape.n && curve->k == shape.k) {
        b.exact = curve;
        break;
      }
      const double dn = std::log2(static_cast<double>(curve->n) / static_cast<double>(shape.n));
      const double dk = std::log2(static_cast<double>(curve->k) / static_cast<double>(shape.k));
      const double distance = std::hypot(dn, dk);
      const double weight = 1 / (distance * distance + kBlendScale * kBlendScale);
      b.lenders.push_back({&each, weight, std::log(2 * static_cast<double>(curve->n) * static_cast<double>(curve->k))});
      b.weights += weight;
      if (distance < b.nearest) {
        b.nearest = distance;
        b.close = curve;
      }
    }
    b.interval = interval_of(find("gemm", op.act));
    return b;
  }

  // Curves hold times of operands in main memory: what it saves that some are nearer.
  double nearness(const OpSpec& spec, const Gemm& op, const OpWork& work, double rows, const Passing& passing) const {
    const std::size_t which = op.role == GemmRole::kWeightGradient ? 3 : op.role == GemmRole::kInputGradient ? 2 : rows <= few(op) ? 0 : 1;
    Place& place = places_[which][static_cast<std::size_t>(op.act)];
    if (!place.asked) {
      place.asked = true;
      if (const ClassFit* fit = find(product_fit_name(op, rows, few(op)), op.act)) place.known = true, place.coefficients = fit_coefficients(*fit, spec, c_.machine());
    }
    if (!place.known) return 1;
    const double far = fit_time(place.coefficients, fit_values(spec, work, 0, all_from_memory(work, c_.levels()), c_.threads()));
    return far > 0 ? fit_time(place.coefficients, fit_values(spec, work, 0, passing, c_.threads())) / far : 1;
  }

  void product(const OpSpec& spec, const Gemm& op, const OpWork& work, double groups, const Passing& passing, Prediction& p) const {
    const ProductShape shape = product_shape(op, work.rows / groups);
    const Blend& b = blend(op, shape);
    double outside = 0, seconds = 0;
    Provenance provenance = Provenance::kProbed;
    if (b.exact) {
      seconds = curve_time(*b.exact, shape.rows, &outside);
      if (outside > kOctavesAllowed) out_of_range(p, [&] { return fmt::format("rows {:.0f}: probed from {} to {}", shape.rows, b.exact->rows.front(), b.exact->rows.back()); });
    } else if (b.close) {
      // Another shape lends its efficiency (time over arithmetic at the peak), the more the nearer it is.
      const double log_rows = std::log(shape.rows);
      double logs = 0;
      for (const Blend::Lender& lender : b.lenders) logs += lender.weight * (log_curve_time(*lender.curve, shape.rows, log_rows) - lender.log_size);
      seconds = std::exp(logs / b.weights) * 2 * static_cast<double>(shape.n) * static_cast<double>(shape.k);  // rows cancel
      curve_time(*b.close, shape.rows, &outside);
      outside = std::max(outside, b.nearest);
      provenance = Provenance::kFitted;
      if (outside > kOctavesAllowed) out_of_range(p, [&] { return fmt::format("n {}, k {}: nearest probed n {}, k {}", shape.n, shape.k, b.close->n, b.close->k); });
    } else {
      uncalibrated(p, [&] { return fmt::format("no {} product of type {} was probed", gemm_variant(op, 0, 0, plain(op)), dtype_name(op.act)); });
      return;
    }
    finish(p, seconds * groups * nearness(spec, op, work, work.rows / groups, passing), provenance, b.interval, outside, work);
  }

  void other(const OpSpec& spec, const OpWork& work, const Passing& passing, Prediction& p) const {
    const KindFit known = fit_of(spec, work.dtype, fit_size(spec, work, c_.threads()));
    const ClassFit* fit = known.fit;
    if (!fit) {
      uncalibrated(p, [&] { return fmt::format("no point of class {} was probed", fit_name(spec)); });
      return;
    }
    const double seconds = fit_time(known.coefficients, fit_values(spec, work, p.seconds - p.launch, passing, c_.threads()));
    double outside = 0;
    const bool attention = known.axes == 2;
    const double values[] = {attention ? work.rows : work.read + work.written, work.exponentials};  // of fit_axes()
    for (std::size_t i = 0; i < known.axes; ++i) {
      if (!(known.low[i] > 0) || !(values[i] > 0)) continue;
      if (values[i] >= known.low[i] && values[i] <= known.high[i]) continue;
      outside = std::max({outside, std::log2(known.low[i] / values[i]), std::log2(values[i] / known.high[i])});
      if (outside > kOctavesAllowed)
        out_of_range(p, [&] { return fmt::format("{} {:.4g}: calibrated from {:.4g} to {:.4g}", fit_axes(spec, work)[i].first, values[i], known.low[i], known.high[i]); });
    }
    finish(p, seconds, Provenance::kFitted, known.interval, outside, work);
  }

  const ClassFit* find(const std::string& name, DType dtype) const {
    const auto found = fits_.find({name, dtype});
    return found == fits_.end() ? nullptr : found->second;
  }

  struct KindFit {
    bool asked = false;
    const ClassFit* fit = nullptr;
    LogInterval interval{};
    FitValues coefficients{};
    std::size_t axes = 0;                      // of fit_axes(), in its order
    std::array<double, 2> low{}, high{};       // 0: the fit does not say
  };
  KindFit looked_up(const OpSpec& spec, DType dtype, FitSize size) const {
    KindFit known;
    known.asked = true;
    known.fit = find(fit_name(spec, size), dtype);
    for (const FitSize other : {FitSize::kAny, FitSize::kOneThread, FitSize::kInnermost})
      if (!known.fit) known.fit = find(fit_name(spec, other), dtype);
    if (!known.fit) return known;
    known.interval = interval_of(known.fit);
    known.coefficients = fit_coefficients(*known.fit, spec, c_.machine());
    for (const auto& [axis, value] : fit_axes(spec, OpWork{})) {
      const auto low = known.fit->low.find(axis), high = known.fit->high.find(axis);
      if (low != known.fit->low.end() && high != known.fit->high.end()) known.low[known.axes] = low->second, known.high[known.axes] = high->second;
      ++known.axes;
    }
    return known;
  }
  // fit_name() is a text; of most kinds there is one.
  KindFit fit_of(const OpSpec& spec, DType dtype, FitSize size) const {
    if (std::holds_alternative<Attention>(spec) || std::holds_alternative<AttentionBackward>(spec)) return looked_up(spec, dtype, FitSize::kAny);
    KindFit& known = fit_of_kind_[static_cast<std::size_t>(size)][spec.index()][static_cast<std::size_t>(dtype)];
    if (!known.asked) known = looked_up(spec, dtype, size);
    return known;
  }

  template <class Note>
  void out_of_range(Prediction& p, const Note& note) const {
    p.out_of_range = true;
    if (!summary_) p.note = note();
  }

  template <class Note>
  void uncalibrated(Prediction& p, const Note& note) const {
    out_of_range(p, note);
    p.provenance = Provenance::kExtrapolated;
    p.lo = p.seconds * kUncalibratedLow;
    p.hi = p.seconds * kUncalibratedHigh;
  }

  // The interval doubles (in the logarithm) per octave outside what was calibrated; no time is shorter than the bound of the ceilings.
  void finish(Prediction& p, double seconds, Provenance provenance, const LogInterval& interval, double outside, const OpWork& work) const {
    if (!(seconds > kNothing)) return;
    p.launch = std::min(p.launch, seconds);
    p.seconds = seconds;
    p.provenance = p.out_of_range ? Provenance::kExtrapolated : provenance;
    const bool inside = !(outside > 0);
    const double widen = inside ? 1 : std::exp2(outside);
    p.lo = seconds * (inside ? interval.low_factor : std::exp(interval.low * widen));
    p.hi = seconds * (inside ? interval.high_factor : upper_factor(std::exp(interval.high * widen)));
    if (outside > kOctavesAllowed) p.lo = std::max(p.lo, std::min(seconds, predict_light(c_, work).seconds));
  }

  const Ceilings& c_;
  const bool summary_;
  static constexpr std::size_t kMostBlends = 256;
  mutable std::vector<Blend> blends_;
  struct Place {
    bool asked = false, known = false;
    FitValues coefficients{};
  };
  static constexpr std::size_t kTypes = 16;
  mutable std::array<std::array<Place, kTypes>, 4> places_{};
  std::array<double, kTypes> few_{};  // rows up to which a forward product streams its weights
  std::array<bool, kTypes> plain_{};  // weights change, and products of such lists were measured
  mutable std::array<std::array<std::array<KindFit, kTypes>, std::variant_size_v<OpSpec>>, kFitSizes> fit_of_kind_{};
  std::vector<LogCurve> curves_;
  std::map<std::pair<std::string, DType>, const ClassFit*> fits_;
};

}  // namespace

std::unique_ptr<OpModel> make_cpu_model(const Ceilings& ceilings, const StepContext& context) { return std::make_unique<CpuModel>(ceilings, context); }

}  // namespace fathom
