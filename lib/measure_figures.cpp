#include "lib/measure_figures.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace fathom {
namespace {

// In one run, scaling by the references may take away this much of an op's fastest sample; more says that they were disturbed, not the machine.
constexpr double kLargestCorrection = 2;

void finish_op(OpMeasurement& o, const Op& op, const Subject& s, int index, const ReferenceMeasurement& reference, const MeasureOptions& options) {
  const double samples = static_cast<double>(o.raw.values.size());
  o.raw_median = o.raw.median();
  o.raw_p95 = o.raw.quantile(0.95);
  o.raw_min = o.raw.min();
  const double nominal = reference.nominal;
  // Where rows vary from use to use the median would be that of one row count; the mean is what adds up.
  const double ratio = rows_of(op.spec).routed() ? o.ratio.mean() : o.ratio.median();
  const double unscaled = rows_of(op.spec).routed() ? o.raw.mean() : o.raw_median;
  const bool disturbed = nominal > 0 && ratio * reference.p25 * kLargestCorrection < o.raw_min;
  o.seconds = nominal > 0 && !disturbed ? ratio * nominal : unscaled;
  o.total = o.seconds * static_cast<double>(o.uses);
  o.ceiling_flops = rows_of(op.spec).routed() ? o.ceiling.mean() : o.ceiling.median();
  o.noise = halves_spread(o.round_total);
  o.rows_executed = s.rows[static_cast<size_t>(index)] / samples;
  o.executed_flops = s.flops[static_cast<size_t>(index)] / samples;
  const bool short_sample = o.raw_median * o.batch < options.too_short;
  o.status = short_sample ? MeasureStatus::kTooShort : MeasureStatus::kOk;
  if (disturbed) {
    o.status = MeasureStatus::kDisturbed;
    o.reason = "other programs held up the reference kernels more than the op: its own median, not graded";
    o.ceiling_flops = 0;
    return;
  }
  o.reason = short_sample ? "a sample lasts less than the shortest time that can be trusted, and the op may not be repeated in place" : "";
}

}  // namespace

double normalised(const Sample& x, double nominal) {
  const double r = (x.before + x.after) / 2;
  return r > 0 ? x.seconds / r * nominal : x.seconds;
}

std::map<std::string, ReferenceMeasurement> reference_figures(const std::map<std::string, std::vector<double>>& samples_of, const MeasureOptions& options) {
  std::map<std::string, ReferenceMeasurement> references;
  for (const auto& [name, values] : samples_of) {
    ReferenceMeasurement r;
    r.name = name;
    const Samples samples{values};
    r.nominal = r.p25 = samples.quantile(0.25);
    if (const auto given = options.nominal.find(name); given != options.nominal.end() && given->second > 0) r.nominal = given->second;
    r.median = samples.median();
    r.p95 = samples.quantile(0.95);
    r.samples = static_cast<int>(values.size());
    Samples steps;
    for (size_t i = 1; i < values.size(); ++i)
      if (values[i - 1] > 0) steps.values.push_back(std::abs(values[i] / values[i - 1] - 1));
    r.noise = steps.quantile(0.9);
    references[name] = r;
  }
  return references;
}

void keep_one_placement(Subject& s) {
  const auto count = [&s](Placement which) { return std::count(s.placements.begin(), s.placements.end(), which); };
  Placement most = Placement::kUnknown;
  for (const Placement which : {Placement::kTogether, Placement::kApart})
    if (count(which) > count(most)) most = which;
  s.result.placement = most;
  const auto rounds = static_cast<std::ptrdiff_t>(s.rounds);
  if (rounds == 0 || std::ssize(s.placements) < rounds || count(most) == std::ssize(s.placements)) return;
  std::vector<int> number(static_cast<size_t>(rounds), -1);
  int kept = 0;
  for (size_t r = 0; r < number.size(); ++r)
    if (s.placements[r] == most) number[r] = kept++;
  if (kept == 0) return;
  const double share = static_cast<double>(kept) / static_cast<double>(rounds);
  s.result.placement_share = share;
  std::erase_if(s.samples, [&](const Sample& x) { return number[static_cast<size_t>(x.round)] < 0; });
  for (Sample& x : s.samples) x.round = number[static_cast<size_t>(x.round)];
  for (auto* sums : {&s.rows, &s.flops})
    for (double& sum : *sums) sum *= share;
  s.rounds = kept;
  std::vector<double> raw;
  for (size_t i = 0; i < s.raw.size() && i < s.raw_placements.size(); ++i)
    if (s.raw_placements[i] == most) raw.push_back(s.raw[i]);
  if (!raw.empty()) s.raw = std::move(raw);
}

void finish_measurement(Subject& s, const std::map<std::string, ReferenceMeasurement>& references, const std::map<std::string, Ceiling>& ceilings, const MeasureOptions& options) {
  const Workload& w = s.execution->workload();
  Measurement& m = s.result;
  m.workload = w.fingerprint();
  m.ops = PerOp<OpMeasurement>(w);
  std::set<std::string> used;
  for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) {
    OpMeasurement& o = m.ops[i];
    o.uses = w.uses(i);
    o.implementation = s.execution->implementation(i);
    o.reference = s.class_names[static_cast<size_t>(s.classes[static_cast<size_t>(i)])];
    o.batch = s.batch[static_cast<size_t>(i)];
    o.round_total.assign(static_cast<size_t>(s.rounds), 0.0);
    o.reason = options.bracketed ? "the op was not reached" : "only end-to-end passes were asked for";
    used.insert(o.reference);
  }
  for (const Sample& x : s.samples) {
    const int op = s.instances[static_cast<size_t>(x.instance)].op;
    OpMeasurement& o = m.ops[op];
    const double nominal = references.at(o.reference).nominal;
    o.raw.values.push_back(x.seconds);
    o.ratio.values.push_back(nominal > 0 ? normalised(x, nominal) / nominal : 0);
    if (x.ceiling_before > 0 && x.before + x.after > 0) o.ceiling.values.push_back(normalised(x, (x.ceiling_before + x.ceiling_after) / 2));
    o.round_total[static_cast<size_t>(x.round)] += normalised(x, nominal);
  }
  // A round that brackets some of an op's uses stands for all of them.
  for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) {
    OpMeasurement& o = m.ops[i];
    const double taken = static_cast<double>(o.raw.values.size()), all = static_cast<double>(o.uses) * s.rounds;
    if (taken > 0 && taken < all)
      for (double& total : o.round_total) total *= all / taken;
  }
  std::map<std::string, std::vector<double>> class_rounds;
  std::vector<double> step_rounds(static_cast<size_t>(s.rounds), 0.0);
  for (int i = 0; i < static_cast<int>(w.ops().size()); ++i) {
    OpMeasurement& o = m.ops[i];
    if (o.raw.empty()) continue;
    finish_op(o, w.ops()[static_cast<size_t>(i)], s, i, references.at(o.reference), options);
    m.step.normalised += o.total;
    auto& rounds = class_rounds[o.reference];
    rounds.resize(static_cast<size_t>(s.rounds), 0.0);
    for (size_t r = 0; r < o.round_total.size(); ++r) {
      rounds[r] += o.round_total[r];
      step_rounds[r] += o.round_total[r];
    }
  }
  for (const auto& [name, rounds] : class_rounds) m.class_noise[name] = halves_spread(rounds);
  for (const std::string& name : used)
    if (const auto found = references.find(name); found != references.end()) m.references.push_back(found->second);
  for (const std::string& name : used)
    if (const auto found = ceilings.find(name); found != ceilings.end() && !found->second.rates.empty()) m.ceiling_rate[name] = Samples{found->second.rates}.median();
  m.step.normalised_noise = halves_spread(step_rounds);
  m.step.rounds = s.rounds;
  m.step.raw.values = s.raw;
  m.step.raw_median = m.step.p50 = m.step.raw.median();
  m.step.p95 = m.step.raw.quantile(0.95);
  m.step.p99 = m.step.raw.quantile(0.99);
  m.step.raw_min = m.step.raw.min();
  m.step.raw_noise = halves_spread(s.raw);
}

}  // namespace fathom
