// Calibrated time of ops on a CPU: probed curves for matrix products, fitted models for the rest, roofline where neither reaches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/predict/calibrate.hpp"
#include "lib/predict/op_model.hpp"

namespace fathom {
namespace {

constexpr double kOctavesAllowed = 1;     // beyond the hull (SPEC_PREDICT 9)
constexpr double kBlendScale = 0.25;      // octaves: how sharply nearer curves count more
constexpr double kUncalibratedLow = 0.5, kUncalibratedHigh = 2.0;

class CpuModel : public OpModel {
 public:
  CpuModel(const Ceilings& c, const StepContext& context) : c_(c), summary_(context.summary) {
    for (const GemmCurve& curve : c.machine().gemm_curves)
      if (curve.threads == c.threads()) curves_.push_back(&curve);
    for (const ClassFit& fit : c.machine().class_fits)
      if (fit.threads == c.threads()) fits_[{fit.name, fit.dtype}] = &fit;
    if (curves_.empty() && fits_.empty())
      throw_input(fmt::format("machine '{}' is not calibrated for {} threads", c.machine().name, c.threads()), {},
                  "run 'fathom calibrate', or predict with light or roofline");
  }

  Prediction predict(const OpSpec& spec, const Executed& executed, const OpWork& work, const Residency& residency) const override {
    Prediction p = predict_roofline(c_, work, residency);
    if (!(p.seconds > 0)) return p;
    const auto* gemm = std::get_if<Gemm>(&spec);
    if (gemm)
      product(*gemm, work, product_groups(*gemm, executed), p);
    else
      other(spec, work, p);
    return p;
  }

 private:
  void product(const Gemm& op, const OpWork& work, double groups, Prediction& p) const {
    const ProductShape shape = product_shape(op, work.rows / groups);
    const std::string variant = gemm_variant(op);
    const GemmCurve* exact = nullptr;
    double weights = 0, logs = 0, nearest = 1e9;
    const GemmCurve* close = nullptr;
    for (const GemmCurve* curve : curves_) {
      if (curve->dtype != op.act || curve->variant != variant) continue;
      if (curve->n == shape.n && curve->k == shape.k) {
        exact = curve;
        break;
      }
      // Another shape lends its efficiency (time over arithmetic at the peak), the more the nearer it is in octaves of n and k.
      const double dn = std::log2(static_cast<double>(curve->n) / static_cast<double>(shape.n));
      const double dk = std::log2(static_cast<double>(curve->k) / static_cast<double>(shape.k));
      const double distance = std::hypot(dn, dk);
      const double weight = 1 / (distance * distance + kBlendScale * kBlendScale);
      const double ideal = 2 * shape.rows * static_cast<double>(curve->n) * static_cast<double>(curve->k);
      weights += weight;
      logs += weight * std::log(curve_time(*curve, shape.rows) / ideal);
      if (distance < nearest) {
        nearest = distance;
        close = curve;
      }
    }
    const ClassFit* fit = find("gemm", op.act);
    double outside = 0, seconds = 0;
    Provenance provenance = Provenance::kProbed;
    if (exact) {
      seconds = curve_time(*exact, shape.rows, &outside);
      if (outside > kOctavesAllowed) out_of_range(p, fmt::format("rows {:.0f}: probed from {} to {}", shape.rows, exact->rows.front(), exact->rows.back()));
    } else if (close) {
      seconds = std::exp(logs / weights) * 2 * shape.rows * static_cast<double>(shape.n) * static_cast<double>(shape.k);
      curve_time(*close, shape.rows, &outside);
      outside = std::max(outside, nearest);
      provenance = Provenance::kFitted;
      if (outside > kOctavesAllowed) out_of_range(p, fmt::format("n {}, k {}: nearest probed n {}, k {}", shape.n, shape.k, close->n, close->k));
    } else {
      uncalibrated(p, fmt::format("no {} product of type {} was probed", variant, dtype_name(op.act)));
      return;
    }
    finish(p, seconds * groups, provenance, fit, outside);
  }

  void other(const OpSpec& spec, const OpWork& work, Prediction& p) const {
    const std::string name = fit_name(spec);
    const ClassFit* fit = find(name, work.dtype);
    if (!fit) {
      uncalibrated(p, fmt::format("no point of class {} was probed", name));
      return;
    }
    const std::vector<std::string> terms = fit_terms(spec);
    const std::vector<double> values = fit_values(spec, work, p.seconds - p.launch, c_.threads());
    double seconds = 0;
    for (size_t i = 0; i < terms.size(); ++i) {
      const auto found = fit->coefficients.find(terms[i]);
      if (found != fit->coefficients.end()) seconds += found->second * values[i];
    }
    double outside = 0;
    for (const auto& [axis, value] : fit_axes(spec, work)) {
      const auto low = fit->low.find(axis), high = fit->high.find(axis);
      if (low == fit->low.end() || high == fit->high.end() || !(value > 0)) continue;
      const double octaves = std::max(std::log2(low->second / value), std::log2(value / high->second));
      if (octaves > outside) {
        outside = octaves;
        if (outside > kOctavesAllowed) out_of_range(p, fmt::format("{} {:.4g}: calibrated from {:.4g} to {:.4g}", axis, value, low->second, high->second));
      }
    }
    finish(p, seconds, Provenance::kFitted, fit, outside);
  }

  const ClassFit* find(const std::string& name, DType dtype) const {
    const auto found = fits_.find({name, dtype});
    return found == fits_.end() ? nullptr : found->second;
  }

  static void out_of_range(Prediction& p, std::string note) {
    p.out_of_range = true;
    p.note = std::move(note);
  }

  static void uncalibrated(Prediction& p, std::string note) {
    out_of_range(p, std::move(note));
    p.provenance = Provenance::kExtrapolated;
    p.lo = p.seconds * kUncalibratedLow;
    p.hi = p.seconds * kUncalibratedHigh;
  }

  // The interval doubles (in the logarithm) per octave outside what was calibrated.
  void finish(Prediction& p, double seconds, Provenance provenance, const ClassFit* fit, double outside) const {
    if (!(seconds > 0)) return;
    p.launch = std::min(p.launch, seconds);
    p.seconds = seconds;
    p.provenance = p.out_of_range ? Provenance::kExtrapolated : provenance;
    const double widen = std::exp2(std::max(0.0, outside));
    p.lo = seconds * std::exp(std::log(fit ? fit->residual_low : kUncalibratedLow) * widen);
    p.hi = seconds * std::exp(std::log(fit ? fit->residual_high : kUncalibratedHigh) * widen);
  }

  const Ceilings& c_;
  const bool summary_;
  std::vector<const GemmCurve*> curves_;
  std::map<std::pair<std::string, DType>, const ClassFit*> fits_;
};

}  // namespace

std::unique_ptr<OpModel> make_cpu_model(const Ceilings& ceilings, const StepContext& context) { return std::make_unique<CpuModel>(ceilings, context); }

}  // namespace fathom
