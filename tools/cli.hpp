// What all commands share on the command line: models, scenario, output. One flag means the same thing everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/network.hpp"
#include "models/scenario.hpp"
#include "reports/record.hpp"

namespace CLI {
class App;
}

namespace fathom {

// ---- models and scenario ----

struct ModelFlags {
  std::vector<std::string> models;
  std::optional<std::int64_t> mod_every;
  std::string capacity;  // fraction text
  std::optional<std::int64_t> slots;
  std::string rounding;
  std::string gate;
  std::optional<std::int64_t> mtp;
  std::optional<double> expert_skew;
  std::string expert_loads;  // numbers joined by commas
  bool strict = false;
};

struct ScenarioFlags {
  std::vector<std::string> phases;
  std::string batch, seq, context, prompt, tokens, past;  // lists and ranges
  std::string dtype, kv_dtype, grad_dtype, logits, routing, participation, recompute, mla;
  std::string kv_page, grad_accumulation;
  bool full_mask = false;
  bool no_optimizer = false;
  bool counts = false;                // the command counts and runs nothing: --weight-dtype and --fusion are its flags
  std::string weight_dtype, fusion;
};

// One network in one scenario.
struct Configuration {
  Network network;
  Scenario scenario;
  std::string label;  // name for tables
};

// A check for add_option: every name of a list, or one of `separator` '\0', must be known to `parse`, which throws Error(kInput) with the nearest. Asked as
// the option is read, so that an unknown name is refused even where nothing reads the option.
std::function<std::string(const std::string&)> known_names(const char* flag, std::function<void(const std::string&)> parse, char separator = '\0');

// Another: a number from `low` to `high`. CLI11's own range lets nan pass.
std::function<std::string(const std::string&)> number_in(double low, double high);

void add_model_flags(CLI::App& app, ModelFlags& flags);
void add_scenario_flags(CLI::App& app, ScenarioFlags& flags);
// Flags of what is counted but run by no backend.
void add_counted_flags(CLI::App& app, ScenarioFlags& flags);

// Every model in every combination of the scenario's lists, in the order written. `gpu` decides the default data type.
// Throws Error(kInput) as the parts do; warnings (a length past a learned position table) go to `notes`.
std::vector<Configuration> expand(const ModelFlags& models, const ScenarioFlags& scenario, bool gpu, std::vector<RecordNote>& notes);

// The phases asked for, each word of a list ("train,decode") one; none: prefill.
std::vector<std::string> phases_of(const ScenarioFlags& flags);

// "1,2,4", "64:512:64", "1:128:x2": sorted as written (tools/ranges.hpp keeps them unexpanded). Throws Error(kUsage) when it cannot be parsed,
// Error(kInput) when it is empty, runs backwards, or holds more than a million values.
std::vector<std::int64_t> parse_range(const std::string& text, std::string_view flag);
Fraction parse_fraction_flag(const std::string& text, std::string_view flag);
DType parse_weight_dtype(const std::string& text);
Gate parse_gate(const std::string& text);
std::vector<std::string> split(const std::string& text, char at);

// ---- output ----

struct OutputFlags {
  std::string command;  // whose offer is checked (tools/output_offer.hpp)
  std::string format = "table";
  std::vector<std::string> save;
  bool ops = false;
  bool quiet = false;
  bool verbose = false;
  std::vector<std::string> columns;  // as typed: lists of glossary keys, or "all"
  int width = 0;
  std::string color = "auto";
};
void add_output_flags(CLI::App& app, OutputFlags& flags);
// --columns, for commands whose result is a record.
void add_columns_flag(CLI::App& app, OutputFlags& flags);

// Prints the record to stdout in the asked format and writes every --save file (format by extension). Returns the exit code.
int emit(const Record& record, const OutputFlags& flags);
// Forms in which a document is something else than its tables; empty: as emit_document says.
struct OtherForms {
  std::function<std::string()> json, csv;
  const Document* data = nullptr;  // what json and csv are made of, where a page writes its figures for people
  // Pages (md, html) of a computed result say first what was asked ("prefill, batch 1"; no end), last by what it was made; empty: they do not.
  std::string asked;
  Figures environment;  // facts of the machine, where something ran on it
  bool ops = false;     // --ops was read; else it is said that it was not
};
// The same for a document that is no record (lists, explanations): table, md, html; csv gives its first table, json its tables.
int emit_document(const Document& document, const OutputFlags& flags, const OtherForms& forms = {});
// Writes the first line of a document that takes long to make (its title, or the header of its table, which `start` has already); emit_document() goes on after
// it. So a reader sees that something comes, and one that has gone is noticed. False: it has gone.
bool begin_document(const Document& start, const OutputFlags& flags, const OtherForms& forms = {});
// Checks -o and the --save names against what the command can write, before anything expensive runs.
void check_output_flags(const OutputFlags& flags);

// A fresh record for a command: version, arguments, time.
Record new_record(const std::string& command);
void remember_arguments(const std::vector<std::string>& arguments);
const std::vector<std::string>& remembered_arguments();
std::string utc_now();

// One line of progress on stderr, rewritten in place; silent unless stderr is a terminal (and not --quiet).
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  void show(const std::string& text, double share, double elapsed);  // share in [0, 1]: gives the ETA
  void clear();

 private:
  bool on_;
  bool shown_ = false;
  double last_ = -1;
};

// ---- commands: each adds its subcommand; the callback stores the exit code ----
void add_count(CLI::App& app, int& exit_code);
void add_predict(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_calibrate(CLI::App& app, int& exit_code);
void add_validate(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_list(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_trace(CLI::App& app, int& exit_code);
void add_audit(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_sweep(CLI::App& app, int& exit_code);
void add_completion(CLI::App& app, int& exit_code);

}  // namespace fathom
