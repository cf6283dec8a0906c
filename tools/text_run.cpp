#include "tools/text_run.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "reports/save.hpp"
#include "tools/interrupt.hpp"
#include "tools/train_text.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kCurveRows = 20;

std::string key_of(size_t index, const char* key) { return index == 0 ? key : fmt::format("{}_{}", key, index + 1); }

void add_curve(Document& document, size_t index, const TextReport& report) {
  ReportTable table(key_of(index, "losses"), "Loss (mean of the steps since the row before)");
  table.add_column(ReportColumn{"step", "step", Unit::kCount, 0});
  table.add_column(ReportColumn{"loss", "nats per byte", Unit::kNone, 0});
  table.add_column(ReportColumn{"bits", "bits per byte", Unit::kNone, 0});
  const auto steps = static_cast<std::int64_t>(report.losses.size());
  std::int64_t from = 0;
  for (std::int64_t row = 1; row <= std::min(kCurveRows, steps); ++row) {
    const std::int64_t to = steps * row / std::min(kCurveRows, steps);
    double sum = 0;
    for (std::int64_t i = from; i < to; ++i) sum += report.losses[static_cast<size_t>(i)];
    const double mean = sum / static_cast<double>(to - from);
    table.add_row({Cell::count(static_cast<u128>(to)), Cell::number(mean), Cell::number(mean / std::numbers::ln2)});
    from = to;
  }
  document.add(std::move(table));
}

void add_predictors(Document& document, size_t index, const TextReport& report) {
  if (report.predictors.empty()) return;
  ReportTable table(key_of(index, "predictors"), "Predictors on the held-out end of the text");
  table.caption = "Always skipping has the accuracy 1 - selected; balanced accuracy is the mean over both classes, 0.5 without any knowledge.";
  table.add_column(ReportColumn{"layer", "block", Unit::kCount, 0});
  table.add_column(ReportColumn{"selected", "selected", Unit::kNone, 0});
  table.add_column(ReportColumn{"accuracy", "accuracy", Unit::kNone, 0});
  table.add_column(ReportColumn{"balanced_accuracy", "balanced accuracy", Unit::kNone, 0});
  for (const PredictorScore& score : report.predictors)
    table.add_row({Cell::count(static_cast<u128>(score.layer)), Cell::number(score.share()), Cell::number(score.accuracy()), Cell::number(score.balanced_accuracy())});
  document.add(std::move(table));
}

void add_participation(Document& document, size_t index, const TextReport& report) {
  if (report.participation.empty()) return;
  ReportTable table(key_of(index, "participation"), "Rows that the routed blocks took in training");
  table.add_column(ReportColumn{"layer", "block", Unit::kCount, 0});
  table.add_column(ReportColumn{"rows", "rows", Unit::kCount, 0});
  table.add_column(ReportColumn{"share", "share", Unit::kNone, 0});
  for (const Participation& block : report.participation)
    table.add_row({Cell::count(static_cast<u128>(block.layer)), Cell::count(static_cast<u128>(block.taken)), Cell::number(block.rate())});
  document.add(std::move(table));
}

}  // namespace

void add_text_flags(CLI::App& app, TextFlags& flags) {
  app.add_option("--corpus", flags.file, "train on the bytes of this file and show the loss (phase train)")->type_name("FILE")->group("Training on a text");
  app.add_option("--steps", flags.steps, "steps with --corpus [200]")->type_name("N")->group("Training on a text");
  app.add_option("--learning-rate", flags.learning_rate, "of AdamW, with --corpus [0.003]")->type_name("X")->group("Training on a text");
}

int run_text(const TextFlags& text, const ModelFlags& models, ScenarioFlags scenario, const TimedFlags& timed, const OutputFlags& output, std::vector<RecordNote> notes) {
  check_output_flags(output);
  if (text.steps < 1) throw_input(fmt::format("must be at least 1, not {}", text.steps), {"", 0, "--steps"});
  if (!(text.learning_rate >= 0) || std::isinf(text.learning_rate)) throw_input(fmt::format("must be a number from 0 on, not {}", text.learning_rate), {"", 0, "--learning-rate"});
  const std::string bytes = load_file(text.file);
  const Backend& runner = backend(timed.backend);
  if (scenario.phases.empty()) scenario.phases = {"train"};
  Document document;
  document.title = "Training on " + text.file;
  catch_interrupts();
  Progress progress(output.quiet);
  size_t index = 0;
  for (const Configuration& each : expand(models, scenario, false, notes)) {
    TextTraining training;
    training.network = each.network;
    training.scenario = each.scenario;
    training.text = bytes;
    training.steps = text.steps;
    training.learning_rate = text.learning_rate;
    training.threads = timed.threads;
    training.seed = timed.seed;
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    training.progress = [&](std::int64_t step) {
      progress.show(fmt::format("{}: step {} of {}", each.label, step + 1, text.steps), static_cast<double>(step) / static_cast<double>(text.steps), elapsed());
      return !interrupted();
    };
    const TextReport report = train_on_text(runner, training);
    progress.clear();
    document.heading(each.label);
    document.paragraph(fmt::format("{} bytes, the last {:.0f} % held out; {} steps of {} x {} bytes, routing {}, backend {}.", bytes.size(), 100 * training.held_out, report.losses.size(),
                                   each.scenario.batch, each.scenario.length, routing_name(each.scenario.rule()), timed.backend));
    KeyValues facts;
    const auto nats = [](double value) { return fmt::format("{:.3f} nats ({:.3f} bits) per byte", value, value / std::numbers::ln2); };
    facts.add_text("entropy of single bytes", nats(report.byte_entropy));
    const std::int64_t late = std::min<std::int64_t>(20, static_cast<std::int64_t>(report.losses.size()));
    facts.add_text(fmt::format("loss of the last {} steps", late), nats(report.late_loss(late)));
    facts.add_text("held-out loss", nats(report.held_out_loss));
    document.add(std::move(facts));
    add_curve(document, index, report);
    add_predictors(document, index, report);
    add_participation(document, index, report);
    ++index;
    if (report.stopped) break;
  }
  for (const RecordNote& note : notes) document.note(note.text);
  if (interrupted()) document.warning("Interrupted: the figures are those of the steps that ran.");
  const int code = emit_document(document, output);
  return interrupted() ? 130 : code;
}

}  // namespace fathom
