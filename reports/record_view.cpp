// From a record to a report: what was asked, the result in one paragraph, tables, plots, notes, columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/record.hpp"
#include "reports/record_plots.hpp"
#include "reports/record_tables.hpp"

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
  for (const char* key : {"phase", "batch", "seq", "past", "prompt", "tokens", "context", "dtype", "weight_dtype", "kv_dtype", "mask", "fusion", "expert_loads", "logits", "routing", "recompute", "threads", "backend", "machine", "convention"}) {
    std::vector<std::string> values;
    for (const Figures& row : scenarios)
      if (const Cell* cell = row.find(key))
        if (const std::string value = cell->exact() ? grouped(*cell->exact()) : exact_text(*cell); std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    if (values.empty() || values.size() > 4) continue;  // more than four are the rows of the table
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : " / ") + value;
    const std::string name = std::string(key) == "phase" ? "" : std::string(key) + " ";
    text += (text.empty() ? "" : ", ") + name + list;
  }
  if (const Cell* predictor = record.environment.find("predictor"); predictor && predictor->words()) text += (text.empty() ? "predictor " : ", predictor ") + *predictor->words();
  return text;
}

void add_environment(KeyValues& list, const Figures& environment, const std::function<bool(const std::string&)>& wanted) {
  for (const auto& [key, cell] : environment.items()) {
    if (wanted && !wanted(key)) continue;
    // The names of facts end in their unit; processor time that others took is in cores.
    const bool cores = cell.is_number() && (key == "foreign_cpu" || key == "steal");
    const Unit unit = key.ends_with("_flops_per_s") ? Unit::kFlopRate : key.ends_with("_bytes") ? Unit::kBytes : Unit::kNone;
    list.items.push_back({"", key, cores ? Cell::text(significant(cell.value(), 4) + " cores") : cell, cell.is_number() ? unit : Unit::kText, ""});
  }
}

namespace {

std::string percent(double fraction) { return format_value(fraction, Unit::kPercent, 3); }

// What of the scenario tells the results of a record apart: keys of varying() without the model.
std::vector<std::string> telling_apart(const std::vector<const Result*>& results) {
  std::vector<Figures> rows;
  for (const Result* result : results) rows.push_back(identified(*result, {}));
  std::vector<std::string> keys = varying(rows);
  std::erase(keys, "model");
  return keys;
}

std::vector<const Result*> pointers(const Record& record) {
  std::vector<const Result*> results;
  for (const Result& result : record.results) results.push_back(&result);
  return results;
}

// "`mod-60m`, batch 8"; several results that say the same: "`mod-60m`, batch 1 / 8". More than four values are a first and a last one.
std::string name_of(const std::vector<const Result*>& results, const std::vector<std::string>& keys) {
  std::string text = fmt::format("`{}`", results.front()->model);
  for (const std::string& key : keys) {
    std::vector<std::string> values;
    bool words = false;
    for (const Result* result : results) {
      const Figures row = identified(*result, {});
      const Cell* cell = row.find(key);
      if (!cell) continue;
      words = cell->words() != nullptr;
      const std::string value = cell->exact() ? grouped(*cell->exact()) : exact_text(*cell);
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    if (values.empty()) continue;
    const std::string list = values.size() > 4 ? fmt::format("{} ... {}", values.front(), values.back()) : fmt::format("{}", fmt::join(values, " / "));
    text += fmt::format(", {}{}", words ? "" : key + " ", list);
  }
  return text;
}

// The result in one sentence, for a MoD result that knows its dense twin; empty for others.
std::string pair_sentence(const Result& result) {
  const double flops = result.totals.number("flops_ratio");
  if (std::isnan(flops)) return {};
  std::string text = fmt::format("needs {} of the FLOPs of its dense twin", significant(flops, 4));
  const double predicted = result.totals.number("predicted_ratio");
  const double measured = result.totals.number("measured_ratio");
  if (!std::isnan(predicted)) text += fmt::format("; predicted time ratio {}", significant(predicted, 4));
  const double noise = result.totals.number("ratio_noise");
  if (!std::isnan(measured)) text += fmt::format("; measured time ratio {}", significant(measured, 4));
  if (!std::isnan(measured) && noise >= 0.001) text += fmt::format(" ± {}", significant(measured * noise, 2));
  const Cell realised = realised_cell(result.totals);
  const double unsure = realised_noise(result.totals);
  if (realised.missing() && realised.missing()->reason == kTooNoisy)
    text += ". The noise of that ratio is too large to say how much of the FLOPs saved became time saved";
  else if (realised.is_number())
    text += fmt::format(". Of the FLOPs saved, {}{} became time saved", percent(realised.value()),
                        unsure > 0 ? fmt::format(" (± {} points)", significant(100 * unsure, 2)) : "");
  else if (realised.missing() && !realised.missing()->reason.empty())
    text += fmt::format(". Realised fraction: {}", realised.missing()->reason);
  return text + ".";
}

void add_pair_paragraphs(Document& document, const Record& record) {
  struct Said {
    std::vector<const Result*> of;
    std::string sentence;
  };
  std::vector<Said> all;
  std::vector<const Result*> results;
  for (const Result& result : record.results) {
    const std::string sentence = pair_sentence(result);
    if (sentence.empty()) continue;
    results.push_back(&result);
    if (!all.empty() && all.back().sentence == sentence && all.back().of.front()->model == result.model)
      all.back().of.push_back(&result);  // a list of batch sizes may say the same over and over
    else
      all.push_back({{&result}, sentence});
  }
  const std::vector<std::string> keys = telling_apart(results);
  for (const Said& said : all) {
    const auto same_model = std::count_if(results.begin(), results.end(), [&](const Result* each) { return each->model == said.of.front()->model; });
    const bool whole = static_cast<std::ptrdiff_t>(said.of.size()) == same_model;  // it holds for the model as it was asked for
    const std::string name = name_of(said.of, whole ? std::vector<std::string>() : keys);
    document.paragraph(fmt::format("{}{} {}", name, name == name_of(said.of, {}) ? "" : ":", said.sentence));
  }
}

void add_error_paragraph(Document& document, const Record& record) {
  std::string text;
  const std::vector<std::string> keys = telling_apart(pointers(record));
  for (const Result& result : record.results) {
    const double predicted = result.totals.number("predicted_s");
    const double measured = result.totals.number("measured_s");
    if (std::isnan(predicted) || std::isnan(measured)) continue;
    const double spread = result.totals.number("spread");
    text += fmt::format("{}{}: predicted {}, measured {} (error {}{})", text.empty() ? "" : "; ", name_of({&result}, keys), format_value(predicted, Unit::kSeconds), format_value(measured, Unit::kSeconds),
                        format_value(predicted / measured - 1, Unit::kSignedPercent, 3), spread > 0 ? fmt::format(", spread {}", format_value(spread, Unit::kPercent, 2)) : "");
  }
  if (!text.empty()) document.paragraph(text + ".");
}

// A run that nothing was predicted for: what was measured, and how well it is known.
void add_measured_paragraph(Document& document, const Record& record) {
  std::string text;
  for (const Result& result : record.results) {
    const double measured = result.totals.number("measured_s"), spread = result.totals.number("spread"), rate = result.totals.number("tokens_per_s");
    if (std::isnan(measured) || !std::isnan(result.totals.number("predicted_s"))) continue;
    text += fmt::format("{}`{}`: measured {}", text.empty() ? "" : "; ", result.model, format_value(measured, Unit::kSeconds));
    if (!std::isnan(spread)) text += ", spread " + format_value(spread, Unit::kPercent, 2);
    if (const Cell* samples = result.totals.find("samples"); samples && samples->is_number()) text += fmt::format(", {} samples", format_cell(*samples, Unit::kCount));
    if (!std::isnan(rate)) text += ", " + format_value(rate, Unit::kTokenRate, 3);
  }
  if (!text.empty()) document.paragraph(text + ".");
}

// Two models that are no twins: ratios, and no word of FLOPs that were saved.
void add_relative_paragraph(Document& document, const Result& result, const std::vector<std::string>& keys) {
  const Cell* to = result.totals.find("relative_to");
  if (!to || !to->words()) return;
  std::string text;
  const auto add = [&](const char* key, const char* what) {
    const double ratio = result.totals.number(key), noise = result.totals.number("relative_noise");
    if (std::isnan(ratio)) return;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", significant(ratio, 4));
    if (std::string_view(key) == "relative_measured" && noise >= 0.001) text += fmt::format(" ± {}", significant(ratio * noise, 2));
    text += fmt::format(" times {}", what);
  };
  add("relative_flops", "the FLOPs");
  add("relative_predicted", "the predicted time");
  add("relative_measured", "the measured time");
  if (!text.empty()) document.paragraph(fmt::format("{} against `{}`: {}.", name_of({&result}, keys), *to->words(), text));
}

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

void add_notes(Document& document, const std::vector<RecordNote>& notes) {
  for (const RecordNote& note : notes) document.add(Note{note.severity, note.text});
}

}  // namespace

Document view_record(const Record& record, const ViewOptions& options) {
  Document document;
  std::vector<std::string> models;
  for (const Result& result : record.results)
    if (std::find(models.begin(), models.end(), result.model) == models.end()) models.push_back(result.model);
  document.title = fmt::format("fathom {}: {}", record.command, fmt::join(models, ", "));
  if (const std::string asked = asked_text(record); !asked.empty()) document.paragraph("Asked: " + asked + ".");
  add_error_paragraph(document, record);
  add_measured_paragraph(document, record);
  add_pair_paragraphs(document, record);
  const std::vector<std::string> keys = telling_apart(pointers(record));
  for (const Result& result : record.results) add_relative_paragraph(document, result, keys);
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
      document.heading(fmt::format("Ops of {}{}", result.model, result.scenario.find("phase") && result.scenario.find("phase")->words() ? ", " + *result.scenario.find("phase")->words() : ""));
      add_op_tables(document, result, options);
    }
    if (options.ops && !result.parts.empty() && result.ops.empty()) document.add(make_table("parts", "Parts of " + result.model, result.parts, {"part"}, all_keys(result.parts)));
    add_notes(document, result.notes);
  }
  const auto add_run = [&](const std::string& title, const RecordSource& run) {
    const auto& [file, command, arguments, version, started, environment] = run;
    if (!environment.items().empty()) {
      KeyValues list;
      if (!version.empty()) list.add_text("made by", version);
      if (!started.empty()) list.add_text("started", started);
      const bool all = options.ops || options.page || options.full_summary;
      add_environment(list, environment, [&](const std::string& key) { return all || std::find(kBriefly.begin(), kBriefly.end(), key) != kBriefly.end(); });
      document.heading(title).add(std::move(list));
    }
    if (!arguments.empty()) document.heading("Reproduce", environment.items().empty() ? 2 : 3).code("fathom " + arguments);
  };
  note_missing_columns(document, options);
  if (!record.notes.empty() && options.ops && timed) document.heading("Notes");
  add_notes(document, record.notes);
  if (record.sources.empty()) add_run("Machine and run", {"", record.command, record.arguments, record.version, record.started, record.environment});
  for (const RecordSource& source : record.sources) add_run(fmt::format("{}: machine and run", source.file), source);
  if (options.glossary) document.glossary();
  return document;
}

}  // namespace fathom
