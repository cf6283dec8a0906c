// From a record to a report: what was asked, the result in one paragraph, tables, plots, notes, columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/record.hpp"
#include "reports/record_faster.hpp"
#include "reports/record_names.hpp"
#include "reports/record_notes.hpp"
#include "reports/record_plots.hpp"
#include "reports/record_sentences.hpp"
#include "reports/record_tables.hpp"
#include "reports/run_facts.hpp"

namespace fathom {
namespace {

// What a summary says of the run; noise, ceilings and reference times of the machine are for those who look closer (--ops, -v, pages).
const std::vector<std::string_view> kBriefly = {"predictor", "backend", "gpu", "threads", "stopped_by", "seconds_spent", "foreign_cpu"};

}  // namespace

std::string asked_text(const Record& record) {
  std::vector<Figures> scenarios;
  for (const Result& result : record.results) {
    Figures row = result.scenario;
    if (!result.machine.empty()) row.set("machine", Cell::text(result.machine));
    row.set("convention", Cell::text(result.convention));
    scenarios.push_back(std::move(row));
  }
  std::string text;
  for (const char* key : {"phase", "batch", "seq", "past", "prompt", "tokens", "temperature", "context", "dtype", "weight_dtype", "kv_dtype", "mask", "fusion", "expert_loads", "logits", "routing", "recompute", "threads", "backend", "machine", "convention"}) {
    std::vector<std::string> values;
    for (const Figures& row : scenarios)
      if (const Cell* cell = row.find(key))
        if (const std::string value = cell->exact() ? grouped(*cell->exact()) : exact_text(*cell); std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    if (values.empty()) continue;
    // More than four are the rows of the table.
    const std::string list = values.size() > 4 ? fmt::format("{} ... {} ({} values)", values.front(), values.back(), values.size()) : fmt::format("{}", fmt::join(values, " / "));
    const std::string name = std::string(key) == "phase" ? "" : std::string(key) + " ";
    text += (text.empty() ? "" : ", ") + name + list;
  }
  if (const Cell* predictor = record.environment.find("predictor"); predictor && predictor->words()) text += (text.empty() ? "predictor " : ", predictor ") + *predictor->words();
  return text;
}

void add_environment(KeyValues& list, const Figures& environment, const std::function<bool(const std::string&)>& wanted) {
  for (const auto& [key, cell] : environment.items())
    if (!wanted || wanted(key)) list.items.push_back(run_fact(key, cell));
}

namespace {

// Columns that were asked for and are in no table.
void note_missing_columns(Document& document, const ViewOptions& options) {
  std::string names;
  for (const std::string& key : options.columns) {
    bool shown = false;
    for (const ReportTable* table : tables_of(document))
      shown = shown || std::any_of(table->columns.begin(), table->columns.end(), [&](const ReportColumn& column) { return column.key == key; });
    if (!shown) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", key);
  }
  if (!names.empty()) document.skipped(fmt::format("nothing here has a figure for {}{}", names, options.ops ? "" : " (ops have more: --ops)"));
}

// "mod-60m, prefill, batch 8".
std::string op_list_name(const Result& result, std::vector<std::string> keys) {
  std::erase(keys, "phase");
  keys.insert(keys.begin(), "phase");
  std::string name = configuration_name({&result}, keys);
  std::erase(name, '`');
  return name;
}

void add_notes(Document& document, const std::vector<RecordNote>& notes) {
  for (const RecordNote& note : notes) document.add(Note{note.severity, note.text});
}

}  // namespace

Document view_record(const Record& record, const ViewOptions& options) {
  Document document;
  std::vector<std::string> models;
  for (const Result& result : record.results)
    if (std::find(models.begin(), models.end(), result.model) == models.end()) models.push_back(result.model);
  document.title = fmt::format("fathom {}: {}", record.command, models.size() > 6 ? fmt::format("{} models", models.size()) : fmt::format("{}", fmt::join(models, ", ")));
  if (const std::string asked = asked_text(record); !asked.empty()) document.paragraph("Asked: " + asked + ".");
  add_sentences(document, record);
  if (options.page)
    for (const std::string& sentence : faster_sentences(record)) document.paragraph(sentence + ".");
  add_result_tables(document, record, options);
  const bool timed = std::any_of(record.results.begin(), record.results.end(), [](const Result& r) { return r.totals.has("predicted_s") || r.totals.has("measured_s"); });
  if (options.ops && timed) {
    add_sum_tables(document, record);
    add_record_plots(document, record);
  } else if (std::any_of(record.results.begin(), record.results.end(), [](const Result& r) { return r.routing.complete; })) {
    add_record_routing(document, record);  // of a trace the map is the result
  }
  for (const Result& result : record.results) {
    if (options.ops && !result.ops.empty()) {
      document.heading("Ops of " + op_list_name(result, telling_apart(all_results(record))));
      add_op_tables(document, result, options);
    }
    if (options.ops && !result.parts.empty() && result.ops.empty()) document.add(make_table("parts", "Parts of " + result.model, result.parts, {"part"}, all_keys(result.parts)));
  }
  const auto add_run = [&](const std::string& title, const RecordSource& run) {
    const auto& [file, command, arguments, version, started, environment] = run;
    if (!environment.items().empty() || options.page) {
      KeyValues list;
      if (!version.empty()) list.add_text("made by", version);
      if (!started.empty()) list.add_text("started", started);
      const bool all = options.ops || options.page || options.full_summary;
      add_environment(list, environment, [&](const std::string& key) { return all || std::find(kBriefly.begin(), kBriefly.end(), key) != kBriefly.end(); });
      document.heading(title).add(std::move(list));
    }
    if (!arguments.empty()) document.heading("Reproduce", environment.items().empty() && !options.page ? 2 : 3).code("fathom " + arguments);
  };
  note_missing_columns(document, options);
  const std::vector<RecordNote> notes = notes_of_results(record);
  if (!(record.notes.empty() && notes.empty()) && (options.page || (options.ops && timed))) document.heading("Notes");
  add_notes(document, notes);
  add_notes(document, record.notes);
  if (record.sources.empty()) add_run(kMachineAndRun, {"", record.command, record.arguments, record.version, record.started, record.environment});
  for (const RecordSource& source : record.sources) add_run(fmt::format("{}: {}", kMachineAndRun, source.file), source);
  if (options.glossary) document.glossary();
  // On a terminal what is read first stands last.
  if (!options.page)
    for (const std::string& sentence : faster_sentences(record)) document.paragraph(sentence + ".");
  return document;
}

}  // namespace fathom
