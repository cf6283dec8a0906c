// What a fit sees of an op, and its names: the same for the points of a calibration and for what is predicted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/predict/calibrate.hpp"
#include "lib/predict/handover.hpp"
#include "lib/predict/op_model.hpp"

namespace fathom {
namespace {

bool backward(const OpSpec& spec) { return kind_name(spec).ends_with("_backward"); }

const Attention* attention_of(const OpSpec& spec) {
  if (const auto* forward = std::get_if<Attention>(&spec)) return forward;
  if (const auto* back = std::get_if<AttentionBackward>(&spec)) return &back->forward;
  return nullptr;
}

}  // namespace

const ClassFit* fit_named(const Machine& machine, const std::string& name, DType dtype, int threads) {
  for (const ClassFit& fit : machine.class_fits)
    if (fit.name == name && fit.dtype == dtype && fit.threads == threads) return &fit;
  return nullptr;
}

bool weights_change(const Workload& workload) {
  return std::any_of(workload.ops().begin(), workload.ops().end(), [](const Op& op) { return op.pass == Pass::kBackward || op.pass == Pass::kOptimizer; });
}

std::string gemm_variant(const Gemm& op, double rows, double few, bool plain) {
  const bool forward = op.role == GemmRole::kForward;
  const std::string grouped = std::string(op.experts > 1 ? "_grouped" : "") + (forward && plain && !op.transposed ? "_plain" : forward && rows <= few && few > 0 ? "_few" : "");
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
    const size_t end = curve.rows.size() - 1;
    if (!curve.variant.ends_with("_few") || end == 0) return curve.seconds.back() * rows / last;
    const double slope = std::log(curve.seconds[end] / curve.seconds[end - 1]) / std::log(last / static_cast<double>(curve.rows[end - 1]));
    return curve.seconds.back() * std::pow(rows / last, std::clamp(slope, 0.0, 1.0));
  }
  const auto above = static_cast<size_t>(std::upper_bound(curve.rows.begin(), curve.rows.end(), rows, [](double r, std::int64_t x) { return r < static_cast<double>(x); }) -
                                         curve.rows.begin());
  const double x0 = std::log(static_cast<double>(curve.rows[above - 1])), x1 = std::log(static_cast<double>(curve.rows[above]));
  const double share = (std::log(rows) - x0) / (x1 - x0);
  return std::exp(std::log(curve.seconds[above - 1]) * (1 - share) + std::log(curve.seconds[above]) * share);
}

FitSize fit_size(const OpSpec& spec, const OpWork& work, int threads) {
  constexpr double kBytesOfTwo = 128 << 10, kInnermostBytes = 32 << 10;
  switch (op_class(spec)) {
    case OpClass::kGemm:
    case OpClass::kAttention:
    case OpClass::kSelect: return FitSize::kAny;
    default: break;
  }
  const double bytes = work.read + work.written;
  return bytes <= kInnermostBytes ? FitSize::kInnermost : threads > 1 && bytes < kBytesOfTwo ? FitSize::kOneThread : FitSize::kAny;
}

std::string fit_name(const OpSpec& spec, FitSize size) {
  // Kinds, not classes: a residual and a scatter are both streams, but run different kernels.
  if (const Attention* attention = attention_of(spec)) {
    std::string name = fmt::format("attention_{}{}", attention->cached ? "cached_" : "", attention->qk_dim);
    return backward(spec) ? name + "_backward" : name;
  }
  return std::string(kind_name(spec)) + (size == FitSize::kOneThread ? "_one" : size == FitSize::kInnermost ? "_tiny" : "");
}

std::vector<std::pair<std::string, double>> fit_axes(const OpSpec& spec, const OpWork& work) {
  if (attention_of(spec)) return {{"rows", work.rows}, {"scores", work.exponentials}};
  return {{"bytes", work.read + work.written}};
}

std::string fit_term(int term, const OpSpec& spec, const Machine& machine) {
  switch (term) {
    case FitTerm::kFixed: return "fixed";
    case FitTerm::kScale: return "scale";
    case FitTerm::kPerRow: return "per_row";
    case FitTerm::kPerExp: return attention_of(spec) ? "per_score" : "per_exp";
    case FitTerm::kPerFlop: return "per_flop";
    case FitTerm::kHanded: return "handed";
    case FitTerm::kHandedNear: return "handed_near";
    case FitTerm::kNearMemory: return "memory_near";
    default: {
      const auto level = static_cast<size_t>(term - FitTerm::kFirstLevel);
      return level < machine.levels.size() ? machine.levels[level].name : "";
    }
  }
}

FitValues fit_values(const OpSpec& spec, const OpWork& work, double roofline, const Passing& passing, int threads) {
  const double t = std::max(1, threads);
  FitValues v{};
  v[FitTerm::kFixed] = 1;
  v[FitTerm::kScale] = roofline;
  const Attention* attention = attention_of(spec);
  v[FitTerm::kPerRow] = work.rows * (attention ? static_cast<double>(attention->heads) : 1.0) / t;
  v[FitTerm::kPerExp] = work.exponentials / t;
  v[FitTerm::kPerFlop] = work.flops;
  v[passing.apart ? FitTerm::kHanded : FitTerm::kHandedNear] = passing.fetched + kReclaiming * passing.reclaimed;
  v[FitTerm::kNearMemory] = passing.near_memory;
  for (size_t l = 0; l < kMaxLevels; ++l) v[FitTerm::kFirstLevel + l] = passing.levels[l];
  return v;
}

FitValues fit_coefficients(const ClassFit& fit, const OpSpec& spec, const Machine& machine) {
  FitValues c{};
  for (int term = 0; term < kFitTerms; ++term) {
    const auto found = fit.coefficients.find(fit_term(term, spec, machine));
    if (found != fit.coefficients.end()) c[static_cast<size_t>(term)] = found->second;
  }
  return c;
}

double fit_time(const FitValues& coefficients, const FitValues& values) {
  double sum = 0;
  for (size_t i = 0; i < kFitTerms; ++i) sum += coefficients[i] * values[i];
  return sum;
}

std::string product_fit_name(const Gemm& op, double rows, double few) {
  if (op.role == GemmRole::kWeightGradient) return "product_dw";
  if (op.role == GemmRole::kInputGradient) return "product_dx";
  return rows <= few ? "product_few" : "product_forward";
}

double streamed_rows(const Machine& machine, DType dtype, int threads) {
  const ClassFit* fit = fit_named(machine, "product_few", dtype, threads);
  const auto rows = fit ? fit->high.find("rows") : std::map<std::string, double>::const_iterator{};
  return fit && rows != fit->high.end() ? rows->second : 0;
}

Passing passing_of(const OpWork& work, const Residency& residency) {
  const Traffic traffic = traffic_of(work, residency);
  Passing passing;
  for (size_t l = 0; l < kMaxLevels; ++l) passing.levels[l] = traffic.read[l] + traffic.written[l];
  passing.fetched = residency.fetched_reads * work.read + residency.fetched_writes * work.written;
  passing.reclaimed = residency.reclaimed * work.written;
  passing.apart = residency.placement == Placement::kApart;
  if (residency.placement == Placement::kTogether) {
    const auto outermost = std::find_if(passing.levels.rbegin(), passing.levels.rend(), [](double bytes) { return bytes > 0; });
    if (outermost != passing.levels.rend()) passing.near_memory = *outermost;
  }
  return passing;
}

Passing all_from_memory(const OpWork& work, int levels) {
  Passing passing;
  for (size_t l = 0; l < static_cast<size_t>(std::clamp(levels, 0, kMaxLevels)); ++l) passing.levels[l] = work.read + work.written;
  return passing;
}

}  // namespace fathom
