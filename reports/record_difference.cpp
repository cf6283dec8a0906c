#include "reports/record_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/record_faster.hpp"
#include "reports/record_tables.hpp"

namespace fathom {
namespace {

constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();

bool is_predicted(const std::string& figure) { return figure.rfind("predicted", 0) == 0; }

bool same_scenario(const Result& a, const Result& b) {
  const auto keys = [](const Result& r) { return r.scenario.items().size() - (r.scenario.has("record") ? 1 : 0); };
  return keys(a) == keys(b) && std::all_of(a.scenario.items().begin(), a.scenario.items().end(), [&](const auto& item) {
    if (item.first == "record") return true;  // where it comes from is no part of what was run
    const Cell* other = b.scenario.find(item.first);
    return other && exact_text(*other) == exact_text(item.second);
  });
}

bool time_change(const Figures& before, const Figures& after, const std::string& figure, TimeChange& change) {
  change = {figure, before.number(figure), after.number(figure), kNoFigure, kNoFigure};
  if (!(change.before > 0) || !(change.after > 0)) return false;
  change.change = change.after / change.before - 1;
  if (!is_predicted(figure)) change.noise = std::hypot(median_uncertainty(before), median_uncertainty(after));
  return true;
}

// A count with all its digits: what differs may be the last.
std::string with_digits(const Cell& cell) { return cell.exact() ? grouped(*cell.exact()) : exact_text(cell); }

ResultDifference difference_of(const Result& before, const Result& after) {
  ResultDifference result;
  result.before = &before;
  result.after = &after;
  TimeChange change;
  for (const char* figure : {"measured_s", "ttft_s", "tpot_s", "predicted_s", "predicted_ttft_s", "predicted_tpot_s"}) {
    if (time_change(before.totals, after.totals, figure, change)) result.times.push_back(change);
    if (before.totals.number(figure) > 0 && !(after.totals.number(figure) > 0)) result.lost.emplace_back(figure);
  }
  for (const Figures& op : after.ops) {
    const Cell* path = op.find("path");
    if (!path || !path->words()) continue;
    const auto same = std::find_if(before.ops.begin(), before.ops.end(), [&](const Figures& other) {
      const Cell* name = other.find("path");
      return name && name->words() && *name->words() == *path->words();
    });
    if (same != before.ops.end() && time_change(*same, op, "measured_s", change)) result.ops.push_back({*path->words(), change});
  }
  for (const char* key : {"flops_matmul", "elements_vector", "bytes_read", "bytes_written", "params_total", "kv_bytes", "peak_bytes"}) {
    const Cell* a = before.totals.find(key);
    const Cell* b = after.totals.find(key);
    if (a && b && exact_text(*a) != exact_text(*b)) result.counts.push_back(fmt::format("{} {} -> {}", column_named(key).label, with_digits(*a), with_digits(*b)));
  }
  return result;
}

std::string environment_text(const Record& record, const char* key) {
  const Cell* cell = record.environment.find(key);
  return cell ? exact_text(*cell) : std::string();
}

std::string percent(double fraction) { return format_value(std::abs(fraction), Unit::kPercent, 2); }

std::string sentence(const ResultDifference& pair, const TimeChange& time) {
  const std::string what = time.figure == "measured_s" ? "" : time.figure == "ttft_s" ? " (first token)" : time.figure == "tpot_s" ? " (per token)" : " (predicted)";
  std::string text = fmt::format("`{}`{}: {}, was {}", configuration_text(*pair.after), what, format_value(time.after, Unit::kSeconds), format_value(time.before, Unit::kSeconds));
  if (time.change != 0) text += fmt::format(": {} {}", percent(time.change), time.change > 0 ? "slower" : "faster");
  if (is_predicted(time.figure)) return text + ".";
  if (time.change == 0) return text + ": the same.";
  if (std::isnan(time.noise)) return text + "; the records hold no spread to judge it by.";
  return text + fmt::format(", {} the noise of {}.", time.told() ? "more than" : "within", percent(time.noise));
}

// `keys`: for programs, with the configuration in every row; for people it is said once.
void add_ops(Document& document, const RecordDifference& difference, bool keys) {
  const bool once = !keys && difference.pairs.size() == 1;
  ReportTable table("ops", once ? "Ops of " + configuration_text(*difference.pairs[0].after) : "Ops");
  if (!once) table.add_column("model");
  for (const char* key : {"path", "before_s", "after_s", "change", "change_noise", "judgement"}) table.add_column(key);
  for (const ResultDifference& pair : difference.pairs)
    for (const OpChange& op : pair.ops) {
      std::vector<Cell> row;
      if (!once) row.push_back(Cell::text(configuration_text(*pair.after)));
      for (Cell cell : {Cell::text(op.path), Cell::number(op.time.before), Cell::number(op.time.after), Cell::number(op.time.change), std::isnan(op.time.noise) ? Cell::status("no spread") : Cell::number(op.time.noise),
                        Cell::text(op.time.judgement())})
        row.push_back(std::move(cell));
      table.add_row(std::move(row));
    }
  if (!once) table.group = 1;
  if (!table.rows.empty()) document.add(std::move(table));
}

}  // namespace

bool TimeChange::told() const { return is_predicted(figure) || std::abs(change) > noise; }  // false for NaN

std::string TimeChange::judgement() const {
  if (change == 0) return "same";
  if (!is_predicted(figure) && std::isnan(noise)) return "no noise figure";
  if (!told()) return "within noise";
  return change > 0 ? "slower" : "faster";
}

std::string configuration_text(const Result& result) {
  std::string text = result.model;
  for (const char* key : {"phase", "batch", "seq", "prompt", "tokens", "context", "dtype"}) {
    const Cell* cell = result.scenario.find(key);
    if (!cell) continue;
    const std::string value = exact_text(*cell);
    text += cell->words() ? ", " + value : fmt::format(", {} {}", key, value);
  }
  return text;
}

RecordDifference compare_records(const Record& before, const Record& after) {
  RecordDifference difference;
  std::vector<const Result*> left;
  for (const Result& result : before.results) left.push_back(&result);
  std::vector<const Result*> joined(after.results.size(), nullptr);
  const auto join = [&](auto&& same) {
    for (std::size_t i = 0; i < joined.size(); ++i) {
      if (joined[i]) continue;
      const auto found = std::find_if(left.begin(), left.end(), [&](const Result* other) { return same_scenario(*other, after.results[i]) && same(*other, after.results[i]); });
      if (found == left.end()) continue;
      joined[i] = *found;
      left.erase(found);
    }
  };
  const auto same_list = [](const Result& a, const Result& b) { return a.fingerprint == b.fingerprint && !a.fingerprint.empty(); };
  join([&](const Result& a, const Result& b) { return same_list(a, b) && a.model == b.model; });
  join(same_list);
  join([](const Result& a, const Result& b) { return a.model == b.model; });
  for (std::size_t i = 0; i < joined.size(); ++i) {
    const Result& result = after.results[i];
    if (!joined[i]) {
      difference.only_after.push_back(&result);
      continue;
    }
    difference.pairs.push_back(difference_of(*joined[i], result));
    if (!same_list(*joined[i], result))
      difference.notes.push_back({Note::Severity::kWarning, fmt::format("{}: the op lists differ, so the times are of different work", configuration_text(result))});
    if (joined[i]->machine_hash != result.machine_hash && !joined[i]->machine_hash.empty() && !result.machine_hash.empty())
      difference.notes.push_back({Note::Severity::kNote, fmt::format("{}: predicted with different machine descriptions", configuration_text(result))});
  }
  difference.only_before = left;
  if (difference.pairs.empty()) throw_input("the records have no configuration in common", {}, "both must hold the same model in the same scenario (phase, batch, length, type, threads, backend)");
  for (const char* key : {"backend", "predictor"})
    // A side that predicted nothing has no predictor to differ in.
    if (environment_text(before, key) != environment_text(after, key) && (std::string_view(key) != "predictor" || (!environment_text(before, key).empty() && !environment_text(after, key).empty())))
      difference.notes.push_back({Note::Severity::kWarning, fmt::format("{} was '{}' and is '{}': times are not of the same thing", key, environment_text(before, key), environment_text(after, key))});
  if (before.version != after.version) difference.notes.push_back({Note::Severity::kNote, fmt::format("made by {} and {}", before.version, after.version)});
  return difference;
}

Document view_difference(const RecordDifference& difference, const std::string& before_name, const std::string& after_name, bool ops, bool keys) {
  Document document;
  document.title = fmt::format("{} against {}", after_name, before_name);
  ReportTable table("changes", "Changes");
  for (const char* key : {"model", "phase", "batch", "seq", "context", "figure", "before_s", "after_s", "change", "change_noise", "judgement"}) table.add_column(key);
  for (const ResultDifference& pair : difference.pairs)
    for (const TimeChange& time : pair.times) {
      if (!is_predicted(time.figure)) document.paragraph(sentence(pair, time));
      std::vector<Cell> row = {Cell::text(pair.after->model)};
      for (const char* key : {"phase", "batch", "seq", "context"}) row.push_back(pair.after->scenario.find(key) ? *pair.after->scenario.find(key) : Cell());
      for (Cell cell : {Cell::text(keys ? time.figure : std::string(column_named(time.figure).label)), Cell::number(time.before), Cell::number(time.after), Cell::number(time.change),
                        std::isnan(time.noise) ? (is_predicted(time.figure) ? Cell() : Cell::status("no spread")) : Cell::number(time.noise), Cell::text(time.judgement())})
        row.push_back(std::move(cell));
      table.add_row(std::move(row));
    }
  keep_names(table, 6);
  for (ReportColumn& column : table.columns)
    if (column.key == "before_s" || column.key == "after_s") column.priority = 1;  // the change and its judgement are the answer
  if (table.rows.empty()) document.paragraph("Neither record holds times; the counts are compared.");
  if (!table.rows.empty()) document.add(std::move(table));
  if (ops) add_ops(document, difference, keys);
  for (const ResultDifference& pair : difference.pairs)
    for (const std::string& count : pair.counts) document.warning(fmt::format("{}: {}", configuration_text(*pair.after), count));
  for (const ResultDifference& pair : difference.pairs)
    for (const std::string& time : pair.lost) document.skipped(fmt::format("{}: {} is only in {}", configuration_text(*pair.after), column_named(time).label, before_name));
  for (const Result* result : difference.only_before) document.skipped(fmt::format("{} is only in {}", configuration_text(*result), before_name));
  for (const Result* result : difference.only_after) document.skipped(fmt::format("{} is only in {}", configuration_text(*result), after_name));
  for (const RecordNote& note : difference.notes) document.add(Note{note.severity, note.text});
  return document;
}

}  // namespace fathom
