#include "reports/record_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"

namespace fathom {
namespace {

const std::vector<std::string> kIdentity = {"model", "record", "phase", "batch", "seq", "prompt", "tokens", "context", "dtype", "weight_dtype", "kv_dtype", "mask", "fusion", "threads", "backend", "routing", "machine"};

Figures result_row(const Result& result) {
  Figures row = identified(result, result.totals);
  if (result.convention == "exact") return row;
  row.set("convention", Cell::text(result.convention));
  row.set("convention_flops", result.convention_flops);
  return row;
}

std::vector<Figures> result_rows(const Record& record) {
  std::vector<Figures> rows;
  for (const Result& result : record.results) rows.push_back(result_row(result));
  return rows;
}

// What a summary is read for, in this order. Times and counts are two tables; a count has only the second.
const std::vector<std::string> kTimeKeys = {"predicted_s", "predicted_lo_s", "predicted_hi_s", "measured_s", "spread", "error", "verdict", "devices", "device_bytes", "communication_s", "bubble_s", "concurrency",
                                            "served_tokens_per_s", "served_s", "served_p99_s", "normalised_s", "noise", "samples",
                                            "predicted_ttft_s", "ttft_s", "predicted_tpot_s", "tpot_s", "p50_s", "p95_s", "p99_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s", "participation", "tokens_per_s", "predicted_tokens_per_s",
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

// What a page shows of a configuration: the answer in the first table, how well it is known in the second.
const std::vector<std::string> kPageKeys = {"predicted_s", "measured_s", "spread", "error", "verdict", "predicted_lo_s", "predicted_hi_s", "devices", "device_bytes", "communication_s", "bubble_s",
                                            "concurrency", "served_tokens_per_s", "served_s", "served_p99_s", "predicted_ttft_s", "ttft_s", "predicted_tpot_s", "tpot_s", "tokens_per_s"};
const std::vector<std::string> kMemoryKeys = {"params_total", "params_active", "weight_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "kv_bytes", "kv_bytes_per_token", "peak_bytes"};
// What it shows of an op: about as much as fits the width of a page, the answers first, for the rest lies beyond a phone's edge.
const std::vector<std::string> kOpPageKeys = {"predicted_s", "measured_s", "error", "peak_fraction", "verdict", "flops_matmul", "flops_expected", "bytes_moved", "rows_declared", "times"};
const std::vector<std::string> kOpPredictedKeys = {"predicted_s", "predicted_lo_s", "predicted_hi_s", "binding", "flops_matmul", "flops_expected", "bytes_moved", "rows_declared", "times"};
const std::vector<std::string> kOpCountKeys = {"kind", "shape", "times", "flops_matmul", "flops_expected", "elements_vector", "bytes_read", "bytes_written"};
const std::vector<std::string> kProfileOpPageKeys = {"kernels", "kernel_s", "kernel_error", "needed_flops", "counter_flops_ratio", "needed_bytes", "dram_ratio", "dram_bytes_per_s", "rung"};
const std::vector<std::string> kProfilePageKeys = {"rung", "kernels", "measured_s", "kernel_s", "device_busy_s", "profile_overhead", "counter_flops_ratio", "dram_ratio", "dram_bytes_per_s", "rung_reason"};
// Where and by what a row was made, last in every row of CSV, so that rows of many machines can stand in one file.
const std::vector<std::string> kOriginKeys = {"fathom_version", "started", "cpu", "gpu", "cores"};

bool any_has(const std::vector<Figures>& rows, const std::string& key) {
  return std::any_of(rows.begin(), rows.end(), [&](const Figures& row) { return row.has(key); });
}

bool profiled(const Result& result) { return result.totals.has("rung"); }

// What a page leaves out, and where to find it.
std::string left_out(const std::vector<std::string>& shown, const std::vector<Figures>& rows) {
  std::string names;
  for (const std::string& key : without(without(all_keys(rows), shown), kProfileKeys))
    if (const Column* column = find_column(key); column && key != "status") {
      const bool own = find_heading(column->label) == column;  // by which --columns finds it
      names += fmt::format("{}{}", names.empty() ? "" : ", ", own ? std::string(column->label) : fmt::format("`{}`", key));
    }
  return names.empty() ? "" : fmt::format("Not shown: {} (`--columns all`; CSV and JSON have them).", names);
}

// More columns than a page has become a second table with the same leading ones.
void add_page_table(Document& document, const std::string& key, const std::string& title, std::vector<Figures> rows, const std::vector<std::string>& lead, const std::vector<std::string>& keys) {
  // A dense step has no distribution, a generation no step: their rows would be empty.
  std::erase_if(rows, [&](const Figures& row) { return std::none_of(keys.begin(), keys.end(), [&](const std::string& each) { return row.has(each); }); });
  ReportTable whole = make_table(key, title, rows, lead, keys);
  std::size_t leading = 0;
  while (leading < whole.columns.size() && std::find(lead.begin(), lead.end(), whole.columns[leading].key) != lead.end()) ++leading;
  const std::size_t figures = whole.columns.size() - leading;
  if (figures == 0) return;
  const std::size_t room = std::max<std::size_t>(2, kPageColumns - std::min(leading, kPageColumns)), tables = (figures + room - 1) / room;
  for (std::size_t t = 0; t < tables; ++t) {
    std::vector<std::string> part;
    for (std::size_t c = figures * t / tables; c < figures * (t + 1) / tables; ++c) part.push_back(whole.columns[leading + c].key);
    document.add(make_table(t == 0 ? key : fmt::format("{}-{}", key, t + 1), t == 0 ? title : title + ", continued", rows, lead, part));
  }
}

// The median of a step's samples is its measured time: said once, except beside the percentiles of a decode step or a generation.
bool repeats_median(const std::vector<Figures>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const Figures& row) {
    const Cell *phase = row.find("phase"), *median = row.find("p50_s"), *measured = row.find("measured_s");
    const bool percentiles = phase && phase->words() && (*phase->words() == "decode" || *phase->words() == "generate");
    return !percentiles && (!median || (measured && exact_text(*median) == exact_text(*measured)));
  });
}

void add_summary(Document& document, const std::vector<Figures>& rows, bool timed, const ViewOptions& options) {
  const std::vector<std::string> lead = varying(rows);
  if (!options.columns.empty()) {
    document.add(make_table("results", "Configurations", rows, lead, options.columns));
    return;
  }
  const bool page = options.page && !options.full_summary;
  if (timed) {
    const std::vector<std::string> times = without(kTimeKeys, !options.full_summary && repeats_median(rows) ? std::vector<std::string>{"p50_s"} : std::vector<std::string>{});
    std::vector<std::string> keys = page ? kPageKeys : times;
    if (page && !any_has(rows, "measured_s")) keys.insert(std::find(keys.begin(), keys.end(), "devices"), "predicted_tokens_per_s");
    for (const std::string& key : without(all_keys(rows), kProfileTotalKeys))
      if (options.full_summary && std::find(kCountKeys.begin(), kCountKeys.end(), key) == kCountKeys.end()) keys.push_back(key);
    if (page) add_page_table(document, "results", "Configurations", rows, lead, keys);
    else document.add(make_table("results", "Configurations", rows, lead, keys));
    if (page) {
      if (any_has(rows, "measured_s")) keys.emplace_back("predicted_tokens_per_s");
      add_page_table(document, "times", "Distribution of times", rows, lead, without(times, keys));
    }
  }
  if (timed && !options.ops && !options.full_summary) return;
  const std::vector<std::string> counts = page ? without(kCountKeys, kMemoryKeys) : kCountKeys;
  if (!page) {
    document.add(make_table("counts", timed ? "Counts and memory" : "Configurations", rows, lead, counts));
    return;
  }
  add_page_table(document, "counts", timed ? "Counts" : "Configurations", rows, lead, counts);
  add_page_table(document, "memory", "Parameters and memory", rows, lead, kMemoryKeys);
}

constexpr double kMostUnsure = 0.5;

// FLOPs, predicted time and measured time against the dense twin, and the realised fraction: the question behind a routed model.
void add_pair_table(Document& document, const Record& record) {
  std::vector<Figures> rows;
  for (const Result& result : record.results)
    if (result.totals.has("flops_ratio")) {
      rows.push_back(identified(result, result.totals));
      if (result.totals.has("realised")) rows.back().set("realised", realised_cell(result.totals));
    }
  if (!rows.empty()) document.add(make_table("pairs", "Against the dense twin", rows, varying(rows), {"flops_ratio", "predicted_ratio", "measured_ratio", "ratio_noise", "realised"}));
}

// Ratios to the first model of the same scenario: models that are no twins.
void add_relative_table(Document& document, const Record& record) {
  std::vector<Figures> rows;
  for (const Result& result : record.results)
    if (result.totals.has("relative_to")) rows.push_back(identified(result, result.totals));
  if (!rows.empty())
    document.add(make_table("relative", "Against the first model", rows, varying(rows), {"relative_to", "relative_flops", "relative_predicted", "relative_measured", "relative_noise"}));
}

void add_profile_summary(Document& document, const Record& record, const ViewOptions& options) {
  std::vector<Figures> rows;
  for (const Result& result : record.results)
    if (profiled(result)) rows.push_back(identified(result, result.totals));
  if (rows.empty()) return;
  const bool page = options.page && !options.full_summary;
  document.add(make_table("profile", "Profile: counted and traced against needed", rows, {"model", "phase", "batch", "seq", "context"}, page ? kProfilePageKeys : kProfileTotalKeys));
}

// Why ops have no grade, one row per reason: a table of ops has no room for sentences.
void add_reasons(Document& document, const std::vector<Figures>& ops) {
  std::vector<Figures> rows;
  for (const Figures& op : ops) {
    const Cell *status = op.find("status"), *verdict = op.find("verdict"), *path = op.find("path");
    if (!status || !status->words() || status->words()->empty() || !path || !path->words()) continue;
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Figures& row) {
      const Cell* other = row.find("verdict");
      return *row.find("status")->words() == *status->words() && (verdict ? other && exact_text(*other) == exact_text(*verdict) : !other);
    });
    if (same != rows.end()) {
      same->set("path", Cell::text(*same->find("path")->words() + ", " + *path->words()));
      continue;
    }
    Figures row;
    if (verdict) row.set("verdict", *verdict);
    row.set("status", *status);
    row.set("path", *path);
    rows.push_back(std::move(row));
  }
  if (!rows.empty()) document.add(make_table("reasons", "Not graded, and why", rows, {"verdict"}, {"status", "path"}));
}

// The run that a result is of: the record's own, or one of its sources.
void set_origin(Figures& row, const Record& record, const Result& result) {
  const Figures* environment = &record.environment;
  std::string version = record.version, started = record.started;
  const Cell* file = result.scenario.find("record");
  for (const RecordSource& source : record.sources) {
    if (!file || exact_text(*file) != source.file) continue;
    environment = &source.environment;
    version = source.version;
    started = source.started;
  }
  if (version.rfind("fathom ", 0) == 0) version.erase(0, 7);
  if (!version.empty()) row.set("fathom_version", Cell::text(version));
  if (!started.empty()) row.set("started", Cell::text(started));
  for (const char* key : {"cpu", "gpu", "cores"})
    if (const Cell* cell = environment->find(key)) row.set(key, *cell);
  if (const Cell* threads = environment->find("threads"); threads && !row.has("threads")) row.set("threads", *threads);
}

}  // namespace

namespace {

bool same_start(const ReportTable::Row& a, const ReportTable::Row& b, std::size_t columns) {
  for (std::size_t c = 0; c < columns; ++c)
    if (exact_text(a.cells[c]) != exact_text(b.cells[c])) return false;
  return true;
}

// As many of the `leading` columns but the last as several rows share, one after the other and nowhere else; those are shown once for all of them.
std::size_t grouping(const ReportTable& table, std::size_t leading) {
  for (std::size_t columns = leading == 0 ? 0 : leading - 1; columns > 0; --columns) {
    std::vector<std::size_t> starts;
    for (std::size_t r = 0; r < table.rows.size(); ++r)
      if (r == 0 || !same_start(table.rows[r - 1], table.rows[r], columns)) starts.push_back(r);
    const bool apart = std::any_of(starts.begin(), starts.end(), [&](std::size_t at) {
      return std::any_of(starts.begin(), starts.end(), [&](std::size_t other) { return other < at && same_start(table.rows[other], table.rows[at], columns); });
    });
    if (!apart && starts.size() < table.rows.size()) return columns;
  }
  return 0;
}

}  // namespace

void name_column(ReportTable& table, std::string_view key, const char* label) {
  for (ReportColumn& column : table.columns)
    if (column.key == key) column.label = label;
}

void keep_names(ReportTable& table, std::size_t leading) {
  constexpr int kEarly = 3, kLast = -1;
  const auto varies = [&](std::size_t c) {
    const ReportTable::Row* first = nullptr;
    for (const ReportTable::Row& row : table.rows) {
      if (row.total) continue;
      if (first && exact_text(row.cells[c]) != exact_text(first->cells[c])) return true;
      if (!first) first = &row;
    }
    return false;
  };
  std::vector<std::size_t> names;
  for (std::size_t c = 0; c < leading; ++c)
    if (varies(c)) names.push_back(c);
  if (names.empty()) return;  // one row, or rows that nothing names
  for (std::size_t c = 0; c < leading; ++c) table.columns[c].priority = std::max(table.columns[c].priority, kEarly);
  for (const std::size_t c : names) table.columns[c].priority = kLast;
}

ReportTable make_table(std::string key, std::string title, const std::vector<Figures>& rows, const std::vector<std::string>& lead, const std::vector<std::string>& wanted) {
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
  // Percentiles of a generation are those of its tokens, beside the time of the whole.
  const auto generates = [](const Figures& row) {
    const Cell* phase = row.find("phase");
    return phase && phase->words() && *phase->words() == "generate";
  };
  if (!rows.empty() && std::all_of(rows.begin(), rows.end(), generates))
    for (ReportColumn& column : table.columns)
      for (const char* percentile : {"p50_s", "p95_s", "p99_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s"})
        if (column.key == percentile) column.label += " of a token";
  table.wide = true;  // what a page shows of a record is chosen here
  std::size_t leading = 0;
  while (leading < keys.size() && std::find(lead.begin(), lead.end(), keys[leading]) != lead.end()) ++leading;
  table.group = grouping(table, leading);
  keep_names(table, leading);
  return table;
}

std::vector<std::string> all_keys(const std::vector<Figures>& rows) {
  std::vector<std::string> keys;
  for (const Figures& row : rows)
    for (const auto& [name, cell] : row.items())
      if (std::find(keys.begin(), keys.end(), name) == keys.end()) keys.push_back(name);
  return keys;
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

double realised_noise(const Figures& totals) {
  const double flops = totals.number("flops_ratio"), noise = totals.number("ratio_noise"), measured = totals.number("measured_ratio");
  return noise >= 0.001 && flops < 1 && measured > 0 ? measured * noise / (1 - flops) : 0;
}

Cell realised_cell(const Figures& totals) {
  const Cell* realised = totals.find("realised");
  if (!realised) return Cell();
  return realised->is_number() && realised_noise(totals) > kMostUnsure ? Cell::status(kTooNoisy) : *realised;
}

void add_result_tables(Document& document, const Record& record, const ViewOptions& options) {
  const bool timed = std::any_of(record.results.begin(), record.results.end(), [](const Result& r) { return r.totals.has("predicted_s") || r.totals.has("measured_s"); });
  add_summary(document, result_rows(record), timed, options);
  add_pair_table(document, record);
  add_relative_table(document, record);
  add_profile_summary(document, record, options);
}

void add_op_tables(Document& document, const Result& result, const ViewOptions& options) {
  std::vector<Figures> ops = result.ops;
  for (Figures& op : ops) {
    const Cell *read = op.find("bytes_read"), *written = op.find("bytes_written");
    if (read && written && read->exact() && written->exact()) op.set("bytes_moved", Cell::count(*read->exact() + *written->exact()));
  }
  const bool page = options.page && !options.full_summary && options.columns.empty();
  std::vector<std::string> keys = options.columns;
  if (page) {
    keys = any_has(ops, "measured_s") ? kOpPageKeys : any_has(ops, "predicted_s") ? kOpPredictedKeys : kOpCountKeys;
  } else if (keys.empty()) {
    keys = {"predicted_s", "measured_s", "error", "verdict", "share", "achieved_flops_per_s", "peak_fraction", "binding", "flops_matmul", "noise"};
    for (const std::string& key : without(without(all_keys(result.ops), kProfileKeys), {"status"})) keys.push_back(key);
  }
  ReportTable table = make_table("ops", "", ops, {"path"}, keys);
  if (result.totals.has("normalised_s")) name_column(table, "measured_s", kOpByOp);
  const std::vector<const ReportTable*> before = tables_of(document);
  const bool first = std::none_of(before.begin(), before.end(), [](const ReportTable* each) { return each->key == "ops"; });
  if (page && first) {  // once is enough
    keys.emplace_back("path");
    table.caption = left_out(keys, result.ops);
  }
  table.preview_rows = options.preview_rows;
  document.add(std::move(table));
  if (options.columns.empty()) add_reasons(document, result.ops);
  if (!profiled(result) || !options.columns.empty()) return;
  ReportTable profile = make_table("profile_ops", "Profile of " + result.model, result.ops, {"path"}, page ? kProfileOpPageKeys : kProfileKeys);
  profile.preview_rows = options.preview_rows;
  document.add(std::move(profile));
}

ReportTable record_table(const Record& record, std::string_view what, const std::vector<std::string>& columns) {
  if (what != "results" && what != "ops") throw_internal("a record has the tables results and ops");
  std::vector<Figures> rows;
  for (const Result& result : record.results) {
    if (what == "results") {
      rows.push_back(result_row(result));
      set_origin(rows.back(), record, result);
      continue;
    }
    for (const Figures& op : result.ops) {
      rows.push_back(identified(result, op));
      set_origin(rows.back(), record, result);
    }
  }
  std::vector<std::string> wanted = columns;
  if (wanted.empty()) {
    wanted = without(all_keys(rows), kOriginKeys);
    wanted.insert(wanted.end(), kOriginKeys.begin(), kOriginKeys.end());
  }
  return make_table(std::string(what), what == "ops" ? "Ops" : "Configurations", rows, columns.empty() ? kIdentity : std::vector<std::string>{}, wanted);
}

}  // namespace fathom
