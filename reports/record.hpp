// A record: everything one invocation did, as data. Saved as JSON (reports/record.schema.json), read back, rendered.
//
// Rows are lists of glossary keys with cells, so that a figure has one name in the record, the tables, CSV and JSON, and
// a new column needs no new code here. Commands fill records; every report is made from a record (`fathom report` does it later).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/document.hpp"
#include "reports/json_reader.hpp"
#include "reports/routing.hpp"

namespace fathom {

inline constexpr std::string_view kRecordSchema = "fathom-record-1";

// Figures by glossary key, in order.
class Figures {
 public:
  void set(std::string_view key, Cell value);  // replaces or appends
  const Cell* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The number as double; NaN where it is missing or a status.
  double number(std::string_view key) const;
  const std::vector<std::pair<std::string, Cell>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Cell>> items_;
};

struct RecordNote {
  Note::Severity severity = Note::Severity::kNote;
  std::string text;
};

// One configuration.
struct Result {
  std::string model;
  std::string fingerprint;      // of the op list
  Figures scenario;             // phase, batch, seq, dtype, threads, backend, routing ...
  std::string machine;          // name; empty: none was asked for
  std::string machine_hash;
  std::string convention = "exact";
  Cell convention_flops;
  Figures totals;
  std::vector<double> samples_s;               // end-to-end passes in the order taken, seconds
  std::vector<std::vector<double>> rounds_s;   // per op of `ops`: its time in each round, all uses, normalised; empty where none was kept
  std::vector<Figures> parts;   // by part of the model ("projections", "core", ...)
  std::vector<Figures> ops;
  RoutingRecord routing;        // of a run of a routed network; empty otherwise
  std::vector<RecordNote> notes;
};

// One of several records that a record was put together from.
struct RecordSource {
  std::string file, command, arguments, version, started;
  Figures environment;
};

struct Record {
  std::string command;          // "compare"
  std::string arguments;        // as typed, for the reproduction line
  std::string version;
  std::string started;          // UTC, ISO 8601
  std::string predicted_at;     // when predictions were complete, before anything ran
  Figures environment;          // CPU, threads, libraries, machine state
  std::vector<Result> results;
  std::vector<RecordNote> notes;
  std::vector<RecordSource> sources;   // empty: this is the record of one run

  void note(std::string text, Note::Severity severity = Note::Severity::kNote) { notes.push_back({severity, std::move(text)}); }
};

std::string write_record(const Record& record);
// Throws Error(kInput) with file and line when the text is no record of this schema.
Record read_record(std::string_view text, const std::string& file);

// Throws Error(kInput) where results count FLOPs by different conventions or masks: one report states one.
void refuse_mixed_counts(const std::vector<const Record*>& records, const std::vector<std::string>& files);
// Several records as one: results and notes in order, each record's run kept in `sources`. `files`: their names.
Record join_records(std::vector<Record> records, const std::vector<std::string>& files);

struct ViewOptions {
  bool ops = true;       // per-op tables
  bool glossary = true;
  bool page = false;          // for Markdown and HTML: each table has the columns that are read most and says what it leaves out
  bool full_summary = false;  // all figures of a configuration or op, whatever the width
  std::vector<std::string> columns;  // glossary keys: these instead of those the view would choose; empty: its choice
  int preview_rows = 0;       // of op tables in text and Markdown
};
// What was asked, for "Asked: ...": phase, sizes, types, machine; values of up to four configurations side by side.
std::string asked_text(const Record& record);
// The heading of every page's section on what made it, with what and when.
inline constexpr const char* kMachineAndRun = "Machine and run";
// Facts about a machine and a run, in words with their units (reports/run_facts.hpp); `wanted`: only those keys.
void add_environment(KeyValues& list, const Figures& environment, const std::function<bool(const std::string&)>& wanted = {});
// The report of a record.
Document view_record(const Record& record, const ViewOptions& options);
// All rows of one kind as one table, for CSV: "results" or "ops", with the identifying columns first and where and by what the row was
// made last. `columns`: these and no others, in this order.
ReportTable record_table(const Record& record, std::string_view what, const std::vector<std::string>& columns = {});

}  // namespace fathom
