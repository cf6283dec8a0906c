#include "tools/sweep_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "lib/error.hpp"
#include "lib/memory_parts.hpp"
#include "lib/plan.hpp"
#include "models/builder.hpp"
#include "models/params.hpp"
#include "reports/columns.hpp"
#include "tools/convention.hpp"
#include "tools/generation.hpp"
#include "tools/results.hpp"
#include "tools/timed.hpp"
#include "tools/upper_cell.hpp"

namespace fathom {
namespace {

// In the order of RowEvaluator::Figure.
constexpr std::array<const char*, 33> kFigures = {
    "params_total", "params_active", "flops_matmul", "flops_expected", "elements_vector", "bytes_read", "bytes_written", "kv_bytes", "kv_bytes_per_token", "peak_bytes",
    "intensity", "flops_ratio", "bytes_read_expected", "weight_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "run_steps", "run_flops", "convention_flops", "predicted_s", "predicted_ttft_s", "predicted_tpot_s", "predicted_lo_s", "predicted_hi_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s", "compute_s", "memory_s",
    "launch_s", "predicted_ratio", "tokens_per_s"};
constexpr std::size_t kFirstPredicted = 20;
constexpr std::array<const char*, 17> kMeasured = {"measured_s", "ttft_s", "tpot_s", "participation", "normalised_s", "min_s", "p50_s", "p95_s", "p99_s", "samples", "spread", "noise", "achieved_flops_per_s", "error", "time_ratio", "verdict", "light_s"};

std::ptrdiff_t index_of(const std::string& key) {
  const auto found = std::find(kFigures.begin(), kFigures.end(), key);
  return found == kFigures.end() ? -1 : found - kFigures.begin();
}
bool measured(const std::string& key) { return std::find(kMeasured.begin(), kMeasured.end(), key) != kMeasured.end(); }

void set(SweepValue& value, u128 count) {
  value.kind = SweepValue::Kind::kCount;
  value.count = count;
}
void set(SweepValue& value, double number) {
  value.kind = SweepValue::Kind::kNumber;
  value.number = number;
}

double tokens_of(const Scenario& s) { return static_cast<double>(s.batch) * (s.phase == Phase::kDecode ? 1.0 : static_cast<double>(s.length)); }

}  // namespace

std::string figure_key(const std::string& name, SweepKind kind) {
  static const std::vector<std::pair<std::string, std::string>> kShort = {{"flops", "flops_matmul"}, {"params", "params_total"}, {"memory", "peak_bytes"}, {"kv", "kv_bytes"}, {"read", "bytes_read"}};
  std::string key = name;
  if (name == "time") key = kind == SweepKind::kCompare ? "measured_s" : "predicted_s";
  for (const auto& [from, to] : kShort)
    if (name == from) key = to;
  if (index_of(key) < 0 && !measured(key))
    if (const Column* column = find_heading(key)) key = column->key;  // as headings call it
  const std::ptrdiff_t index = index_of(key);
  if (index < 0 && !measured(key)) {
    std::vector<std::string> names = {"flops", "time", "params", "memory", "kv"};
    names.insert(names.end(), kFigures.begin(), kFigures.end());
    names.insert(names.end(), kMeasured.begin(), kMeasured.end());
    const std::string nearest = nearest_name(name, names);
    throw_input(fmt::format("a sweep has no column '{}'", name.substr(0, 80)), {}, nearest.empty() ? "all of them: --columns all; what each says: fathom list columns" : fmt::format("did you mean '{}'?", nearest));
  }
  if (kind == SweepKind::kCount && (index < 0 || static_cast<std::size_t>(index) >= kFirstPredicted))
    throw_input(fmt::format("'{}' is not counted", name), {}, index < 0 ? "add --do compare" : "add --do predict (and --on MACHINE)");
  if (kind == SweepKind::kPredict && index < 0) throw_input(fmt::format("'{}' is measured, not predicted", name), {}, "add --do compare");
  return key;
}

std::vector<std::string> figure_columns(SweepKind kind, const SweepSpace& space, const std::vector<std::string>& columns, const std::vector<std::string>& extra) {
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  if (columns.empty()) {
    for (const char* key : {"params_total", "params_active", "flops_matmul"}) add(key);
    if (space.routed() && (space.has_phase(Phase::kDecode) || space.has_phase(Phase::kPrefill) || space.has_phase(Phase::kGenerate))) add("flops_expected");
    for (const char* key : {"elements_vector", "bytes_read", "bytes_written", "kv_bytes"}) add(key);
    if (kind != SweepKind::kCount)
      for (const char* key : {"predicted_s", "predicted_lo_s", "predicted_hi_s", "compute_s", "memory_s", "launch_s"}) add(key);
    if (kind != SweepKind::kCount && space.has_phase(Phase::kGenerate))
      for (const char* key : {"predicted_ttft_s", "predicted_tpot_s"}) add(key);
    if (kind == SweepKind::kCompare)
      for (const char* key : {"measured_s", "spread", "error", "verdict"}) add(key);
    if (kind == SweepKind::kCompare && space.has_phase(Phase::kGenerate))
      for (const char* key : {"ttft_s", "tpot_s"}) add(key);
  }
  for (const std::string& name : columns) {
    if (name != "all") {
      add(figure_key(name, kind));
      continue;
    }
    // What rows of this kind can have; runs and other conventions are asked for by options of their own.
    const bool generates = space.has_phase(Phase::kGenerate);
    for (std::size_t i = 0; i < (kind == SweepKind::kCount ? kFirstPredicted : kFigures.size()); ++i) {
      const std::string_view key = kFigures[i];
      if (!key.starts_with("run_") && key != "convention_flops" && (generates || (key != "predicted_ttft_s" && key != "predicted_tpot_s"))) add(std::string(key));
    }
    if (kind == SweepKind::kCompare)
      for (const std::string key : kMeasured)
        if (generates || (key != "ttft_s" && key != "tpot_s")) add(key);
  }
  for (const std::string& name : extra) add(figure_key(name, kind));
  return keys;
}

std::vector<std::string> counted_keys(const std::vector<std::string>& keys) {
  std::vector<std::string> counted;
  for (const std::string& key : keys)
    if (const std::ptrdiff_t index = index_of(key); index >= 0 && static_cast<std::size_t>(index) < kFirstPredicted) counted.push_back(key);
  return counted;
}

RowEvaluator::RowEvaluator(SweepKind kind, std::vector<std::string> keys, std::vector<SweepMachine> machines, const MeasureRow* measure, u128 run_tokens)
    : kind_(kind), keys_(std::move(keys)), machines_(std::move(machines)), measure_(measure), run_tokens_(run_tokens), predictors_(machines_.size()) {
  for (const std::string& key : keys_) {
    const std::ptrdiff_t index = index_of(key);
    if (index < 0) continue;
    const auto figure = static_cast<Figure>(index);
    figures_.push_back(figure);
    need_prediction_ = need_prediction_ || static_cast<std::size_t>(index) >= kFirstPredicted;
    need_list_ = need_list_ || figure == Figure::kPeak || figure == Figure::kWeights || figure == Figure::kGradients || figure == Figure::kOptimizer || figure == Figure::kSaved;
    need_twin_ = need_twin_ || figure == Figure::kFlopsRatio || figure == Figure::kPredictedRatio;
    need_expected_ = need_expected_ || figure == Figure::kExpected || figure == Figure::kFlopsRatio || figure == Figure::kReadExpected;
  }
  need_list_ = need_list_ || need_prediction_;
}

const std::string& RowEvaluator::evaluate(const SweepPoint& point, std::vector<SweepValue>& values) {
  values.resize(keys_.size());
  for (SweepValue& value : values) value.kind = SweepValue::Kind::kNone;
  status_.clear();
  if (!point.network) return point.error;
  try {
    if (measure_ && kind_ == SweepKind::kCompare)
      values = (*measure_)(point, keys_);
    else if (point.scenario.phase == Phase::kGenerate)
      generation(point, values);
    else
      count(point, values);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    for (SweepValue& value : values) value.kind = SweepValue::Kind::kNone;
    status_ = error.where().key.empty() ? error.message() : error.where().key + ": " + error.message();
  }
  return status_;
}

const ListTotals& RowEvaluator::totals(const SweepPoint& point) {
  NetworkLine* line = nullptr;
  if (point.line != SweepPoint::kNoLine) {
    if (lines_.size() <= point.line_variant) lines_.resize(point.line_variant + 1);
    line = &lines_[point.line_variant];
    if (const ListTotals* known = line->totals(point.line, point.line_at, *point.network, point.scenario, need_expected_)) return *known;
  } else if (point.family != SweepPoint::kNoLine) {
    if (kinds_.size() <= point.family_variant) kinds_.resize(point.family_variant + 1);
    if (const ListTotals* known = kinds_[point.family_variant].totals(point.family, *point.network, point.scenario, need_expected_)) return *known;
  }
  const ListTotals& counted = memo_.totals(*point.network, point.network_index, point.scenario, need_expected_);
  if (line) line->counted(counted, memo_.blocks());
  return counted;
}

// As `fathom count` gives it: exact integers, text where they are none, nothing where the convention is not defined.
void RowEvaluator::set_convention(SweepValue& value, const SweepPoint& point, const Cost& total) const {
  Result result;
  result.convention_flops = Cell::count(total.flops);
  apply_convention(std::string(point.convention), *point.network, point.scenario, result);
  if (const u128* count = result.convention_flops.exact()) set(value, *count);
  if (const std::string* words = result.convention_flops.words()) value.kind = SweepValue::Kind::kText, value.text = *words;
}

// What is the same for all rows of a network.
void RowEvaluator::start(const SweepPoint& point) {
  if (network_ == point.network_index) return;
  const ParameterCount params = count_parameters(*point.network);
  params_ = params.total.value();
  active_ = params.active.value();
  if (need_twin_) twin_ = dense_twin(*point.network);
  kv_.length = -1;
  network_ = point.network_index;
}

void RowEvaluator::set_cache(const Network& network, const Scenario& s, std::int64_t reach) {
  if (kv_.length == reach && kv_.dtype == s.kv_dtype && kv_.page == s.kv_page && kv_.mla == s.mla && kv_.taken == share_taken(s)) return;
  kv_ = {reach, s.kv_page, s.kv_dtype, s.mla, kv_bytes(network, reach, 1, s.kv_dtype, s.kv_page, s.mla, share_taken(s)).value(), kv_bytes_per_token(network, s.kv_dtype).value(), share_taken(s)};
}

// Valid until the next call.
const StepPrediction& RowEvaluator::predicted(const Workload& list, std::size_t machine) {
  const auto& [on, options] = machines_[machine];
  if (options.follow_placement) return placed_ = predict(list, *on, options);
  std::unique_ptr<StepPredictor>& predictor = predictors_[machine];
  if (!predictor) predictor = std::make_unique<StepPredictor>(*on, options, asks(Figure::kP50) || asks(Figure::kP95) || asks(Figure::kP99));
  return predictor->predict(list);
}

bool RowEvaluator::asks(Figure figure) const { return std::find(figures_.begin(), figures_.end(), figure) != figures_.end(); }

// A generation is a prefill and decode steps: sums of their lists, the memory of the larger, the time that `fathom predict` gives. What belongs to one step alone (its bounds, a ratio
// to its twin, a whole run) it has not.
void RowEvaluator::generation(const SweepPoint& point, std::vector<SweepValue>& values) {
  const Network& network = *point.network;
  const Scenario& s = point.scenario;
  start(point);
  const ListTotals& sums = generations_.totals(network, point.network_index, s, need_expected_);
  const Cost& total = sums.total;
  const Scenario prefill = generation_prefill(s), end = generation_end(s);
  set_cache(network, s, end.context);
  const bool peak = asks(Figure::kPeak), weights = asks(Figure::kWeights);
  const Workload* list = peak || weights ? &lists_.at(network, point.network_index, prefill) : nullptr;
  GenerationPrediction prediction;
  if (need_prediction_) {
    PredictOptions options = machines_[point.machine].options;
    options.follow_placement = true;  // as `fathom predict` does
    prediction = predict_generation(network, s, *machines_[point.machine].machine, options);
  }
  const bool steps = !prediction.steps.empty();
  for (std::size_t i = 0; i < figures_.size(); ++i) {
    SweepValue& v = values[i];
    switch (figures_[i]) {
      case Figure::kParams: set(v, params_); break;
      case Figure::kActive: set(v, active_); break;
      case Figure::kFlops: set(v, total.flops.value()); break;
      case Figure::kExpected: set(v, sums.expected.flops); break;
      case Figure::kElements: set(v, total.elements_total().value()); break;
      case Figure::kRead: set(v, total.read.value()); break;
      case Figure::kReadExpected: set(v, sums.expected.read); break;
      case Figure::kWritten: set(v, total.written.value()); break;
      case Figure::kKv: set(v, checked_mul(kv_.each, static_cast<u128>(s.batch))); break;
      case Figure::kKvToken: set(v, kv_.token); break;
      case Figure::kPeak: {
        std::int64_t most = plan_memory(*list).arena;
        if (s.tokens > 1) most = std::max(most, plan_memory(ends_.at(network, point.network_index, end)).arena);
        set(v, static_cast<u128>(most));
        break;
      }
      case Figure::kWeights: set(v, memory_parts(*list).weights.value()); break;
      case Figure::kIntensity: set(v, total.flops.to_double() / (total.read.to_double() + total.written.to_double())); break;
      case Figure::kConvention: set_convention(v, point, total); break;
      case Figure::kPredicted: set(v, prediction.total); break;
      case Figure::kFirstToken: set(v, prediction.first); break;
      case Figure::kPerToken:
        if (steps) set(v, prediction.per_token);
        break;
      case Figure::kP50:
        if (steps) set(v, prediction.middle.p50);
        break;
      case Figure::kP95:
        if (steps) set(v, prediction.middle.p95);
        break;
      case Figure::kP99:
        if (steps) set(v, prediction.middle.p99);
        break;
      default: break;
    }
  }
}

void RowEvaluator::count(const SweepPoint& point, std::vector<SweepValue>& values) {
  const Network& network = *point.network;
  const Scenario& s = point.scenario;
  start(point);
  const std::int64_t reach = s.phase == Phase::kDecode ? s.context : s.past + s.length;
  const ListTotals& sums = totals(point);
  const Cost& total = sums.total;
  double twin_flops = 0, twin_seconds = 0;
  if (need_twin_) twin_flops = twin_memo_.totals(twin_, point.network_index, for_dense_twin(twin_, s), true).expected.flops;
  // The list itself is made only where something walks it.
  const Workload* list = nullptr;
  static const StepPrediction kNoPrediction;
  const StepPrediction* predicted = &kNoPrediction;
  if (need_list_) list = &lists_.at(network, point.network_index, s);
  if (need_prediction_) {
    check_dtype(*machines_[point.machine].machine, s);
    if (need_twin_) twin_seconds = this->predicted(twin_lists_.at(twin_, point.network_index, for_dense_twin(twin_, s)), point.machine).seconds;
    predicted = &this->predicted(*list, point.machine);
  }
  const StepPrediction& prediction = *predicted;
  set_cache(network, s, reach);
  const bool train = s.phase == Phase::kTrain;
  std::optional<MemoryParts> parts;
  const auto memory = [&]() -> const MemoryParts& {
    if (!parts) parts = memory_parts(*list);
    return *parts;
  };
  const auto steps = [&] {
    const u128 each = checked_mul(checked_mul(static_cast<u128>(s.batch), static_cast<u128>(s.length)), static_cast<u128>(s.grad_accumulation));
    return run_tokens_ / each + (run_tokens_ % each != 0 ? 1 : 0);
  };
  const auto ratio = [](SweepValue& value, double a, double b) {
    if (b > 0) set(value, a / b);
  };
  for (std::size_t i = 0; i < figures_.size(); ++i) {
    SweepValue& v = values[i];
    switch (figures_[i]) {
      case Figure::kParams: set(v, params_); break;
      case Figure::kActive: set(v, active_); break;
      case Figure::kFlops: set(v, total.flops.value()); break;
      case Figure::kExpected: set(v, sums.expected.flops); break;
      case Figure::kElements: set(v, total.elements_total().value()); break;
      case Figure::kRead: set(v, total.read.value()); break;
      case Figure::kWritten: set(v, total.written.value()); break;
      case Figure::kKv: set(v, s.phase == Phase::kTrain ? u128{0} : checked_mul(kv_.each, static_cast<u128>(s.batch))); break;
      case Figure::kKvToken: set(v, kv_.token); break;
      case Figure::kPeak: set(v, planned_peak(network, s, *list)); break;
      case Figure::kIntensity: ratio(v, total.flops.to_double(), total.read.to_double() + total.written.to_double()); break;
      case Figure::kFlopsRatio: ratio(v, sums.expected.flops, twin_flops); break;
      case Figure::kReadExpected: set(v, sums.expected.read); break;
      case Figure::kWeights: set(v, memory().weights.value()); break;
      case Figure::kGradients:
        if (train) set(v, memory().gradients.value());
        break;
      case Figure::kOptimizer:
        if (train) set(v, memory().optimizer.value());
        break;
      case Figure::kSaved:
        if (train) set(v, memory().saved.value());
        break;
      case Figure::kRunSteps:
        if (train && run_tokens_ > 0) set(v, steps());
        break;
      case Figure::kRunFlops:
        if (train && run_tokens_ > 0) set(v, checked_mul(steps(), total.flops.value()));
        break;
      case Figure::kConvention: set_convention(v, point, total); break;
      case Figure::kPredicted: set(v, prediction.seconds); break;
      case Figure::kFirstToken:
      case Figure::kPerToken: break;  // of generations
      case Figure::kLo: set(v, prediction.lo); break;
      case Figure::kHi:
        if (std::isinf(prediction.hi))
          v.kind = SweepValue::Kind::kText, v.text = kUnbounded;
        else
          set(v, prediction.hi);
        break;
      case Figure::kP50: set(v, prediction.p50); break;
      case Figure::kP95: set(v, prediction.p95); break;
      case Figure::kP99: set(v, prediction.p99); break;
      case Figure::kCompute: set(v, prediction.compute); break;
      case Figure::kMemory: set(v, prediction.memory); break;
      case Figure::kLaunch: set(v, prediction.launch); break;
      case Figure::kPredictedRatio: ratio(v, prediction.seconds, twin_seconds); break;
      case Figure::kTokenRate: ratio(v, tokens_of(s), prediction.seconds); break;
    }
  }
}

}  // namespace fathom
