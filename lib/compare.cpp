#include "lib/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace fathom {
namespace {

constexpr std::array<std::string_view, 8> kVerdicts = {"within", "fast", "slow", "faster-than-light", "noisy", "too-short", "out-of-range", "skipped"};

struct Judgement {
  Verdict verdict;
  std::string reason;
  bool hit;
};

// The order matters: a measurement below light is reported whatever else is wrong with it, unless it is within its own noise of light.
Judgement judge(double predicted, double lo, double hi, double light, double measured, double noise, double noise_limit, const CompareOptions& options) {
  const bool interval = hi > lo;
  if (!interval) {
    lo = predicted * (1 - options.tolerance);
    hi = predicted * (1 + options.tolerance);
  }
  const bool hit = measured >= lo && measured <= hi;
  if (light > 0 && measured < light * (1 - options.light_slack - noise)) {
    return {Verdict::kFasterThanLight, fmt::format("measured {:.1f} % below the bound: count, clock or bound is wrong", 100 * (1 - measured / light)), hit};
  }
  if (noise > noise_limit) return {Verdict::kNoisy, fmt::format("A/A spread {:.1f} % exceeds {:.1f} %", 100 * noise, 100 * noise_limit), hit};
  if (hit) return {Verdict::kWithin, "", true};
  return {measured < lo ? Verdict::kFast : Verdict::kSlow, "", false};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

StepComparison compare_step(const StepPrediction& prediction, const StepPrediction& light, double measured, double noise, const CompareOptions& options) {
  StepComparison s;
  s.predicted = prediction.seconds;
  s.lo = prediction.lo;
  s.hi = prediction.hi;
  s.light = light.seconds;
  s.measured = measured;
  s.noise = noise;
  if (!(measured > 0)) {
    s.reason = "not measured";
    return s;
  }
  s.ratio = s.predicted > 0 ? measured / s.predicted : 0;
  s.error = (s.predicted - measured) / measured;
  const Judgement j = judge(s.predicted, s.lo, s.hi, s.light, measured, noise, options.step_target / 2, options);
  s.verdict = j.verdict;
  s.reason = j.reason;
  s.hit = j.hit;
  return s;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) { return kVerdicts[static_cast<size_t>(verdict)]; }

Comparison compare(const Workload& w, const StepPrediction& bracketed, const StepPrediction& raw, const StepPrediction& light, const Measurement& m,
                   const CompareOptions& options) {
  for (const std::string* part : {&bracketed.workload, &raw.workload, &light.workload, &m.workload})
    if (*part != w.fingerprint()) throw_internal("compare: parts of different workloads");
  if (light.predictor != PredictorKind::kLight) throw_internal("compare: the bound must come from light");
  Comparison result;
  result.workload = w.fingerprint();
  result.ops = PerOp<OpComparison>(w);
  std::vector<double> errors;
  double off = 0, total = 0, hits = 0;
  for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) {
    OpComparison& c = result.ops[i];
    const OpPrediction& p = bracketed.ops[i];
    const OpMeasurement& o = m.ops[i];
    c.predicted = p.total;
    c.lo = p.total_lo;
    c.hi = p.total_hi;
    c.light = light.ops[i].total;
    c.noise = o.noise;
    if (o.status == MeasureStatus::kNotRun || !(o.total > 0)) {
      c.reason = o.reason.empty() ? "not measured" : o.reason;
      ++result.dropped;
      continue;
    }
    c.measured = o.total;
    c.measured_raw = o.raw_median * static_cast<double>(o.uses);
    c.ratio = c.predicted > 0 ? c.measured / c.predicted : 0;
    c.error = (c.predicted - c.measured) / c.measured;
    const Judgement j = judge(c.predicted, c.lo, c.hi, c.light, c.measured, c.noise, options.noise_target / 2, options);
    c.hit = j.hit;
    c.verdict = j.verdict;
    c.reason = j.reason;
    if (o.status == MeasureStatus::kDisturbed) {
      c.verdict = Verdict::kNoisy;
      c.reason = o.reason;
    } else if (c.verdict != Verdict::kFasterThanLight) {
      if (o.status == MeasureStatus::kTooShort) {
        c.verdict = Verdict::kTooShort;
        c.reason = o.reason;
      } else if (p.each.out_of_range && c.verdict != Verdict::kNoisy) {
        c.verdict = Verdict::kOutOfRange;
        c.reason = p.each.note;
      }
    }
    if (c.verdict == Verdict::kNoisy || c.verdict == Verdict::kTooShort) {
      ++result.dropped;
      continue;
    }
    ++result.graded;
    errors.push_back(std::abs(c.error));
    off += std::abs(c.predicted - c.measured);
    total += c.measured;
    hits += c.hit;
  }
  if (result.graded > 0) {
    for (const double e : errors) result.mape += e / result.graded;
    result.median_error = median(errors);
    result.weighted_error = off / total;
    result.hit_share = hits / result.graded;
  }
  result.raw = compare_step(raw, light, m.step.raw_median, m.step.raw_noise, options);
  result.normalised = compare_step(bracketed, light, m.step.normalised, m.step.normalised_noise, options);
  return result;
}

PairComparison compare_pair(const Workload& routed, const Comparison& a, const Workload& dense, const Comparison& b) {
  const double flops = routed.expected_total().flops, base = dense.expected_total().flops;
  const auto ratio = [&](const StepComparison& x, const StepComparison& y, bool measured) {
    PairRatio r = measured ? pair_ratio(flops, base, x.measured, y.measured) : pair_ratio(flops, base, x.predicted, y.predicted);
    if (measured && !(x.measured > 0 && y.measured > 0)) {
      r.realised = 0;
      r.status = "not measured";
    }
    return r;
  };
  PairComparison pair;
  pair.predicted = ratio(a.raw, b.raw, false);
  pair.measured_raw = ratio(a.raw, b.raw, true);
  pair.measured = ratio(a.normalised, b.normalised, true);
  pair.flops_ratio = pair.predicted.flops_ratio;
  pair.noise = std::hypot(a.normalised.noise, b.normalised.noise);
  return pair;
}

}  // namespace fathom
