// fathom validate: how good the predictions for this machine are, on a fixed set that the calibration has not seen.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "lib/predict/calibrate.hpp"
#include "lib/predict/handover.hpp"
#include "lib/validate.hpp"
#include "models/builder.hpp"
#include "models/validation.hpp"
#include "reports/save.hpp"
#include "tools/interrupt.hpp"
#include "tools/results.hpp"
#include "tools/timed.hpp"
#include "tools/upper_cell.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

constexpr double kSecondsEach = 7, kSecondsEachQuick = 4;

struct ValidateArgs {
  TimedFlags timed;
  OutputFlags output;
  bool quick = false;
  int set = kValidationSets;
  std::string dtype = "f32";
};

// One configuration with what belongs to it beside Timed.
struct Case {
  ValidationCase source;
  std::vector<Timed> timed;      // one; empty when the configuration cannot be executed
  StepPrediction held_out;       // without any curve of its products' (n, k); no workload: not predicted
  StepPrediction held_out_otherwise;  // for cores that lie the other way (Timed)
};

bool same_product(const GemmCurve& c, const Gemm& op, const ProductShape& shape, double few) {
  return c.dtype == op.act && c.variant == gemm_variant(op, shape.rows, few) && c.n == shape.n && c.k == shape.k;
}

// Was this very (m, n, k) a calibration point?
bool seen_point(const Machine& machine, int threads, const OpSpec& spec) {
  const auto* gemm = std::get_if<Gemm>(&spec);
  if (!gemm) return false;
  const Executed size = declared(spec);
  const ProductShape shape = product_shape(*gemm, static_cast<double>(size.rows) / product_groups(*gemm, size));
  return std::any_of(machine.gemm_curves.begin(), machine.gemm_curves.end(), [&](const GemmCurve& c) {
    return c.threads == threads && same_product(c, *gemm, shape, streamed_rows(machine, gemm->act, threads)) && std::find(c.rows.begin(), c.rows.end(), std::llround(shape.rows)) != c.rows.end();
  });
}

Machine without_shapes_of(Machine machine, const Workload& w) {
  std::erase_if(machine.gemm_curves, [&](const GemmCurve& c) {
    return std::any_of(w.ops().begin(), w.ops().end(), [&](const Op& op) {
      const auto* gemm = std::get_if<Gemm>(&op.spec);
      if (!gemm) return false;
      const ProductShape shape = product_shape(*gemm, static_cast<double>(gemm->rows.count));
      return same_product(c, *gemm, shape, 0) || same_product(c, *gemm, shape, 1e9);  // both code paths

    });
  });
  return machine;
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

// Items of one stratum, and how many more were dropped.
struct Stratum {
  std::vector<GradedItem> items;
  int dropped = 0;
};

void add_statistics(ReportTable& table, const std::string& name, const Stratum& s) {
  const Accuracy a = accuracy(s.items);
  const bool any = a.count > 0;
  const auto number = [&](double v) { return any ? Cell::number(v) : Cell::status("none graded"); };
  table.add_row({Cell::text(name), Cell::count(static_cast<u128>(a.count)), Cell::count(static_cast<u128>(s.dropped)), number(a.mape), number(a.median), number(a.p90), number(a.worst), number(a.bias),
                 number(a.geometric), number(a.log2), number(a.wape), number(a.within_noise), a.intervals > 0 ? Cell::number(a.coverage) : Cell(), number(a.noise)});
}

class Validation {
 public:
  explicit Validation(const ValidateArgs& flags) : flags_(flags), machine_(resolve_machine(flags.timed.on, flags.output.quiet)) {}

  int run() {
    check_output_flags(flags_.output);
    if (flags_.timed.backend == "cpu") check_isa(machine_);
    record_ = new_record("validate");
    dtype_ = parse_dtype(flags_.dtype);
    options_ = predict_options(machine_, flags_.timed);
    threads_ = flags_.timed.threads > 0 ? flags_.timed.threads : machine_.default_threads();
    prepare();
    predicted_at_ = utc_now();
    save_predictions();
    catch_interrupts();
    measure();
    const int code = emit_document(report(), flags_.output);
    return interrupted() ? 130 : code;
  }

 private:
  void prepare() {
    for (ValidationCase& source : validation_set(flags_.set, flags_.quick)) {
      Case each;
      each.source = std::move(source);
      each.source.scenario.dtype = each.source.scenario.kv_dtype = each.source.scenario.grad_dtype = dtype_;
      try {
        each.timed = make_timed({Configuration{each.source.network, each.source.scenario, each.source.label}});
        for (const Op& op : each.timed[0].workload->ops())
          if (const Support support = backend(flags_.timed.backend).supports(op.spec); !support.ok) throw_input(support.reason);
      } catch (const Error& error) {
        each.timed.clear();
        skipped_.push_back(fmt::format("{}: {}", each.source.label, error.message()));
        cases_.push_back(std::move(each));
        continue;
      }
      predict_all(each.timed, machine_, flags_.timed, true);
      if (options_.predictor == PredictorKind::kCalibrated && machine_.kind == MachineKind::kCpu) {
        PredictOptions held = options_;
        held.bytes_between_ops = kReferenceBytes;
        const Machine without = without_shapes_of(machine_, *each.timed[0].workload);
        if (!without.gemm_curves.empty()) {
          each.held_out = predict(*each.timed[0].workload, without, held);
          if (const Placement otherwise = each.timed[0].raw_otherwise.placement; otherwise != Placement::kUnknown)
            each.held_out_otherwise = predict(*each.timed[0].workload, placed(without, otherwise), held);
        }
      }
      cases_.push_back(std::move(each));
    }
  }

  // What was predicted, on disk beside each report before anything runs; the report repeats the hash and both times.
  void save_predictions() {
    for (const std::string& path : flags_.output.save) {
      const std::string before = path + ".predicted.json";
      std::string text = fmt::format("{{\"predicted_at\": \"{}\", \"machine_hash\": \"{}\", \"predictor\": \"{}\", \"configurations\": [", predicted_at_, machine_.hash(), predictor_name(options_.predictor));
      bool first = true;
      for (const Case& c : cases_)
        if (!c.timed.empty()) {
          text += fmt::format("{}\n  {{\"label\": \"{}\", \"fingerprint\": \"{}\", \"predicted_s\": {:.17g}, \"normalised_s\": {:.17g}", first ? "" : ",", c.source.label, c.timed[0].workload->fingerprint(),
                              c.timed[0].raw.seconds, c.timed[0].bracketed.seconds);
          // Cores with last caches of their own instead of one, or one instead of their own.
          if (const Timed& t = c.timed[0]; !t.raw_otherwise.workload.empty())
            text += fmt::format(", \"placed_otherwise\": {{\"predicted_s\": {:.17g}, \"normalised_s\": {:.17g}}}", t.raw_otherwise.seconds, t.bracketed_otherwise.seconds);
          text += "}";
          first = false;
        }
      save_file(before, text + "\n]}\n");
    }
  }

  // One after the other, as they were calibrated: interleaving would have them evict each other.
  void measure() {
    TimedFlags each = flags_.timed;
    each.time = flags_.timed.time > 0 ? flags_.timed.time / static_cast<double>(std::max<size_t>(1, cases_.size())) : flags_.quick ? kSecondsEachQuick : kSecondsEach;
    std::vector<const Timed*> measured;
    for (Case& c : cases_) {
      if (c.timed.empty()) continue;
      if (interrupted()) {
        skipped_.push_back(c.source.label + ": interrupted");
        continue;
      }
      measure_all(c.timed, each, &machine_, flags_.output.quiet, record_);
      for (const Timed& one : c.timed) measured.push_back(&one);
    }
    for (Case& c : cases_) {
      if (interrupted()) break;
      if (!c.timed.empty() && !c.timed[0].measurement.workload.empty() && too_noisy(c.timed[0].comparison.normalised.noise, CompareOptions{}.step_target)) measure_again(c.timed, each);
    }
    for (Case& c : cases_)
      if (!c.held_out.workload.empty() && c.held_out.placement != c.timed[0].bracketed.placement) std::swap(c.held_out, c.held_out_otherwise);
    describe_environment(record_, measured, flags_.timed);
    measured_at_ = utc_now();
  }

  // Once, where the noise gate would drop a configuration: whatever disturbed it may be over. The quieter measurement stands, whatever its error.
  void measure_again(std::vector<Timed>& timed, const TimedFlags& flags) {
    Timed& t = timed[0];
    Measurement before = std::move(t.measurement);
    Comparison compared = std::move(t.comparison);
    ++measured_again_;
    t.measurement = {};
    measure_all(timed, flags, &machine_, flags_.output.quiet, record_);
    if (!t.measurement.workload.empty() && t.comparison.normalised.noise < compared.normalised.noise) return;
    t.measurement = std::move(before);
    t.comparison = std::move(compared);
    choose_placement(t);
  }

  KeyValues facts() const {
    KeyValues list;
    list.add_text("machine", machine_.board);
    list.add_text("machine_hash", machine_.hash());
    list.add_text("set", std::to_string(flags_.set));
    list.add_text("predictor", std::string(predictor_name(options_.predictor)));
    list.add_text("threads", std::to_string(threads_));
    list.add_text("dtype", std::string(dtype_name(dtype_)));
    list.add_text("backend", flags_.timed.backend);
    list.add_text("predicted_at", predicted_at_);
    if (!measured_at_.empty()) list.add_text("measured_at", measured_at_);
    list.add_text("version", record_.version);
    list.add_text("command", "fathom " + record_.arguments);
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
    for (const Case& c : cases_) {
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
    for (const Case& c : cases_) {
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

  void step_statistics(Document& document) const {
    ReportTable table = statistics_table("steps", "Steps");
    table.caption = "Normalised step times. Dropped: not executed, or A/A spread above half the target of 5 %; the last rows show everything, ungated and end to end.";
    const auto all = [](const Case&) { return true; };
    add_statistics(table, "all", steps(all));
    for (const Phase phase : {Phase::kPrefill, Phase::kTrain, Phase::kDecode})
      add_statistics(table, std::string(phase_name(phase)), steps([&](const Case& c) { return c.source.scenario.phase == phase; }));
    for (const char* family : {"dense", "mod", "moe", "mode"}) add_statistics(table, family, steps([&](const Case& c) { return c.source.family == family; }));
    add_statistics(table, "widths never calibrated", steps([](const Case& c) { return !c.source.seen_width; }));
    add_statistics(table, "all, noise gate off", steps(all, false));
    add_statistics(table, "all, end to end, gate off", steps(all, false, true));
    document.add(table);
    // A type whose times move from run to run cannot be predicted better than they repeat.
    const Accuracy whole = accuracy(steps(all).items);
    if (dtype_ != DType::kF32 && whole.count > 0 && whole.noise > 0)
      document.paragraph(fmt::format("{}: the mean error of a step is {:.1f} times the noise floor (target 2).", dtype_name(dtype_), whole.mape / whole.noise));
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
      ranks.add_row({Cell::text(name), Cell::count(static_cast<u128>(r.pairs)), Cell::count(static_cast<u128>(r.ties)), Cell::number(r.tau), Cell::number(r.chance), Cell::number(r.regret), Cell::number(r.regret_of_three)});
    };
    rank("all", steps(all));
    for (const Phase phase : {Phase::kPrefill, Phase::kTrain, Phase::kDecode}) rank(std::string(phase_name(phase)), steps([&](const Case& c) { return c.source.scenario.phase == phase; }));
    rank("all, noise gate off", steps(all, false));
    document.add(ranks);
  }

  void op_statistics(Document& document) const {
    std::map<std::string, Stratum> classes;
    Stratum all, in_range, held_out;
    std::map<std::string, int> reasons;
    int seen = 0;
    for (const Case& c : cases_) {
      if (c.timed.empty() || c.timed[0].measurement.workload.empty()) continue;
      const Timed& t = c.timed[0];
      for (int i = 0; i < static_cast<int>(t.workload->ops().size()); ++i) {
        const Op& op = t.workload->ops()[static_cast<size_t>(i)];
        const OpComparison& x = t.comparison.ops[i];
        if (seen_point(machine_, threads_, op.spec)) {
          ++seen;
          continue;
        }
        const std::string name = fmt::format("{}{}", op_class_name(op_class(op.spec)), op.pass == Pass::kBackward ? ", backward" : "");
        Stratum& own = classes[name];
        if (!(x.measured > 0) || !(x.predicted > 0) || x.verdict == Verdict::kNoisy || x.verdict == Verdict::kTooShort) {
          ++own.dropped;
          ++all.dropped;
          ++reasons[x.measured > 0 && x.predicted > 0 ? std::string(verdict_name(x.verdict)) : "not measured"];
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
    document.add(table);
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
    for (const Case& c : cases_) {
      if (c.timed.empty() || !c.source.network.has_routes() || c.timed[0].measurement.workload.empty()) continue;
      for (const Case& d : cases_) {
        const Scenario &a = c.source.scenario, &b = d.source.scenario;
        if (d.timed.empty() || d.source.network.has_routes() || d.timed[0].measurement.workload.empty() || a.phase != b.phase || a.batch != b.batch || a.length != b.length || a.context != b.context ||
            d.source.network.width != c.source.network.width || d.source.network.layer_count() != c.source.network.layer_count() || !(d.source.network.block(0) == c.source.network.block(0)))
          continue;
        const PairComparison p = compare_pair(*c.timed[0].workload, c.timed[0].comparison, *d.timed[0].workload, d.timed[0].comparison);
        const auto realised = [](const PairRatio& r) { return r.status.empty() ? Cell::number(r.realised) : Cell::status(r.status); };
        table.add_row({Cell::text(c.source.label), Cell::number(p.flops_ratio), Cell::number(p.predicted.time_ratio), Cell::number(p.measured.time_ratio), realised(p.measured), realised(p.predicted)});
        break;
      }
    }
    return table;
  }

  Document report() const {
    Document document;
    document.title = fmt::format("Validation of {} predictions{}", predictor_name(options_.predictor), flags_.quick ? " (quick)" : "");
    document.add(facts());
    for (const RecordNote& note : record_.notes) document.add(Note{note.severity, note.text});
    for (const auto& [key, cell] : record_.environment.items())
      if (key == "foreign_cpu" || key == "steal") document.paragraph(fmt::format("{} of the last configuration: {:.2f} cores", key, cell.value()));
    if (flags_.timed.backend == "fake") document.warning("the fake backend repeats the prediction: these figures test the program, they say nothing about a machine");
    const size_t executed = static_cast<size_t>(std::count_if(cases_.begin(), cases_.end(), [](const Case& c) { return !c.timed.empty() && !c.timed[0].measurement.workload.empty(); }));
    document.paragraph(fmt::format("{} of {} configurations executed.", executed, cases_.size()));
    if (measured_again_ > 0) document.paragraph(fmt::format("{} of them were measured again because something disturbed them: the quieter measurement of the two counts.", measured_again_));
    for (const std::string& s : skipped_) document.skipped(s);
    step_statistics(document);
    op_statistics(document);
    document.add(pairs());
    document.add(configurations());
    return document;
  }

  const ValidateArgs& flags_;
  Machine machine_;
  PredictOptions options_;
  int threads_ = 1;
  DType dtype_ = DType::kF32;
  Record record_;
  std::string predicted_at_, measured_at_;
  std::vector<Case> cases_;
  std::vector<std::string> skipped_;
  int measured_again_ = 0;
};

}  // namespace

void add_validate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ValidateArgs>();
  CLI::App* command = app.add_subcommand("validate", "how good this machine's predictions are, on a fixed set the calibration has not seen");
  command->add_flag("--quick", flags->quick, "a part of the set, about a minute")->group("Validation");
  command->add_option("--set", flags->set, fmt::format("1: the set on which the models were made, 2: one that was not looked at [{}]", kValidationSets))->type_name("N")->check(CLI::Range(1, kValidationSets))->group("Validation");
  command->add_option("--dtype", flags->dtype, "f32 or bf16 [f32]; calibrate that type first")->type_name("T")->check(CLI::IsMember({"f32", "bf16"}))->group("Validation");
  add_predict_flags(*command, flags->timed);
  add_measure_flags(*command, flags->timed);
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom validate --save validation.md\n  fathom validate --quick");
  command->callback([flags, command, &exit_code] {
    std::vector<RecordNote> unread;
    if (flags->timed.rounds > 0) note_unused(*command, {"--time"}, "--rounds says how long", unread);
    note_unused(*command, {"--verbose"}, "a validation has tables of its own", unread);
    tell_notes(unread, flags->output.quiet);
    exit_code = Validation(*flags).run();
  });
}

}  // namespace fathom
