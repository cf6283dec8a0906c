#include "tools/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "kernels/reference/backend.hpp"
#include "lib/error.hpp"
#include "models/builder.hpp"

namespace fathom {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double top_of(const std::vector<float>& values) {
  double most = 0;
  for (const float v : values) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

// State that later ops of the other backend depend on: which rows there are, and the optimizer's step.
bool keeps_state(const OpSpec& spec) {
  return std::holds_alternative<Select>(spec) || std::holds_alternative<ExpertSelect>(spec) || std::holds_alternative<GradientNorm>(spec);
}

std::vector<float> scores_of(CheckScores scores, std::vector<float> computed) {
  for (size_t i = 0; i < computed.size(); ++i) {
    float& score = computed[i];
    switch (scores) {
      case CheckScores::kComputed: break;
      case CheckScores::kEqual: score = 0.25f; break;
      case CheckScores::kTied: score = std::round(2 * score) / 2; break;
      case CheckScores::kNobody: score = -1.0f - std::abs(score); break;
      case CheckScores::kEveryone: score = 1.0f + std::abs(score); break;
    }
  }
  return computed;
}

class Checker {
 public:
  Checker(const Backend& backend, const CheckOptions& options) : backend_(backend), options_(options) {
    for (const std::string& name : options.kinds) {
      const auto& names = kind_names();
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) throw_input("unknown op kind '" + name + "'", {"", 0, "KIND"}, name_hint(name, {names.begin(), names.end()}));
      kinds_.insert(static_cast<int>(found - names.begin()));
    }
  }

  void run(const CheckCase& each, DType dtype) {
    Scenario scenario = each.scenario;
    scenario.dtype = scenario.grad_dtype = scenario.kv_dtype = dtype;
    const Workload list = build(each.network, scenario);
    bool wanted = kinds_.empty(), bindable = true;
    for (const Op& op : list.ops()) {
      wanted = wanted || checks(op.spec);
      const Support support = backend_.supports(op.spec);
      if (support.ok) continue;
      bindable = false;
      if (checks(op.spec)) row(op.spec, dtype).refused = support.reason;
    }
    if (!wanted || !bindable) return;
    BindOptions bind;
    bind.threads = options_.threads;
    bind.learning_rate = 1e-2;
    bind.epsilon = 1e-3;  // gradients that are zero but for rounding must not become whole steps of the optimizer
    want_ = reference::ReferenceBackend().bind_reference(list, bind);
    const auto checked = std::find_if(list.ops().begin(), list.ops().end(), [this](const Op& op) { return checks(op.spec); });
    try {
      got_.reset();  // its memory is free before the next one's is taken
      got_ = backend_.bind(list, bind);
      want_->begin_pass();
      got_->begin_pass();
    } catch (const Error& error) {
      return broke(each, "the list cannot be bound", checked->spec, dtype, error);
    }
    ++report_.lists;
    first_case_ = report_.cases.size();
    for (int i = 0; i < want_->instance_count(); ++i) {
      if (std::holds_alternative<Select>(*want_->bound(i).spec) && each.scores != CheckScores::kComputed) {
        const OperandView& scores = want_->bound(i).in[0];
        want_->write(scores.at, scores_of(each.scores, want_->read(scores.at)));
      }
      try {
        step(each, list, dtype, i);
      } catch (const Error& error) {
        return broke(each, list.path(list.instances()[static_cast<size_t>(i)]), *want_->bound(i).spec, dtype, error);
      }
    }
    broken_ = 0;
  }
  bool gave_up() const { return broken_ >= kMostBroken; }

  CheckReport finish() {
    for (auto& [key, each] : rows_) report_.rows.push_back(std::move(each));
    return std::move(report_);
  }
  void stop() { report_.stopped = true; }
  void check_parts() {
    try {
      report_.parts = backend_.self_test();
    } catch (const Error& error) {
      report_.parts = {{"self-test", 0, 1, kInfinite, 0, error.message()}};
    }
  }

 private:
  bool checks(const OpSpec& spec) const { return kinds_.empty() || kinds_.count(static_cast<int>(spec.index())) > 0; }

  // The rest of this list has nothing to be checked on.
  void broke(const CheckCase& each, const std::string& where, const OpSpec& spec, DType dtype, const Error& error) {
    CheckRow& result = row(spec, dtype);
    ++result.wrong_values;
    fail(result, fmt::format("{}, {}: {}", each.name, check_scores_name(each.scores), where), error.message(), kInfinite);
    if (++broken_ >= kMostBroken) report_.gave_up = fmt::format("{} lists failed one after the other, the last with: {}", broken_, error.message());
  }

  CheckRow& row(const OpSpec& spec, DType dtype) {
    CheckRow& found = rows_[{static_cast<int>(spec.index()), static_cast<int>(dtype)}];
    found.kind = static_cast<int>(spec.index());
    found.dtype = dtype;
    found.tolerance = check_tolerance(dtype) * options_.tolerance;
    return found;
  }

  void fail(const CheckRow& row, const std::string& where, std::string what, double error) {
    const bool first = row.wrong_values + row.wrong_counts == 1;
    if (first || report_.failures.size() < kMostFailures) report_.failures.push_back({row.kind, row.dtype, where, std::move(what), error});
  }

  void keep(const CheckCase& each, const OpSpec& spec, DType dtype, double worst) {
    const int kind = static_cast<int>(spec.index());
    const std::string name = fmt::format("{}, {}", each.name, check_scores_name(each.scores));
    for (size_t i = first_case_; i < report_.cases.size(); ++i) {
      CheckedCase& known = report_.cases[i];
      if (known.kind != kind) continue;
      ++known.ops;
      known.worst = std::max(known.worst, worst);
      return;
    }
    report_.cases.push_back({kind, dtype, name, 1, worst});
  }

  // One op on both, on the reference's operands.
  void step(const CheckCase& each, const Workload& list, DType dtype, int i) {
    const BoundOp& bound = want_->bound(i);
    const OpSpec& spec = *bound.spec;
    const bool checked = checks(spec);
    if (!checked && !keeps_state(spec)) return want_->run_instance(i);
    std::set<TensorInstance> copied;
    for (const auto* views : {&bound.in, &bound.out})
      for (const OperandView& view : *views)
        if (list.tensors()[static_cast<size_t>(view.at.tensor)].role != Role::kWeight && copied.insert(view.at).second) got_->write(view.at, want_->read(view.at));
    const auto held = checked ? held_columns(*want_, bound) : std::vector<std::vector<HeldColumns>>{};
    want_->run_instance(i);
    got_->run_instance(i);
    if (!checked) return;
    CheckRow& result = row(spec, dtype);
    ++result.cases;
    const auto where = [&] { return fmt::format("{}, {}: {}", each.name, check_scores_name(each.scores), list.path(list.instances()[static_cast<size_t>(i)])); };

    const Executed executed = want_->executed(i);
    const std::string counts = wrong_counts(spec, i);
    if (!counts.empty()) {
      ++result.wrong_counts;
      fail(result, where(), counts, kInfinite);
    }
    double worst = 0;
    for (size_t o = 0; o < bound.out.size(); ++o) {
      const OperandView& view = bound.out[o];
      std::vector<float> a = got_->read(view.at), b = want_->read(view.at);
      b.resize(static_cast<size_t>(std::min(view.rows, live_rows(spec, o, view, executed)) * view.cols));
      a.resize(b.size());
      worst = std::max(worst, relative_difference(a, b, view.cols, held[o]));
    }
    result.worst = std::max(result.worst, worst);
    if (options_.keep_cases) keep(each, spec, dtype, worst);
    if (worst > result.tolerance) {
      ++result.wrong_values;
      fail(result, where(), std::isinf(worst) ? "a value is no number" : fmt::format("values differ by {:.2g}, tolerance {:.2g}", worst, result.tolerance), worst);
    }
  }

  // Empty when the other backend executed what the reference did, and the reference's multiply-adds are the analytic count of that size.
  std::string wrong_counts(const OpSpec& spec, int i) const {
    const Executed want = want_->executed(i), got = got_->executed(i);
    if (got.rows != want.rows) return fmt::format("{} rows executed instead of {}", got.rows, want.rows);
    if (got.pairs != want.pairs) return fmt::format("{} pairs executed instead of {}", to_string(got.pairs), to_string(want.pairs));
    if (got.keys != want.keys) return fmt::format("{} keys read instead of {}", got.keys, want.keys);
    if (got.experts != want.experts) return fmt::format("{} experts executed instead of {}", got.experts, want.experts);
    const Cost cost = cost_at(spec, got);
    const Flops analytic = cost.flops + cost.flops_recompute;
    if (want_->executed_flops(i) != analytic) return fmt::format("{} FLOPs counted instead of {}", to_string(want_->executed_flops(i).value()), to_string(analytic.value()));
    if (got_->executed_flops(i) < analytic) return "less executed than counted";
    return {};
  }

  const Backend& backend_;
  const CheckOptions& options_;
  std::set<int> kinds_;
  std::map<std::pair<int, int>, CheckRow> rows_;
  CheckReport report_;
  size_t first_case_ = 0;  // of the current list
  int broken_ = 0;         // lists in a row that failed
  std::unique_ptr<reference::ReferenceExecution> want_;
  std::unique_ptr<Execution> got_;
};

}  // namespace

bool CheckReport::ok() const {
  return std::all_of(rows.begin(), rows.end(), [](const CheckRow& row) { return row.ok(); }) &&
         std::all_of(parts.begin(), parts.end(), [](const SelfTest& part) { return part.wrong == 0; });
}

double check_tolerance(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 2e-2; }

double relative_difference(const std::vector<float>& got, const std::vector<float>& want, double scale) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    worst = std::isnan(difference) ? kInfinite : std::max(worst, difference);
  }
  return worst == 0 ? 0 : worst / std::max({scale, top_of(want), 1e-12});
}

std::int64_t live_rows(const OpSpec& spec, size_t o, const OperandView& view, const Executed& executed) {
  const Rows rows = rows_of(spec);
  if (const auto* select = std::get_if<Select>(&spec)) {
    if (o == 2) return view.rows;
    return o == 3 ? select->sequences * select->length - executed.rows : executed.rows;
  }
  // Outputs with a row per token of the stream, per weight or per cache slot.
  const auto* gemm = std::get_if<Gemm>(&spec);
  const bool whole = std::holds_alternative<ScatterAddRows>(spec) || std::holds_alternative<GatherBackward>(spec) || std::holds_alternative<KvAppend>(spec) ||
                     std::holds_alternative<ExpertSelect>(spec) || std::holds_alternative<ExpertCombine>(spec) ||
                     std::holds_alternative<ExpertDispatchBackward>(spec) || (std::holds_alternative<ScatterAddBackward>(spec) && o > 0) ||
                     (gemm && gemm->role == GemmRole::kWeightGradient);
  return rows.routed() && !whole && view.rows == rows.count ? executed.rows : view.rows;
}

CheckReport check_backend(const Backend& backend, const CheckOptions& options, const std::vector<CheckCase>& cases) {
  Checker checker(backend, options);
  if (options.kinds.empty()) checker.check_parts();
  const size_t of = cases.size() * options.dtypes.size();
  size_t done = 0;
  for (const CheckCase& each : cases) {
    for (const DType dtype : options.dtypes) {
      if (options.progress && !options.progress(done++, of)) {
        checker.stop();
        return checker.finish();
      }
      checker.run(each, dtype);
      if (checker.gave_up()) return checker.finish();
    }
  }
  return checker.finish();
}

}  // namespace fathom
