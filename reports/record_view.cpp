// From a record to a report: what was asked, the result in one paragraph, tables, plots, notes, columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/record.hpp"

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

const std::vector<std::string> kIdentity = {"model", "phase", "batch", "seq", "context", "dtype", "threads", "backend", "routing"};

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
                                            "p50_s", "p95_s", "p99_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s", "predicted_ttft_s", "ttft_s", "predicted_tpot_s", "tpot_s", "participation", "tokens_per_s",
                                            "achieved_flops_per_s", "peak_fraction", "mfu"};
const std::vector<std::string> kCountKeys = {"flops_matmul", "flops_expected", "flops_executed", "convention_flops", "params_total", "params_active", "elements_vector", "bytes_read",
                                             "bytes_written", "kv_bytes", "kv_bytes_per_token", "weight_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "peak_bytes"};

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
    document.add(make_table("results", "Configurations", rows, kIdentity, keys));
  }
  if (!timed || options.ops || options.full_summary)
    document.add(make_table("counts", timed ? "Counts and memory" : "Configurations", rows, timed ? std::vector<std::string>{"model", "phase", "batch", "seq", "context"} : kIdentity, kCountKeys));
}

// FLOPs, predicted time and measured time against the dense twin, and the realised fraction: the question behind a routed model.
void add_pair_table(Document& document, const Record& record) {
  std::vector<Figures> rows;
  for (const Result& result : record.results)
    if (result.totals.has("flops_ratio")) rows.push_back(identified(result, result.totals));
  if (rows.empty()) return;
  document.add(make_table("pairs", "Against the dense twin", rows, {"model", "phase", "batch", "seq", "context"}, {"flops_ratio", "predicted_ratio", "measured_ratio", "realised"}));
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
  if (!std::isnan(measured)) text += fmt::format("; measured time ratio {}", significant(measured, 4));
  const Cell* realised = result.totals.find("realised");
  if (realised && realised->is_number())
    text += fmt::format(". Of the FLOPs saved, {} became time saved", percent(realised->value()));
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

void add_plots(Document& document, const Record& record) {
  XyPlot scatter;
  scatter.key = "predicted-measured";
  scatter.title = "Predicted against measured, per op";
  scatter.x = {"measured time", Unit::kSeconds, true};
  scatter.y = {"predicted time", Unit::kSeconds, true};
  scatter.ideal_line = true;
  scatter.ideal_band = 0.25;
  BarPlot bars;
  bars.key = "where-the-time-goes";
  bars.title = "Where the time goes";
  bars.value_label = "time";
  bars.unit = Unit::kSeconds;
  bars.stacked = true;
  std::vector<std::string> parts;
  for (const Result& result : record.results) {
    PlotSeries series;
    series.name = result.model;
    series.line = false;
    for (const Figures& op : result.ops) {
      const double x = op.number("measured_s");
      const double y = op.number("predicted_s");
      if (x > 0 && y > 0) series.points.push_back({x, y, {}, {}, op.find("path")->words() ? *op.find("path")->words() : ""});
      const Cell* part = op.find("part");
      if (part && part->words() && std::find(parts.begin(), parts.end(), *part->words()) == parts.end()) parts.push_back(*part->words());
    }
    if (!series.points.empty()) scatter.series.push_back(series);
  }
  if (!scatter.series.empty()) document.add(scatter);
  for (const Result& result : record.results) {
    for (const char* which : {"predicted", "measured"}) {
      const std::string key = std::string(which) + "_s";
      if (std::none_of(result.ops.begin(), result.ops.end(), [&](const Figures& op) { return op.number(key) > 0; })) continue;
      bars.categories.push_back(result.model + ", " + which);
      for (size_t p = 0; p < parts.size(); ++p) {
        if (bars.series.size() <= p) bars.series.push_back({parts[p], {}});
        double sum = 0;
        for (const Figures& op : result.ops)
          if (op.find("part") && op.find("part")->words() && *op.find("part")->words() == parts[p] && op.number(key) > 0) sum += op.number(key);
        bars.series[p].values.push_back(sum);
      }
    }
  }
  if (!bars.categories.empty()) document.add(bars);
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
  add_error_paragraph(document, record);
  std::string last;
  for (const Result& result : record.results) add_pair_paragraph(document, result, last);

  const std::vector<Figures> rows = result_rows(record);
  const bool timed = std::any_of(record.results.begin(), record.results.end(), [](const Result& r) { return r.totals.has("predicted_s") || r.totals.has("measured_s"); });
  add_summary(document, rows, timed, options);
  add_pair_table(document, record);
  add_profile_summary(document, record);

  if (options.ops && timed) add_plots(document, record);
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
  if (!record.environment.items().empty()) {
    KeyValues list;
    list.title = "Machine and run";
    for (const auto& [key, cell] : record.environment.items()) list.items.push_back({"", key, cell, Unit::kNone, ""});
    document.heading("Machine and run").add(std::move(list));
  }
  add_notes(document, record.notes);
  if (!record.arguments.empty()) document.heading("Reproduce").code("fathom " + record.arguments);
  if (options.glossary) document.glossary();
  return document;
}

}  // namespace fathom
