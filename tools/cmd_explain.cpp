// fathom explain: formula and inputs of an op kind, a column, or an op of a model.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "lib/compare.hpp"
#include "lib/error.hpp"
#include "lib/explain.hpp"
#include "models/builder.hpp"
#include "models/network_ini.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/terms.hpp"
#include "tools/cli.hpp"
#include "tools/gpu_table.hpp"
#include "tools/convention.hpp"
#include "tools/explain_names.hpp"
#include "tools/explain_topics.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

struct ExplainArgs {
  std::string topic;
  std::string on;
  bool sustained = false;
  ModelFlags model;
  ScenarioFlags scenario;
  RunFlags run;
  std::string convention;
  OutputFlags output;
};

void explain_kind_into(Document& document, const KindExplanation& kind) {
  document.title = std::string(kind.kind);
  document.paragraph(std::string(kind.what));
  KeyValues list;
  list.add_text("FLOP", std::string(kind.flops));
  list.add_text("elements", std::string(kind.elements));
  list.add_text("bytes", std::string(kind.bytes));
  list.add_text("source", std::string(kind.source));
  document.add(std::move(list));
}

// An op of a model: `fathom explain mlp/up gpt2-124m`.
bool explain_op_into(Document& document, const Workload& workload, const std::string& topic, const std::string& model) {
  bool found = false;
  for (size_t i = 0; i < workload.ops().size(); ++i) {
    const Op& op = workload.ops()[i];
    const std::string path = workload.path(static_cast<int>(i));
    const bool named = path == topic || op.leaf == topic || path.find("/" + topic) != std::string::npos;
    if (!named && kind_name(op.spec) != topic && part_name(op.part) != topic) continue;
    found = true;
    const KindExplanation& kind = explain_kind(kind_name(op.spec));
    if (document.title.empty()) document.title = fmt::format("{} in {}", topic, model);
    document.heading(path);
    document.paragraph(std::string(kind.what));
    const Cost cost = declared_cost(op);
    KeyValues list;
    list.add_text("kind", std::string(kind.kind));
    list.add_text("FLOP", std::string(kind.flops));
    list.add_text("with numbers", flops_with_numbers(op.spec));
    if (const std::string pairs = pairs_with_numbers(op.spec); !pairs.empty()) list.add_text("pairs", pairs);
    list.add_text("uses", fmt::format("{} per step, {} FLOP together", workload.uses(static_cast<int>(i)), grouped(checked_mul(cost.flops.value(), static_cast<u128>(workload.uses(static_cast<int>(i)))))));
    list.add_text("bytes", fmt::format("{} read, {} written ({})", grouped(cost.read.value()), grouped(cost.written.value()), kind.bytes));
    for (const auto& [name, value] : fields_of(op.spec))
      if (name != "pairs") list.add_text(name, value);
    list.add_text("source", std::string(kind.source));
    document.add(std::move(list));
  }
  return found;
}

// A column by its key, its heading, or a verdict (noisy, slow, ...) as a table has it.
const Column* topic_column(const std::string& topic) {
  if (const Column* column = find_heading(topic)) return column;
  for (int i = 0; i <= static_cast<int>(Verdict::kSkipped); ++i)
    if (verdict_name(static_cast<Verdict>(i)) == topic) return find_column("verdict");
  return nullptr;
}

// What is explained of several configurations: the first, and that is said.
Configuration first_of(const ModelFlags& model, const ExplainArgs& flags, std::vector<RecordNote>& notes) {
  std::vector<Configuration> all = expand(model, flags.scenario, false, notes);
  if (all.size() > 1) {
    const Scenario& s = all.front().scenario;
    notes.push_back({Note::Severity::kNote, fmt::format("one configuration is explained: {}, {}, batch {}, {} {}; the {} others that the lists name are not", all.front().label, phase_name(s.phase), s.batch,
                                                        s.phase == Phase::kDecode ? "context" : "seq", s.phase == Phase::kDecode ? s.context : s.length, all.size() - 1)});
  }
  return std::move(all.front());
}

// explain convention [NAME [MODEL]]: the words after the topic are a preset and a model.
struct ConventionPage {
  Document page;
  std::optional<Document> data{};  // with figures as numbers
};
ConventionPage convention_page(const ExplainArgs& flags, std::vector<RecordNote>& notes) {
  if (flags.model.models.empty()) return {explain_conventions()};
  const std::string& name = flags.model.models.front();
  if (flags.model.models.size() == 1) return {explain_convention(name)};
  if (flags.model.models.size() > 2) throw Error(ErrorKind::kUsage, "explain convention takes one name and one model", {}, "fathom explain convention NAME MODEL");
  ModelFlags model = flags.model;
  model.models = {flags.model.models.back()};
  const Configuration first = first_of(model, flags, notes);
  const auto made = [&](FigureStyle style) { return explain_convention(name, first.network, first.scenario.length, style); };
  return {made(FigureStyle::kPeople), made(FigureStyle::kData)};
}

// Options of a model, a scenario or a machine that this topic does not read.
void note_unread_explain(const CLI::App& command, const ExplainArgs& flags, bool kernel, std::vector<RecordNote>& notes) {
  if (kernel) {
    note_all_but(command, {"--on", "--sustained"}, "the sizes of one kernel are all that is read", notes);
  } else if (flags.model.models.empty() || (flags.topic == "convention" && flags.model.models.size() < 2)) {
    note_all_but(command, {}, "no MODEL is named", notes);
  } else if (flags.topic == "convention") {
    note_all_but(command, {"--mod-every", "--capacity", "--slots", "--rounding", "--gate", "--mtp", "--expert-skew", "--expert-loads", "--strict", "--seq"}, "a convention is compared by a token of a forward pass over whole sequences", notes);
  } else {
    note_unused(command, {"--on", "--sustained"}, "only shapes are predicted: explain gemm MxNxK", notes);
    const Column* column = topic_column(flags.topic);
    if (!column || !of_a_run(*column)) note_unused(command, {"--run-tokens", "--step-time", "--peak", "--devices"}, "only mfu, hfu, run_flops and run_steps follow from it", notes);
    if (!column || !of_a_convention(*column)) note_unused(command, {"--convention"}, "only mfu and convention_flops follow from it; every other figure is that of the op list", notes);
  }
}

int run_explain(const CLI::App& command, const ExplainArgs& flags) {
  check_output_flags(flags.output);
  check_run_flags(flags.run);
  std::vector<RecordNote> notes;
  if (flags.topic == "convention") {
    const ConventionPage made = convention_page(flags, notes);
    note_unread_explain(command, flags, false, notes);
    tell_notes(notes, flags.output.quiet);
    OtherForms forms;
    if (made.data) forms.data = &*made.data;
    return emit_document(made.page, flags.output, forms);
  }
  Document document;
  const bool kernel = flags.topic == "gemm" || flags.topic == "attention_prefill" || flags.topic == "attention_decode";
  const bool shape = kernel && flags.model.models.size() == 1 && explain_kernel_into(document, flags.topic, flags.model.models.front(), flags.on, flags.sustained);
  note_unread_explain(command, flags, shape, notes);
  std::optional<Configuration> configuration;
  if (!shape && !flags.model.models.empty()) configuration = first_of(flags.model, flags, notes);
  tell_notes(notes, flags.output.quiet);
  if (shape) return emit_document(document, flags.output);
  if (configuration) {
    const Configuration& first = *configuration;
    if (flags.topic == "total") {
      explain_total_into(document, first);
      return emit_document(document, flags.output);
    }
    // A column of counts, unless the model has an op or kind of that name.
    const Column* column = topic_column(flags.topic);
    if (column && first.scenario.phase == Phase::kGenerate) {
      explain_column_into(document, *column, first, flags.run, flags.convention);
      return emit_document(document, flags.output);
    }
    const Workload workload = build(first.network, first.scenario);
    if (column && !explain_op_into(document, workload, flags.topic, first.label)) {
      explain_column_into(document, *column, first, flags.run, flags.convention);
      return emit_document(document, flags.output);
    }
    const auto& kinds = kind_explanations();
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const KindExplanation& each) { return each.kind == flags.topic; });
    const bool named = !column && explain_op_into(document, workload, flags.topic, first.label);
    if (!column && !named && kind != kinds.end()) {
      explain_kind_into(document, *kind);
      document.skipped(fmt::format("{} has no such op in {}", first.label, phase_name(first.scenario.phase)));
      return emit_document(document, flags.output);
    }
    if (!column && !named) {
      std::vector<std::string> names = {"total"};
      for (const Op& op : workload.ops()) names.push_back(op.leaf);
      throw_input(fmt::format("'{}' is no op or column of {}", flags.topic, first.label), {"", 0, "explain"}, name_hint(flags.topic, names));
    }
  } else if (flags.topic == "total") {
    explain_total_into(document);
  } else if (flags.topic == "exit-codes") {
    explain_exit_codes_into(document);
  } else if (flags.topic == "defaults") {
    explain_defaults_into(document);
  } else if (flags.topic == "ini") {
    document.title = "INI keys of network files";
    ReportTable table("ini", "");
    table.add_column(ReportColumn{"section", "section", Unit::kText, 0});
    table.add_column(ReportColumn{"key", "key", Unit::kText, 0});
    table.add_column(ReportColumn{"value", "value", Unit::kText, 1});
    table.add_column(ReportColumn{"meaning", "meaning", Unit::kText, 0});
    for (const IniKeyDoc& key : ini_glossary())
      table.add_row({Cell::text(key.section), Cell::text(key.key), Cell::text(key.standard.empty() ? key.values : key.values + " [" + key.standard + "]"), Cell::text(key.meaning)});
    document.add(std::move(table));
    explain_no_keys_into(document);
  } else {
    std::vector<std::string> names;
    bool found = false;
    for (const KindExplanation& kind : kind_explanations()) {
      names.emplace_back(kind.kind);
      if (kind.kind == flags.topic) {
        explain_kind_into(document, kind);
        found = true;
      }
    }
    for (const Column& column : all_columns()) names.emplace_back(column.key);
    for (const ReportTerm& term : all_terms()) names.emplace_back(title_of(term));
    for (const char* topic : {"total", "convention", "ini", "exit-codes", "defaults"}) names.emplace_back(topic);
    const Column* column = found ? nullptr : topic_column(flags.topic);
    const bool listed = !found && !column && (explain_name_into(document, flags.topic) || explain_term_into(document, flags.topic));
    if (!found && !column && !listed && flags.topic.find('.') != std::string::npos) column = &lookup_column(flags.topic);
    if (column) {
      explain_column_into(document, *column);
    } else if (listed) {
      found = true;
    } else if (!found) {
      throw_input(fmt::format("nothing is called '{}'", flags.topic), {"", 0, "explain"}, name_hint(flags.topic, names));
    }
  }
  return emit_document(document, flags.output);
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ExplainArgs>();
  CLI::App* command = app.add_subcommand("explain", "formula, inputs and source of an op, column, total, convention; INI keys, exit codes");
  command->add_option("TOPIC", flags->topic, "op kind, column, heading, other word of a report, 'total', 'ini', 'exit-codes', 'defaults', 'convention' [NAME [MODEL]], any name of fathom list; with MODEL its value, or an op such as mlp/up")->required();
  add_model_flags(*command, flags->model);
  command->get_option("MODEL")->required(false);
  command->add_option("--on", flags->on, "GPU for `explain gemm MxNxK` and `explain attention_decode BxLxHxKxD` [h200]")->type_name("MACHINE")->group("Machine");
  command->add_flag("--sustained", flags->sustained, "`explain gemm`: at sustained clocks")->group("Machine");
  add_scenario_flags(*command, flags->scenario);
  add_counted_flags(*command, flags->scenario);
  add_run_flags(*command, flags->run);
  add_convention_flag(*command, flags->convention);
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom explain realised\n  fathom explain attn/core llama-3-8b --seq 4096\n  fathom explain convention palm llama-3-8b");
  command->callback([flags, command, &exit_code] { exit_code = run_explain(*command, *flags); });
}

}  // namespace fathom
