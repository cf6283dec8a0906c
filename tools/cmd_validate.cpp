// fathom validate: how good the predictions for this machine are, on a fixed set that the calibration has not seen.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "lib/predict/handover.hpp"
#include "lib/validate.hpp"
#include "models/builder.hpp"
#include "reports/csv.hpp"
#include "reports/record_notes.hpp"
#include "reports/save.hpp"
#include "reports/utf8.hpp"
#include "tools/interrupt.hpp"
#include "tools/results.hpp"
#include "tools/terminal.hpp"
#include "tools/unused_flags.hpp"
#include "tools/validation_report.hpp"

namespace fathom {
namespace {

constexpr double kSeconds = 240, kSecondsQuick = 75;  // for all configurations
constexpr double kLeastSeconds = 0.5;                 // for one
constexpr double kShareAgain = 0.25;                  // of the time, for those that something disturbed

struct ValidateArgs {
  TimedFlags timed;
  OutputFlags output;
  bool quick = false;
  int set = kValidationSets;
  std::string dtype = "f32";
};

Machine without_shapes_of(Machine machine, const Workload& w) {
  std::erase_if(machine.gemm_curves, [&](const GemmCurve& c) {
    return std::any_of(w.ops().begin(), w.ops().end(), [&](const Op& op) {
      const auto* gemm = std::get_if<Gemm>(&op.spec);
      if (!gemm) return false;
      const ProductShape shape = product_shape(*gemm, static_cast<double>(gemm->rows.count));
      return same_product(c, *gemm, shape, 0, false) || same_product(c, *gemm, shape, 1e9, false) || same_product(c, *gemm, shape, 0, true);  // all code paths
    });
  });
  return machine;
}

class Validation {
 public:
  explicit Validation(const ValidateArgs& flags) : flags_(flags) {}

  int run() {
    check_output_flags(flags_.output);
    std::vector<RecordNote> doubts;
    run_.machine = resolve_machine(flags_.timed.on, flags_.output.quiet, &doubts);
    run_.set = flags_.set;
    run_.quick = flags_.quick;
    run_.backend = flags_.timed.backend;
    if (flags_.timed.backend == "cpu") check_isa(run_.machine);
    run_.record = new_record("validate");
    run_.record.notes = std::move(doubts);
    run_.dtype = parse_dtype(flags_.dtype);
    run_.options = predict_options(run_.machine, flags_.timed);
    run_.threads = flags_.timed.threads > 0 ? flags_.timed.threads : run_.machine.default_threads();
    prepare();
    run_.predicted_at = utc_now();
    save_predictions();
    catch_interrupts();
    measure();
    OtherForms forms;
    forms.asked = fmt::format("set {}{}, machine {}, dtype {}, {} thread{}, predictor {}, backend {}", run_.set, run_.quick ? " (quick)" : "", run_.machine.name, dtype_name(run_.dtype), run_.threads, run_.threads == 1 ? "" : "s",
                              predictor_name(run_.options.predictor), run_.backend);
    forms.environment = run_.record.environment;
    forms.ops = true;
    if (flags_.output.ops) forms.csv = [this] { return render_csv(validation_ops(run_), "\n"); };
    const int code = emit_document(validation_report(run_, flags_.output.ops), flags_.output, forms);
    return interrupted() ? 130 : code;
  }

 private:
  void prepare() {
    for (ValidationCase& source : validation_set(flags_.set, flags_.quick)) {
      GradedCase each;
      each.source = std::move(source);
      each.source.scenario.dtype = each.source.scenario.kv_dtype = each.source.scenario.grad_dtype = run_.dtype;
      try {
        each.timed = make_timed({Configuration{each.source.network, each.source.scenario, each.source.label}});
        for (const Op& op : each.timed[0].workload->ops())
          if (const Support support = backend(flags_.timed.backend).supports(op.spec); !support.ok) throw_input(support.reason);
      } catch (const Error& error) {
        each.timed.clear();
        run_.skipped.push_back(fmt::format("{}: {}", each.source.label, error.message()));
        run_.cases.push_back(std::move(each));
        continue;
      }
      predict_all(each.timed, run_.machine, flags_.timed, true);
      if (run_.options.predictor == PredictorKind::kCalibrated && run_.machine.kind == MachineKind::kCpu) {
        PredictOptions held = run_.options;
        held.bytes_between_ops = kReferenceBytes;
        const Machine without = without_shapes_of(run_.machine, *each.timed[0].workload);
        if (!without.gemm_curves.empty()) {
          each.held_out = predict(*each.timed[0].workload, without, held);
          if (const Placement otherwise = each.timed[0].raw_otherwise.placement; otherwise != Placement::kUnknown)
            each.held_out_otherwise = predict(*each.timed[0].workload, placed(without, otherwise), held);
        }
      }
      run_.cases.push_back(std::move(each));
    }
  }

  // What was predicted, on disk beside the first report before anything runs; the reports repeat the hash and both times.
  void save_predictions() {
    if (flags_.output.save.empty()) return;
    run_.predictions = flags_.output.save.front() + ".predicted.json";
    std::string text = fmt::format("{{\"predicted_at\": \"{}\", \"machine_hash\": \"{}\", \"predictor\": \"{}\", \"configurations\": [", run_.predicted_at, run_.machine.hash(), predictor_name(run_.options.predictor));
    bool first = true;
    for (const GradedCase& c : run_.cases) {
      if (c.timed.empty()) continue;
      text += fmt::format("{}\n  {{\"label\": \"{}\", \"fingerprint\": \"{}\", \"predicted_s\": {:.17g}, \"normalised_s\": {:.17g}", first ? "" : ",", c.source.label, c.timed[0].workload->fingerprint(),
                          c.timed[0].raw.seconds, c.timed[0].bracketed.seconds);
      // Cores with last caches of their own instead of one, or one instead of their own.
      if (const Timed& t = c.timed[0]; !t.raw_otherwise.workload.empty())
        text += fmt::format(", \"placed_otherwise\": {{\"predicted_s\": {:.17g}, \"normalised_s\": {:.17g}}}", t.raw_otherwise.seconds, t.bracketed_otherwise.seconds);
      text += "}";
      first = false;
    }
    save_file(run_.predictions, text + "\n]}\n");
    if (!flags_.output.quiet) tell(fmt::format("fathom: what is predicted is kept in {} before anything runs\n", printable(run_.predictions)));
  }

  // One after the other, as they were calibrated: interleaving would have them evict each other.
  void measure() {
    TimedFlags each = flags_.timed;
    each.shared_time = true;
    const double whole = flags_.timed.time > 0 ? flags_.timed.time : flags_.quick ? kSecondsQuick : kSeconds, begin = system_clock().now();
    std::vector<const Timed*> measured;
    auto left = static_cast<double>(run_.cases.size());
    for (GradedCase& c : run_.cases) {
      const double share = left--;
      if (c.timed.empty()) continue;
      // Of what is left, making ready included: a slow machine gets fewer samples, not a longer day.
      each.time = std::max(kLeastSeconds, (begin + (1 - kShareAgain) * whole - system_clock().now()) / share);
      if (interrupted()) {
        run_.skipped.push_back(c.source.label + ": interrupted");
        continue;
      }
      measure_all(c.timed, each, &run_.machine, flags_.output.quiet, run_.record);
      for (const Timed& one : c.timed) measured.push_back(&one);
    }
    // The worst first, while there is time; a number of rounds that was asked for is a time of its own.
    const auto noise = [](const GradedCase* c) { return c->timed[0].comparison.normalised.noise; };
    std::vector<GradedCase*> again;
    for (GradedCase& c : run_.cases)
      if (!c.timed.empty() && !c.timed[0].measurement.workload.empty() && too_noisy(c.timed[0].comparison.normalised.noise, CompareOptions{}.step_target)) again.push_back(&c);
    std::stable_sort(again.begin(), again.end(), [&](const GradedCase* a, const GradedCase* b) { return noise(a) > noise(b); });
    for (GradedCase* c : again) {
      if (interrupted() || (flags_.timed.rounds <= 0 && system_clock().now() > begin + whole)) break;
      measure_again(c->timed, each);
    }
    for (GradedCase& c : run_.cases)
      if (!c.held_out.workload.empty() && c.held_out.placement != c.timed[0].bracketed.placement) std::swap(c.held_out, c.held_out_otherwise);
    describe_environment(run_.record, measured, flags_.timed);
    Record named;
    for (const Timed* one : measured) {
      named.results.push_back(named_result(one->configuration.label, one->configuration.network, one->configuration.scenario));
      named.results.back().notes = one->notes;
    }
    for (const RecordNote& note : notes_of_results(named)) run_.record.notes.push_back(note);
    run_.measured_at = utc_now();
  }

  // Once, where the noise gate would drop a configuration: whatever disturbed it may be over. The quieter measurement stands, whatever its error.
  void measure_again(std::vector<Timed>& timed, const TimedFlags& flags) {
    Timed& t = timed[0];
    Measurement before = std::move(t.measurement);
    Comparison compared = std::move(t.comparison);
    ++run_.measured_again;
    t.measurement = {};
    t.notes.clear();
    measure_all(timed, flags, &run_.machine, flags_.output.quiet, run_.record);
    if (!t.measurement.workload.empty() && t.comparison.normalised.noise < compared.normalised.noise) return;
    t.measurement = std::move(before);
    t.comparison = std::move(compared);
    choose_placement(t);
  }

  const ValidateArgs& flags_;
  ValidationRun run_;
};

}  // namespace

void add_validate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ValidateArgs>();
  CLI::App* command = app.add_subcommand("validate", "how good this machine's predictions are, on a fixed set the calibration has not seen");
  command->add_flag("--quick", flags->quick, "a part of the set, in a little over a minute")->group("Validation");
  command->add_option("--set", flags->set, fmt::format("1, 2: the sets on which the models were made, 3: one that they had not seen [{}]", kValidationSets))->type_name("N")->check(CLI::Range(1, kValidationSets))->group("Validation");
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
