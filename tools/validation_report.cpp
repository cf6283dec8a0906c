#include "tools/validation_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/predict/op_model.hpp"
#include "lib/validate.hpp"
#include "reports/format.hpp"
#include "tools/results.hpp"
#include "tools/upper_cell.hpp"

namespace fathom {
namespace {

// Was this very (m, n, k) a calibration point?
bool seen_point(const Machine& machine, int threads, const OpSpec& spec, bool plain) {
  const auto* gemm = std::get_if<Gemm>(&spec);
  if (!gemm) return false;
  const Executed size = declared(spec);
  const ProductShape shape = product_shape(*gemm, static_cast<double>(size.rows) / product_groups(*gemm, size));
  return std::any_of(machine.gemm_curves.begin(), machine.gemm_curves.end(), [&](const GemmCurve& c) {
    return c.threads == threads && same_product(c, *gemm, shape, streamed_rows(machine, gemm->act, threads), plain) && std::find(c.rows.begin(), c.rows.end(), std::llround(shape.rows)) != c.rows.end();
  });
}

ReportTable statistics_table(const char* key, const char* title) {
  ReportTable table(key, title);
  table.add_column(ReportColumn{"stratum", "of", Unit::kText, 0});
  table.add_column(ReportColumn{"graded", "n", Unit::kCount, 0});
  table.add_column(ReportColumn{"dropped", "dropped", Unit::kCount, 0});
  table.add_column(ReportColumn{"mape", "MAPE", Unit::kPercent, 0});
  table.add_column(ReportColumn{"median", "median", Unit::kPercent, 0});
  table.add_column(ReportColumn{"p90", "p90", Unit::kPercent, 0});
  table.add_column(ReportColumn{"max", "max", Unit::kPercent, 1});
  table.add_column(ReportColumn{"bias", "bias", Unit::kSignedPercent, 0});
  table.add_column(ReportColumn{"geometric", "geometric mean", Unit::kRatio, 2, 4});
  table.add_column(ReportColumn{"log2", "mean |log2|", Unit::kNone, 3, 3});
  table.add_column(ReportColumn{"wape", "WAPE", Unit::kPercent, 1});
  table.add_column(ReportColumn{"within_noise", "within noise", Unit::kPercent, 3});
  table.add_column(ReportColumn{"interval_coverage", "in interval", Unit::kPercent, 1});
  table.add_column(ReportColumn{"noise_floor", "noise floor", Unit::kPercent, 1});
  return table;
}

// "gemm, backward"
std::string class_of(const Op& op) { return fmt::format("{}{}", op_class_name(op_class(op.spec)), op.pass == Pass::kBackward ? ", backward" : ""); }

// Why an op is not graded; empty: it is.
constexpr const char* kCalibrationPoint = "calibration point";
std::string left_out(const Machine& machine, int threads, const Workload& workload, const Op& op, const OpComparison& x) {
  if (seen_point(machine, threads, op.spec, weights_change(workload))) return kCalibrationPoint;
  if (!(x.measured > 0) || !(x.predicted > 0)) return "not measured";
  return x.verdict == Verdict::kNoisy || x.verdict == Verdict::kTooShort ? std::string(verdict_name(x.verdict)) : "";
}

// Items of one stratum, and how many more were dropped.
struct Stratum {
  std::vector<GradedItem> items;
  int dropped = 0;
};

void add_statistics(ReportTable& table, const std::string& name, const Stratum& s) {
  const Accuracy a = accuracy(s.items);
  const bool any = a.count > 0;
  // What repeats a prediction to the digit differs by rounding alone.
  constexpr double kRounding = 1e-12;
  const auto number = [&](double v) { return any ? Cell::number(std::abs(v) < kRounding ? 0 : v) : Cell::status("none graded"); };
  table.add_row({Cell::text(name), Cell::count(static_cast<u128>(a.count)), Cell::count(static_cast<u128>(s.dropped)), number(a.mape), number(a.median), number(a.p90), number(a.worst), number(a.bias),
                 number(a.geometric), number(a.log2), number(a.wape), number(a.within_noise), a.intervals > 0 ? Cell::number(a.coverage) : Cell(), number(a.noise)});
}

// Without the share in the interval where the predictor gives none.
void add_table(Document& document, ReportTable table, PredictorKind predictor) {
  const auto column = std::find_if(table.columns.begin(), table.columns.end(), [](const ReportColumn& each) { return each.key == "interval_coverage"; }) - table.columns.begin();
  if (std::all_of(table.rows.begin(), table.rows.end(), [&](const ReportTable::Row& row) { return row.cells[static_cast<std::size_t>(column)].empty(); })) {
    table.columns.erase(table.columns.begin() + column);
    for (ReportTable::Row& row : table.rows) row.cells.erase(row.cells.begin() + column);
    table.caption += fmt::format(" No share is in an interval: the {} predictor gives none.", predictor_name(predictor));
  }
  document.add(std::move(table));
}

class ValidationReport {
 public:
  explicit ValidationReport(const ValidationRun& run) : run_(run) {}

  Document report() const {
    Document document;
    document.title = fmt::format("Validation of {} predictions{}", predictor_name(run_.options.predictor), run_.quick ? " (quick)" : "");
    document.add(facts());
    for (const auto& [key, cell] : run_.record.environment.items())
      if (key == "foreign_cpu" || key == "steal") document.paragraph(fmt::format("{} during the last configuration: {:.2f} cores.", key == "steal" ? "Taken by the host (steal)" : "Used by other processes", cell.value()));
    if (run_.backend == "fake") document.warning("the fake backend repeats the prediction: these figures test the program, they say nothing about a machine");
    const size_t executed = static_cast<size_t>(std::count_if(run_.cases.begin(), run_.cases.end(), [](const GradedCase& c) { return !c.timed.empty() && !c.timed[0].measurement.workload.empty(); }));
    document.paragraph(fmt::format("{} of {} configurations executed.", executed, run_.cases.size()));
    if (executed > 0) document.paragraph(result(executed));
    if (run_.measured_again > 0) document.paragraph(fmt::format("{} of them were measured again because something disturbed them: the quieter measurement of the two counts.", run_.measured_again));
    for (const std::string& s : run_.skipped) document.skipped(s);
    step_statistics(document);
    op_statistics(document);
    document.add(pairs());
    document.add(configurations());
    if (!run_.record.notes.empty()) document.heading("Notes");
    for (const RecordNote& note : run_.record.notes) document.add(Note{note.severity, note.text});
    return document;
  }

 private:
  KeyValues facts() const {
    KeyValues list;
    list.add_text("machine", run_.machine.board);
    list.add_text("hash of its file", run_.machine.hash());
    list.add_text("set", std::to_string(run_.set));
    list.add_text("predictor", std::string(predictor_name(run_.options.predictor)));
    list.add_text("threads", std::to_string(run_.threads));
    list.add_text("dtype", std::string(dtype_name(run_.dtype)));
    list.add_text("backend", run_.backend);
    list.add_text("predicted at", run_.predicted_at, run_.predictions);
    if (!run_.measured_at.empty()) list.add_text("measured at", run_.measured_at);
    list.add_text("version", run_.record.version);
    list.add_text("command", "fathom " + run_.record.arguments);
    return list;
  }

  ReportTable configurations() const {
    ReportTable table("configurations", "Configurations");
    table.caption = "Normalised: the sum of bracketed ops in the machine state of the calibration, against the prediction of that pass. Raw: end to end, in the state of the day. Last cache: whether the cores shared one while this was measured (a guest's cores are moved); the prediction for that is graded, both were written before.";
    table.add_column(ReportColumn{"label", "configuration", Unit::kText, 0});
    table.add_column(ReportColumn{"predicted_s", "predicted", Unit::kSeconds, 0});
    table.add_column(ReportColumn{"predicted_lo_s", "low", Unit::kSeconds, 3});
    table.add_column(ReportColumn{"predicted_hi_s", "high", Unit::kSeconds, 3});
    table.add_column(ReportColumn{"normalised_s", "normalised", Unit::kSeconds, 0});
    table.add_column(ReportColumn{"error", "error", Unit::kSignedPercent, 0});
    table.add_column(ReportColumn{"noise", "noise", Unit::kPercent, 1});
    table.add_column(ReportColumn{"verdict", "verdict", Unit::kText, 0});
    table.add_column(ReportColumn{"raw_predicted_s", "raw predicted", Unit::kSeconds, 2});
    table.add_column(ReportColumn{"measured_s", "raw measured", Unit::kSeconds, 2});
    table.add_column(ReportColumn{"raw_error", "raw error", Unit::kSignedPercent, 2});
    table.add_column(ReportColumn{"ops_in_range", "ops in range", Unit::kPercent, 3});
    table.add_column(ReportColumn{"last_cache", "last cache", Unit::kText, 1});
    for (const GradedCase& c : run_.cases) {
      if (c.timed.empty()) continue;
      const Timed& t = c.timed[0];
      const StepComparison& n = t.comparison.normalised;
      const StepComparison& r = t.comparison.raw;
      const bool measured = n.measured > 0;
      const double ops = static_cast<double>(std::max<size_t>(1, t.workload->ops().size()));
      table.add_row({Cell::text(c.source.label), Cell::number(t.bracketed.seconds), Cell::number(t.bracketed.lo), upper_cell(t.bracketed.hi), measured ? Cell::number(n.measured) : Cell::status("not measured"),
                     measured ? Cell::number(n.error) : Cell(), measured ? Cell::number(n.noise) : Cell(), measured ? Cell::text(std::string(verdict_name(n.verdict))) : Cell(), Cell::number(t.raw.seconds),
                     r.measured > 0 ? Cell::number(r.measured) : Cell(), r.measured > 0 ? Cell::number(r.error) : Cell(), Cell::number(1 - t.bracketed.out_of_range / ops), last_cache(t.measurement)});
    }
    return table;
  }

  static Cell last_cache(const Measurement& m) {
    if (m.placement == Placement::kUnknown) return Cell();
    const std::string where = m.placement == Placement::kApart ? "own" : "shared";
    return Cell::text(m.placement_share < 1 ? fmt::format("{} ({:.0f} %)", where, 100 * m.placement_share) : where);
  }

  template <class Keep>
  Stratum steps(const Keep& keep, bool gate = true, bool raw = false) const {
    Stratum s;
    for (const GradedCase& c : run_.cases) {
      if (!keep(c)) continue;
      if (c.timed.empty() || c.timed[0].measurement.workload.empty()) {
        ++s.dropped;
        continue;
      }
      const StepComparison& x = raw ? c.timed[0].comparison.raw : c.timed[0].comparison.normalised;
      if (!(x.measured > 0) || (gate && too_noisy(x.noise, CompareOptions{}.step_target)))
        ++s.dropped;
      else
        s.items.push_back({x.predicted, x.lo, x.hi, x.measured, x.noise});
    }
    return s;
  }

  // The answer in one sentence: how far steps were off, or that nothing can be said.
  std::string result(size_t executed) const {
    const Accuracy a = accuracy(steps([](const GradedCase&) { return true; }).items);
    const auto graded = static_cast<size_t>(a.count);
    const std::string limit = format_value(CompareOptions{}.step_target / 2, Unit::kPercent, 2);
    if (graded == 0) return fmt::format("No result: {} of {} dropped as noisy (A/A spread above {}). What they show all the same stands in the rows with the noise gate off.", executed, executed, limit);
    std::string text = fmt::format("Result: mean |error| of a step {}, median {}, over {} of {} configurations", format_value(a.mape, Unit::kPercent, 3), format_value(a.median, Unit::kPercent, 3), graded, executed);
    if (graded < executed) text += fmt::format("; {} dropped as noisy (A/A spread above {})", executed - graded, limit);
    return text + ".";
  }

  void step_statistics(Document& document) const {
    ReportTable table = statistics_table("steps", "Steps");
    table.caption = "Normalised step times. Dropped: not executed, or A/A spread above half the target of 5 %; the last rows show everything, ungated and end to end.";
    const auto all = [](const GradedCase&) { return true; };
    add_statistics(table, "all", steps(all));
    for (const Phase phase : {Phase::kPrefill, Phase::kTrain, Phase::kDecode})
      add_statistics(table, std::string(phase_name(phase)), steps([&](const GradedCase& c) { return c.source.scenario.phase == phase; }));
    for (const char* family : {"dense", "mod", "moe", "mode"}) add_statistics(table, family, steps([&](const GradedCase& c) { return c.source.family == family; }));
    add_statistics(table, "widths never calibrated", steps([](const GradedCase& c) { return !c.source.seen_width; }));
    add_statistics(table, "all, noise gate off", steps(all, false));
    add_statistics(table, "all, end to end, gate off", steps(all, false, true));
    add_table(document, std::move(table), run_.options.predictor);
    // A type whose times move from run to run cannot be predicted better than they repeat.
    const Accuracy whole = accuracy(steps(all).items);
    if (run_.dtype != DType::kF32 && whole.count > 0 && whole.noise > 0)
      document.paragraph(fmt::format("{}: the mean error of a step is {:.1f} times the noise floor (target 2).", dtype_name(run_.dtype), whole.mape / whole.noise));
    ReportTable ranks("ranking", "Ranking");
    ranks.caption = "Kendall tau-b with measured ties inside the noise; regret: how much slower the configuration is that was predicted fastest.";
    ranks.add_column(ReportColumn{"stratum", "of", Unit::kText, 0});
    ranks.add_column(ReportColumn{"pairs", "pairs", Unit::kCount, 0});
    ranks.add_column(ReportColumn{"ties", "ties", Unit::kCount, 1});
    ranks.add_column(ReportColumn{"tau", "tau-b", Unit::kNone, 0, 3});
    ranks.add_column(ReportColumn{"chance", "chance", Unit::kNone, 1, 2});
    ranks.add_column(ReportColumn{"regret", "top-1 regret", Unit::kPercent, 0});
    ranks.add_column(ReportColumn{"regret_of_three", "of three", Unit::kPercent, 1});
    const auto rank = [&](const std::string& name, const Stratum& s) {
      const Ranking r = ranking(s.items);
      const auto number = [&](double v, bool told = true) { return r.pairs == 0 ? Cell::status("fewer than two graded") : told ? Cell::number(v) : Cell::status("all pairs tie"); };
      ranks.add_row({Cell::text(name), Cell::count(static_cast<u128>(r.pairs)), Cell::count(static_cast<u128>(r.ties)), number(r.tau, r.ties < r.pairs), number(r.chance), number(r.regret), number(r.regret_of_three)});
    };
    rank("all", steps(all));
    for (const Phase phase : {Phase::kPrefill, Phase::kTrain, Phase::kDecode}) rank(std::string(phase_name(phase)), steps([&](const GradedCase& c) { return c.source.scenario.phase == phase; }));
    rank("all, noise gate off", steps(all, false));
    document.add(ranks);
  }

  void op_statistics(Document& document) const {
    std::map<std::string, Stratum> classes;
    Stratum all, in_range, held_out;
    std::map<std::string, int> reasons;
    int seen = 0;
    for (const GradedCase& c : run_.cases) {
      if (c.timed.empty() || c.timed[0].measurement.workload.empty()) continue;
      const Timed& t = c.timed[0];
      for (int i = 0; i < static_cast<int>(t.workload->ops().size()); ++i) {
        const Op& op = t.workload->ops()[static_cast<size_t>(i)];
        const OpComparison& x = t.comparison.ops[i];
        const std::string why = left_out(run_.machine, run_.threads, *t.workload, op, x);
        if (why == kCalibrationPoint) {
          ++seen;
          continue;
        }
        Stratum& own = classes[class_of(op)];
        if (!why.empty()) {
          ++own.dropped;
          ++all.dropped;
          ++reasons[why];
          continue;
        }
        const GradedItem item{x.predicted, x.lo, x.hi, x.measured, x.noise};
        own.items.push_back(item);
        all.items.push_back(item);
        if (t.bracketed.ops[i].each.out_of_range)
          ++in_range.dropped;
        else
          in_range.items.push_back(item);
        if (std::holds_alternative<Gemm>(op.spec) && !c.held_out.workload.empty()) {
          const OpPrediction& p = c.held_out.ops[i];
          held_out.items.push_back({p.total, p.total_lo, p.total_hi, x.measured, x.noise});
        }
      }
    }
    ReportTable table = statistics_table("classes", "Ops");
    table.caption = "Bracketed, each op of each configuration once. Dropped: noisy, too short or not measured.";
    add_statistics(table, "all", all);
    add_statistics(table, "all in the calibrated range", in_range);
    for (const auto& [name, stratum] : classes) add_statistics(table, name, stratum);
    add_statistics(table, "gemm, whole (n, k) held out", held_out);
    add_table(document, std::move(table), run_.options.predictor);
    std::string dropped;
    for (const auto& [why, count] : reasons) dropped += fmt::format("{}{} {}", dropped.empty() ? "" : ", ", count, why);
    document.paragraph(fmt::format("Ops graded: {}. Dropped: {}. Left out because their very (m, n, k) was a calibration point: {}.", all.items.size(), dropped.empty() ? "none" : dropped, seen));
  }

  // FLOPs, predicted and measured time of each routed configuration over its dense twin.
  ReportTable pairs() const {
    ReportTable table("pairs", "Routed against dense");
    table.add_column(ReportColumn{"label", "configuration", Unit::kText, 0});
    for (const char* key : {"flops_ratio", "predicted_ratio", "measured_ratio", "realised"}) table.add_column(key);
    table.add_column(ReportColumn{"predicted_realised", "predicted realised", Unit::kPercent, 1});
    table.add_column("ratio_noise");
    table.add_column(ReportColumn{"verdict", "verdict", Unit::kText, 0});
    table.caption = "Noisy: one of the two steps has an A/A spread above half the target of 5 %, so neither its measured ratio nor what is realised is graded.";
    for (const GradedCase& c : run_.cases) {
      if (c.timed.empty() || !c.source.network.has_routes() || c.timed[0].measurement.workload.empty()) continue;
      for (const GradedCase& d : run_.cases) {
        const Scenario &a = c.source.scenario, &b = d.source.scenario;
        if (d.timed.empty() || d.source.network.has_routes() || d.timed[0].measurement.workload.empty() || a.phase != b.phase || a.batch != b.batch || a.length != b.length || a.context != b.context ||
            d.source.network.width != c.source.network.width || d.source.network.layer_count() != c.source.network.layer_count() || !(d.source.network.block(0) == c.source.network.block(0)))
          continue;
        const PairComparison p = compare_pair(*c.timed[0].workload, c.timed[0].comparison, *d.timed[0].workload, d.timed[0].comparison);
        const auto realised = [](const PairRatio& r) { return r.status.empty() ? Cell::number(r.realised) : Cell::status(r.status); };
        const auto noisy = [](const GradedCase& each) { return too_noisy(each.timed[0].comparison.normalised.noise, CompareOptions{}.step_target); };
        table.add_row({Cell::text(c.source.label), Cell::number(p.flops_ratio), Cell::number(p.predicted.time_ratio), Cell::number(p.measured.time_ratio), realised(p.measured), realised(p.predicted), Cell::number(p.noise), Cell::text(noisy(c) || noisy(d) ? "noisy" : "graded")});
        break;
      }
    }
    return table;
  }

  const ValidationRun& run_;
};

}  // namespace

bool same_product(const GemmCurve& c, const Gemm& op, const ProductShape& shape, double few, bool plain) {
  return c.dtype == op.act && c.variant == gemm_variant(op, shape.rows, few, plain) && c.n == shape.n && c.k == shape.k;
}

Document validation_report(const ValidationRun& run, bool ops) {
  Document document = ValidationReport(run).report();
  if (ops) document.add(validation_ops(run));
  return document;
}

ReportTable validation_ops(const ValidationRun& run) {
  ReportTable table("ops", "Ops of each configuration");
  table.caption = "All uses of a pass. Measured: normalised, in the machine state of the calibration; raw: in the state of the day.";
  table.add_column(ReportColumn{"label", "configuration", Unit::kText, 0});
  table.add_column(ReportColumn{"op", "op", Unit::kText, 0});
  table.add_column(ReportColumn{"class", "class", Unit::kText, 2});
  table.add_column(ReportColumn{"shape", "shape", Unit::kText, 1});
  table.add_column(ReportColumn{"uses", "uses", Unit::kCount, 2});
  table.add_column(ReportColumn{"predicted_s", "predicted", Unit::kSeconds, 0});
  table.add_column(ReportColumn{"predicted_lo_s", "low", Unit::kSeconds, 3});
  table.add_column(ReportColumn{"predicted_hi_s", "high", Unit::kSeconds, 3});
  table.add_column(ReportColumn{"normalised_s", "normalised", Unit::kSeconds, 0});
  table.add_column(ReportColumn{"measured_s", "raw measured", Unit::kSeconds, 2});
  table.add_column(ReportColumn{"error", "error", Unit::kSignedPercent, 0});
  table.add_column(ReportColumn{"noise", "noise", Unit::kPercent, 1});
  table.add_column(ReportColumn{"ops_in_range", "in range", Unit::kText, 2});
  table.add_column(ReportColumn{"dropped", "left out as", Unit::kText, 0});
  table.group = 1;
  for (const GradedCase& c : run.cases) {
    if (c.timed.empty() || c.timed[0].measurement.workload.empty()) continue;
    const Timed& t = c.timed[0];
    for (int i = 0; i < static_cast<int>(t.workload->ops().size()); ++i) {
      const Op& op = t.workload->ops()[static_cast<std::size_t>(i)];
      const OpComparison& x = t.comparison.ops[static_cast<std::size_t>(i)];
      const bool measured = x.measured > 0;
      table.add_row({Cell::text(c.source.label), Cell::text(t.workload->path(i)), Cell::text(class_of(op)), Cell::text(shape_text(op.spec)), Cell::count(static_cast<u128>(t.workload->uses(i))), Cell::number(x.predicted),
                     Cell::number(x.lo), upper_cell(x.hi), measured ? Cell::number(x.measured) : Cell::status("not measured"), measured ? Cell::number(x.measured_raw) : Cell(), measured ? Cell::number(x.error) : Cell(),
                     measured ? Cell::number(x.noise) : Cell(), Cell::text(t.bracketed.ops[static_cast<std::size_t>(i)].each.out_of_range ? "no" : "yes"), Cell::text(left_out(run.machine, run.threads, *t.workload, op, x))});
    }
  }
  return table;
}

}  // namespace fathom
