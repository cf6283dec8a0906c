// fathom explain: formula and inputs of an op kind, a column, or an op of a model.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "lib/compare.hpp"
#include "lib/error.hpp"
#include "lib/explain.hpp"
#include "models/builder.hpp"
#include "models/network_ini.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "tools/cli.hpp"
#include "tools/gpu_table.hpp"
#include "tools/convention.hpp"
#include "tools/explain_topics.hpp"

namespace fathom {
namespace {

struct ExplainArgs {
  std::string topic;
  std::string on;
  bool sustained = false;
  ModelFlags model;
  ScenarioFlags scenario;
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
    list.add_text("uses", fmt::format("{} per step, {} FLOP together", workload.uses(static_cast<int>(i)), grouped(checked_mul(cost.flops.value(), static_cast<u128>(workload.uses(static_cast<int>(i)))))));
    list.add_text("bytes", fmt::format("{} read, {} written ({})", grouped(cost.read.value()), grouped(cost.written.value()), kind.bytes));
    for (const auto& [name, value] : fields_of(op.spec)) list.add_text(name, value);
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

// explain convention [NAME [MODEL]]: the words after the topic are a preset and a model.
Document convention_document(const ExplainArgs& flags) {
  if (flags.model.models.empty()) return explain_conventions();
  const std::string& name = flags.model.models.front();
  if (flags.model.models.size() == 1) return explain_convention(name);
  if (flags.model.models.size() > 2) throw Error(ErrorKind::kUsage, "explain convention takes one name and one model", {}, "fathom explain convention NAME MODEL");
  ModelFlags model = flags.model;
  model.models = {flags.model.models.back()};
  std::vector<RecordNote> notes;
  const std::vector<Configuration> configurations = expand(model, flags.scenario, false, notes);
  return explain_convention(name, configurations.front().network, configurations.front().scenario.length);
}

int run_explain(const ExplainArgs& flags) {
  check_output_flags(flags.output);
  if (flags.topic == "convention") return emit_document(convention_document(flags), flags.output);
  Document document;
  const bool kernel = flags.topic == "gemm" || flags.topic == "attention_prefill" || flags.topic == "attention_decode";
  if (kernel && flags.model.models.size() == 1 && explain_kernel_into(document, flags.topic, flags.model.models.front(), flags.on, flags.sustained))
    return emit_document(document, flags.output);
  if (!flags.model.models.empty()) {
    std::vector<RecordNote> notes;
    const std::vector<Configuration> configurations = expand(flags.model, flags.scenario, false, notes);
    const Configuration& first = configurations.front();
    if (flags.topic == "total") {
      explain_total_into(document, first);
      return emit_document(document, flags.output);
    }
    // A column of counts, unless the model has an op or kind of that name.
    const Column* column = topic_column(flags.topic);
    if (column && first.scenario.phase == Phase::kGenerate) {
      explain_column_into(document, *column, first);
      return emit_document(document, flags.output);
    }
    const Workload workload = build(first.network, first.scenario);
    if (column && !explain_op_into(document, workload, flags.topic, first.label)) {
      explain_column_into(document, *column, first);
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
    for (const char* topic : {"total", "convention", "ini", "exit-codes"}) names.emplace_back(topic);
    const Column* column = found ? nullptr : topic_column(flags.topic);
    const bool listed = !found && !column && explain_name_into(document, flags.topic);
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
  command->add_option("TOPIC", flags->topic, "op kind, column, 'total', 'ini', 'exit-codes', 'convention' [NAME [MODEL]], any name of fathom list; with MODEL its value, or an op such as mlp/up")->required();
  add_model_flags(*command, flags->model);
  command->get_option("MODEL")->required(false);
  command->add_option("--on", flags->on, "GPU for `explain gemm MxNxK` and `explain attention_decode BxLxHxKxD` [h200]")->type_name("MACHINE")->group("Machine");
  command->add_flag("--sustained", flags->sustained, "`explain gemm`: at sustained clocks")->group("Machine");
  add_scenario_flags(*command, flags->scenario);
  add_counted_flags(*command, flags->scenario);
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom explain realised\n  fathom explain attn/core llama-3-8b --seq 4096\n  fathom explain convention palm llama-3-8b");
  command->callback([flags, &exit_code] { exit_code = run_explain(*flags); });
}

}  // namespace fathom
