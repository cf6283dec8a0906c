// From a record to a report: what was asked, the result in one paragraph, tables, plots, notes, columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/record.hpp"
#include "reports/record_plots.hpp"

namespace fathom {
namespace {

// Columns present in any row, in glossary order for figures; `lead` first.
ReportTable make_table(std::string key, std::string title, const std::vector<Figures>& rows, const std::vector<std::string>& lead,
                       const std::vector<std::string>& wanted) {
  ReportTable table(std::move(key), std::move(title));
  std::vector<std::string> keys;
  const auto present = [&](const std::string& name) {
    return std::any_of(rows.begin(), rows.end(), [&](const Figures& row) { return row.has(name) && !row.find(name)->empty(); });
  };
  for (const auto* list : {&lead, &wanted})
    for (const std::string& name : *list)
      if (present(name) && std::find(keys.begin(), keys.end(), name) == keys.end() && find_column(name)) keys.push_back(name);
  for (const std::string& name : keys) table.add_column(name);
  for (const Figures& row : rows) {
    std::vector<Cell> cells;
    for (const std::string& name : keys) {
      const Cell* cell = row.find(name);
      cells.push_back(cell ? *cell : Cell());
    }
    table.add_row(std::move(cells));
  }
  return table;
}

std::vector<std::string> all_keys(const std::vector<Figures>& rows) {
  std::vector<std::string> keys;
  for (const Figures& row : rows)
    for (const auto& [name, cell] : row.items())
      if (std::find(keys.begin(), keys.end(), name) == keys.end()) keys.push_back(name);
  return keys;
}

const std::vector<std::string> kIdentity = {"model", "record", "phase", "batch", "seq", "context", "dtype", "weight_dtype", "kv_dtype", "mask", "fusion", "threads", "backend", "routing", "machine"};

// The identifying columns that tell rows apart; what all rows share is said once, in the paragraph of what was asked.
std::vector<std::string> varying(const std::vector<Figures>& rows) {
  std::vector<std::string> keys = {"model"};
  for (std::size_t k = 1; k < kIdentity.size(); ++k) {
    std::string first;
    for (const Figures& row : rows) {
      const Cell* cell = row.find(kIdentity[k]);
      const std::string text = cell ? exact_text(*cell) : std::string();
      if (text.empty() || text == first) continue;
      if (!first.empty()) {
        keys.push_back(kIdentity[k]);
        break;
      }
      first = text;
    }
  }
  return keys;
}

void add_asked(Document& document, const Record& record) {
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
    text += (text.empty() ? "Asked: " : ", ") + name + list;
  }
  if (const Cell* predictor = record.environment.find("predictor"); predictor && predictor->words()) text += ", predictor " + *predictor->words();
  if (!text.empty()) document.paragraph(text + ".");
}

Figures identified(const Result& result, const Figures& figures) {
  Figures row;
  row.set("model", Cell::text(result.model));
  for (const std::string& key : kIdentity)
    if (const Cell* cell = result.scenario.find(key)) row.set(key, *cell);
  if (!result.machine.empty()) row.set("machine", Cell::text(result.machine));
  for (const auto& [key, cell] : figures.items()) row.set(key, cell);
  return row;
}

std::vector<Figures> result_rows(const Record& record) {
  std::vector<Figures> rows;
  for (const Result& result : record.results) {
    rows.push_back(identified(result, result.totals));
    if (result.convention == "exact") continue;
    rows.back().set("convention", Cell::text(result.convention));
    rows.back().set("convention_flops", result.convention_flops);
  }
  return rows;
}

// What a summary is read for, in this order. Times and counts are two tables; a count has only the second.
const std::vector<std::string> kTimeKeys = {"predicted_s", "predicted_lo_s", "predicted_hi_s", "measured_s", "error", "verdict", "devices", "device_bytes", "communication_s", "bubble_s", "concurrency",
                                            "served_tokens_per_s", "served_s", "served_p99_s", "normalised_s", "spread", "noise", "samples",
                                            "p50_s", "p95_s", "p99_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s", "predicted_ttft_s", "ttft_s", "predicted_tpot_s", "tpot_s", "participation", "tokens_per_s", "predicted_tokens_per_s",
                                            "achieved_flops_per_s", "peak_fraction"};
const std::vector<std::string> kCountKeys = {"flops_matmul", "flops_expected", "flops_executed", "convention_flops", "params_total", "params_active", "elements_vector", "bytes_read", "bytes_read_expected",
                                             "bytes_written", "kv_bytes", "kv_bytes_per_token", "weight_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "peak_bytes", "run_steps", "run_flops", "mfu", "hfu"};

// What counters and tracing say, beside what the counts need.
const std::vector<std::string> kProfileKeys = {"rung", "kernels", "kernel_s", "kernel_error", "needed_flops", "counter_flops", "counter_flops_ratio", "needed_bytes", "dram_bytes_read", "dram_bytes_written",
                                               "dram_ratio", "dram_bytes_per_s", "l2_bytes", "copy_bytes", "counter_s", "sm_cycles", "profile_status"};
const std::vector<std::string> kProfileTotalKeys = {"rung", "kernels", "measured_s", "kernel_s", "device_busy_s", "traced_s", "profile_overhead", "counter_flops_ratio", "dram_ratio", "dram_bytes_per_s",
                                                    "device_span_s", "needed_flops", "counter_flops", "needed_bytes", "dram_bytes_read", "dram_bytes_written", "l2_bytes", "sm_clock_hz", "rung_reason"};

std::vector<std::string> without(std::vector<std::string> keys, const std::vector<std::string>& others) {
  std::erase_if(keys, [&](const std::string& key) { return std::find(others.begin(), others.end(), key) != others.end(); });
  return keys;
}

void add_summary(Document& document, const std::vector<Figures>& rows, bool timed, const ViewOptions& options) {
  if (timed) {
    std::vector<std::string> keys = kTimeKeys;
    for (const std::string& key : without(all_keys(rows), kProfileTotalKeys))
      if (options.full_summary && std::find(kCountKeys.begin(), kCountKeys.end(), key) == kCountKeys.end()) keys.push_back(key);
    document.add(make_table("results", "Configurations", rows, varying(rows), keys));
  }
  if (!timed || options.ops || options.full_summary)
    document.add(make_table("counts", timed ? "Counts and memory" : "Configurations", rows, varying(rows), kCountKeys));
}

// FLOPs, predicted time and measured time against the dense twin, and the realised fraction: the question behind a routed model.
void add_pair_table(Document& document, const Record& record) {
  std::vector<Figures> rows;
  for (const Result& result : record.results)
    if (result.totals.has("flops_ratio")) rows.push_back(identified(result, result.totals));
  if (rows.empty()) return;
  document.add(make_table("pairs", "Against the dense twin", rows, varying(rows), {"flops_ratio", "predicted_ratio", "measured_ratio", "ratio_noise", "realised"}));
}

bool profiled(const Result& result) { return result.totals.has("rung"); }

void add_profile_summary(Document& document, const Record& record) {
  std::vector<Figures> rows;
  for (const Result& result : record.results)
    if (profiled(result)) rows.push_back(identified(result, result.totals));
  if (!rows.empty()) document.add(make_table("profile", "Profile: counted and traced against needed", rows, {"model", "phase", "batch", "seq", "context"}, kProfileTotalKeys));
}

std::string percent(double fraction) { return format_value(fraction, Unit::kPercent, 3); }

// The result in one paragraph, for a MoD result that knows its dense twin.
void add_pair_paragraph(Document& document, const Result& result, std::string& last) {
  const double flops = result.totals.number("flops_ratio");
  if (std::isnan(flops)) return;
  std::string text = fmt::format("`{}` needs {} of the FLOPs of its dense twin", result.model, significant(flops, 4));
  const double predicted = result.totals.number("predicted_ratio");
  const double measured = result.totals.number("measured_ratio");
  if (!std::isnan(predicted)) text += fmt::format("; predicted time ratio {}", significant(predicted, 4));
  const double noise = result.totals.number("ratio_noise");
  if (!std::isnan(measured)) text += fmt::format("; measured time ratio {}", significant(measured, 4));
  if (!std::isnan(measured) && noise >= 0.001) text += fmt::format(" ± {}", significant(measured * noise, 2));
  const Cell* realised = result.totals.find("realised");
  if (realised && realised->is_number())
    text += fmt::format(". Of the FLOPs saved, {}{} became time saved", percent(realised->value()),
                        noise >= 0.001 && flops < 1 ? fmt::format(" (± {} points)", significant(100 * measured * noise / (1 - flops), 2)) : "");
  else if (realised && realised->missing())
    text += fmt::format(". Realised fraction: {}", realised->missing()->reason);
  if (text != last) document.paragraph(text + ".");  // a list of batch sizes may say the same over and over
  last = text;
}

void add_error_paragraph(Document& document, const Record& record) {
  std::string text;
  for (const Result& result : record.results) {
    const double predicted = result.totals.number("predicted_s");
    const double measured = result.totals.number("measured_s");
    if (std::isnan(predicted) || std::isnan(measured)) continue;
    text += fmt::format("{}`{}`: predicted {}, measured {} (error {})", text.empty() ? "" : "; ", result.model, format_value(predicted, Unit::kSeconds),
                        format_value(measured, Unit::kSeconds), format_value(predicted / measured - 1, Unit::kSignedPercent, 3));
  }
  if (!text.empty()) document.paragraph(text + ".");
}

// Predicted and measured time, FLOPs and bytes by part of the model; in training also by pass.
void add_sums(Document& document, const Record& record, const std::string& by, const std::string& title) {
  std::vector<Figures> rows;
  bool several = false;
  for (const Result& result : record.results) {
    std::vector<std::string> groups;
    for (const Figures& op : result.ops)
      if (const Cell* cell = op.find(by); cell && cell->words() && std::find(groups.begin(), groups.end(), *cell->words()) == groups.end()) groups.push_back(*cell->words());
    several = several || groups.size() > 1;
    double all = 0;
    for (const Figures& op : result.ops) all += op.number("measured_s") > 0 ? op.number("measured_s") : 0;
    for (const std::string& group : groups) {
      Figures row;
      row.set("model", Cell::text(result.model));
      for (const std::string& key : kIdentity)
        if (const Cell* cell = result.scenario.find(key)) row.set(key, *cell);
      if (!result.machine.empty()) row.set("machine", Cell::text(result.machine));
      row.set(by, Cell::text(group));
      double predicted = 0, measured = 0;
      std::vector<std::pair<const char*, u128>> counts = {{"flops_matmul", 0}, {"bytes_read", 0}, {"bytes_written", 0}};
      for (const Figures& op : result.ops) {
        const Cell* cell = op.find(by);
        if (!cell || !cell->words() || *cell->words() != group) continue;
        predicted += op.number("predicted_s") > 0 ? op.number("predicted_s") : 0;
        measured += op.number("measured_s") > 0 ? op.number("measured_s") : 0;
        for (auto& [key, sum] : counts)
          if (const Cell* count = op.find(key); count && count->exact()) sum += *count->exact();
      }
      if (predicted > 0) row.set("predicted_s", Cell::number(predicted));
      if (measured > 0) row.set("measured_s", Cell::number(measured));
      if (predicted > 0 && measured > 0) row.set("error", Cell::number(predicted / measured - 1));
      if (measured > 0 && all > 0) row.set("share", Cell::number(measured / all));
      for (const auto& [key, sum] : counts) row.set(key, Cell::count(sum));
      rows.push_back(std::move(row));
    }
  }
  if (!several) return;
  std::vector<std::string> lead = varying(rows);
  lead.push_back(by);
  document.add(make_table("by-" + by, title, rows, lead, {"predicted_s", "measured_s", "share", "error", "flops_matmul", "bytes_read", "bytes_written"}));
}

void add_notes(Document& document, const std::vector<RecordNote>& notes) {
  for (const RecordNote& note : notes) document.add(Note{note.severity, note.text});
}

}  // namespace

ReportTable record_table(const Record& record, std::string_view what) {
  if (what == "results") {
    const std::vector<Figures> rows = result_rows(record);
    return make_table("results", "Configurations", rows, kIdentity, all_keys(rows));
  }
  if (what != "ops") throw_internal("a record has the tables results and ops");
  std::vector<Figures> rows;
  for (const Result& result : record.results)
    for (const Figures& op : result.ops) rows.push_back(identified(result, op));
  return make_table("ops", "Ops", rows, kIdentity, all_keys(rows));
}

Document view_record(const Record& record, const ViewOptions& options) {
  Document document;
  std::string models;
  for (const Result& result : record.results) {
    if (models.find(result.model) != std::string::npos) continue;
    models += (models.empty() ? "" : ", ") + result.model;
  }
  document.title = fmt::format("fathom {}: {}", record.command, models);
  add_asked(document, record);
  add_error_paragraph(document, record);
  std::string last;
  for (const Result& result : record.results) add_pair_paragraph(document, result, last);

  const std::vector<Figures> rows = result_rows(record);
  const bool timed = std::any_of(record.results.begin(), record.results.end(), [](const Result& r) { return r.totals.has("predicted_s") || r.totals.has("measured_s"); });
  add_summary(document, rows, timed, options);
  add_pair_table(document, record);
  add_profile_summary(document, record);

  if (options.ops && timed) {
    add_sums(document, record, "part", "By part of the model");
    add_sums(document, record, "pass", "By pass");
    add_record_plots(document, record);
  }
  for (const Result& result : record.results) {
    if (options.ops && !result.ops.empty()) {
      document.heading(fmt::format("Ops of {}{}", result.model, result.scenario.find("phase") && result.scenario.find("phase")->words() ? ", " + *result.scenario.find("phase")->words() : ""));
      ReportTable table = make_table("ops", "", result.ops, {"path", "predicted_s", "measured_s", "error", "verdict", "share", "achieved_flops_per_s", "peak_fraction", "binding", "flops_matmul", "noise"}, without(all_keys(result.ops), kProfileKeys));
      table.preview_rows = options.preview_rows;
      document.add(std::move(table));
      if (profiled(result)) {
        ReportTable profile = make_table("profile_ops", "Profile of " + result.model, result.ops, {"path"}, kProfileKeys);
        profile.preview_rows = options.preview_rows;
        document.add(std::move(profile));
      }
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
      for (const auto& [key, cell] : environment.items()) list.items.push_back({"", key, cell, Unit::kNone, ""});
      document.heading(title).add(std::move(list));
    }
    if (!arguments.empty()) document.heading("Reproduce", environment.items().empty() ? 2 : 3).code("fathom " + arguments);
  };
  if (!record.notes.empty() && options.ops && timed) document.heading("Notes");
  add_notes(document, record.notes);
  if (record.sources.empty()) add_run("Machine and run", {"", record.command, record.arguments, record.version, record.started, record.environment});
  for (const RecordSource& source : record.sources) add_run(fmt::format("{}: machine and run", source.file), source);
  if (options.glossary) document.glossary();
  return document;
}

}  // namespace fathom
