// fathom sweep: count, predict or compare over ranges of anything, streaming rows.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "lib/error.hpp"
#include "models/count/convention.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/text.hpp"
#include "tools/convention.hpp"
#include "tools/count_run.hpp"
#include "tools/defaults.hpp"
#include "tools/generation.hpp"
#include "tools/host.hpp"
#include "tools/interrupt.hpp"
#include "tools/machines.hpp"
#include "tools/output_offer.hpp"
#include "tools/results.hpp"
#include "tools/sweep_run.hpp"
#include "tools/timed.hpp"
#include "tools/unused_flags.hpp"
#include "tools/version.hpp"

namespace fathom {
namespace {

struct SweepArgs {
  SweepModelFlags model;
  ScenarioFlags scenario;
  OutputFlags output;
  TimedFlags timed;
  std::string what = "count";
  std::vector<std::string> columns;
  std::string pareto, sort;
  std::string mtp, expert_skew, expert_loads;  // as --set
  std::string step_time, peak, devices;        // refused
  std::string convention, run_tokens;
  std::optional<std::int64_t> top;
  std::optional<int> jobs;
  bool resume = false, exact = false;
};

bool of_one_kind(const std::vector<Machine>& machines) {
  return std::all_of(machines.begin(), machines.end(), [&](const Machine& each) { return each.kind == machines[0].kind; });
}

SweepKind parse_kind(const std::string& word) {
  const std::vector<std::string> words = {"count", "predict", "compare"};
  for (std::size_t i = 0; i < words.size(); ++i)
    if (word == words[i]) return static_cast<SweepKind>(i);
  throw_input(fmt::format("unknown kind of sweep '{}'", word), {"", 0, "--do"}, name_hint(word, words));
}

// A column as tables head it.
std::string label_of(const std::string& key) {
  const Column* column = find_column(key);
  return column ? std::string(column->label) : key;
}

// One table of kept rows. `brief`, for people: first what tells the rows apart and what ranks them; what is the same in all of them is said below. Else all columns in
// the order of the file.
ReportTable kept_table(const std::string& key, const std::string& title, const std::vector<SweepFront::Entry>& entries, const RowWriter& writer, const std::vector<Objective>& ranked, bool brief) {
  ReportTable table(key, title);
  const auto ranks = [&](const std::string& name) { return std::any_of(ranked.begin(), ranked.end(), [&](const Objective& objective) { return objective.key == name; }); };
  std::vector<std::vector<Cell>> rows;
  for (const SweepFront::Entry& entry : entries) rows.push_back(writer.read(entry.line));
  const auto varies = [&](std::size_t c) { return std::any_of(rows.begin(), rows.end(), [&](const std::vector<Cell>& row) { return exact_text(row[c]) != exact_text(rows[0][c]); }); };
  struct Shown {
    std::size_t from;  // the cell of a row
    std::string key;
    Unit unit;
    int priority;
  };
  std::vector<Shown> shown;
  std::string same;
  const auto take = [&](std::size_t c, const std::string& name, Unit unit, int priority) {
    if (!brief || rows.size() < 2 || varies(c) || ranks(name)) return shown.push_back({c, name, unit, priority});
    const ReportColumn column{name, label_of(name), find_column(name) ? find_column(name)->unit : unit, 0};
    if (!rows[0][c].empty()) same += fmt::format("{}{} {}", same.empty() ? "The same in every row: " : ", ", column.label, cell_text(rows[0][c], column));
  };
  const std::size_t keys = writer.keys().size();
  for (std::size_t c = 0; c < keys; ++c) take(c, writer.keys()[c].key, writer.keys()[c].unit, rows.size() > 1 ? 1 : 2);
  for (std::size_t f = 0; f < writer.figures().size(); ++f) {
    const std::string& figure = writer.figures()[f];
    take(keys + f, figure, Unit::kNone, ranks(figure) ? 0 : figure == "flops_matmul" || figure == "predicted_s" || figure == "measured_s" ? 2 : 3);
  }
  if (!brief)  // who made them, as in the file
    for (std::size_t m = 0; m < writer.made().size(); ++m) shown.push_back({keys + writer.figures().size() + m, writer.made()[m].first, Unit::kText, 6});
  if (brief) std::stable_sort(shown.begin(), shown.end(), [&](const Shown& a, const Shown& b) { return (a.from < keys ? 0 : ranks(a.key) ? 1 : 2) < (b.from < keys ? 0 : ranks(b.key) ? 1 : 2); });
  for (const Shown& each : shown) {
    if (find_column(each.key)) table.add_column(each.key).priority = each.priority;
    else table.add_column(ReportColumn{each.key, each.key, each.unit, each.priority});
  }
  if (!same.empty()) table.caption = same + ".";
  for (const std::vector<Cell>& row : rows) {
    std::vector<Cell> cells;
    for (const Shown& each : shown) cells.push_back(row[each.from]);
    table.add_row(std::move(cells));
  }
  return table;
}

std::string names_of(const std::vector<Objective>& objectives) {
  std::string text;
  for (const Objective& objective : objectives) text += (text.empty() ? "" : ", ") + std::string(objective.maximise ? "most " : "least ") + label_of(objective.key);
  return text;
}

// One configuration predicted and measured, its figures by key. Configurations are measured one after the other: each has the machine for itself.
// A generation, predicted and run token by token.
Result measured_generation(const Configuration& c, const Machine& machine, const SweepArgs& flags, const std::string& convention) {
  Result result = count_generation(c);
  apply_convention(convention, c.network, c.scenario, result);
  predict_generation(result, c, machine, flags.timed);
  run_generation(result, c, flags.timed, true);
  if (interrupted()) throw Stopped();
  return result;
}

MeasureRow measure_with(const Machine& machine, const SweepArgs& flags) {
  return [&machine, &flags](const SweepPoint& point, const std::vector<std::string>& keys) {
    const Configuration configuration{*point.network, point.scenario, point.network->name};
    const std::string convention(point.convention);
    Result result;
    if (point.scenario.phase == Phase::kGenerate) {
      result = measured_generation(configuration, machine, flags, convention);
    } else {
      std::vector<Timed> timed = make_timed({configuration});
      predict_all(timed, machine, flags.timed, true);
      Record record;
      measure_all(timed, flags.timed, &machine, true, record);
      // Half a measurement is no row: --resume measures it again.
      if (timed[0].measurement.workload.empty() || timed[0].measurement.interrupted) throw Stopped();
      result = counted_result(configuration.label, configuration.network, configuration.scenario, *timed[0].workload);
      apply_convention(convention, configuration.network, configuration.scenario, result);
      RunFlags run;
      run.run_tokens = flags.run_tokens;
      apply_run(run, configuration.network, configuration.scenario, result);
      add_prediction(result, timed[0], machine);
      add_measurement(result, timed[0]);
      add_comparison(result, timed[0]);
    }
    result.totals.set("convention_flops", result.convention_flops);
    std::vector<SweepValue> values(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Cell* cell = result.totals.find(keys[i]);
      SweepValue& value = values[i];
      if (!cell) continue;
      if (const u128* count = cell->exact()) value.kind = SweepValue::Kind::kCount, value.count = *count;
      if (const double* number = cell->real()) value.kind = SweepValue::Kind::kNumber, value.number = *number;
      if (const std::string* words = cell->words()) value.kind = SweepValue::Kind::kText, value.text = *words;
    }
    return values;
  };
}

// The file that takes the rows leaves `flags`; what is left are pages of the tables of --pareto and --top. Empty: the rows go to stdout, or nowhere.
std::string take_row_file(OutputFlags& flags, bool keeps) {
  std::string path;
  std::vector<std::string> pages;
  check_output_flags(flags);
  for (const std::string& file : flags.save) {
    const std::string format = format_of_file(file);
    const bool rows = format == "csv" || format == "jsonl";
    if (!rows && !keeps) throw_input(fmt::format("the rows of a sweep cannot be saved as '{}'", file), {"", 0, "--save"}, "end the name in .csv or .jsonl; --pareto and --top have tables that .md, .json, .html and .txt take");
    if (rows && !path.empty()) throw Error(ErrorKind::kUsage, "a sweep writes its rows to one file", {}, fmt::format("leave out --save {} or --save {}", path, file));
    if (rows) path = file;
    else pages.push_back(file);
  }
  flags.save = pages;
  return path;
}

// `format`: empty where -o was not typed.
void check_sweep_format(const std::string& format, bool keeps, const std::string& path) {
  if (keeps && format == "jsonl") throw_input("tables are not printed as jsonl", {"", 0, "-o"}, "table, md, csv, json or html; rows as jsonl go to --save FILE.jsonl");
  if (keeps || format.empty() || format == "csv" || format == "jsonl") return;
  throw_input(fmt::format("rows of a sweep are streamed as csv or jsonl, not {}", format), {"", 0, "-o"}, path.empty() ? "--pareto and --top print tables as table, md, csv, json or html" : "leave -o out: the rows go to the file");
}

// "1.2 s", "4 min".
std::string spent(double seconds) { return format_value(seconds, Unit::kSeconds, 2); }

// --on: names and files, joined by commas. Rows of measurements are of one machine, this one.
std::vector<Machine> machines_of(const SweepArgs& flags, SweepKind kind) {
  std::vector<Machine> machines;
  std::error_code none;
  const bool file = std::filesystem::exists(flags.timed.on, none);  // whose name may have commas
  for (const std::string& name : file ? std::vector<std::string>{flags.timed.on} : split(flags.timed.on, ',')) {
    machines.push_back(resolve_machine(name, flags.output.quiet));
    for (std::size_t i = 0; i + 1 < machines.size(); ++i)
      if (machines[i].name == machines.back().name) throw_input(fmt::format("two machines are called '{}': their rows could not be told apart", machines.back().name), {"", 0, "--on"}, "leave one out, or give its file another name under [machine]");
  }
  if (machines.size() > 1 && kind == SweepKind::kCompare) throw_input(fmt::format("'{}' is a list, but rows are measured on one machine", flags.timed.on), {"", 0, "--on"}, "--do predict takes lists of machines");
  if (!of_one_kind(machines) && flags.scenario.dtype.empty()) throw_input("CPUs are predicted in f32 and GPUs in bf16, so rows of both would differ in their type", {"", 0, "--on"}, "name the type: --dtype bf16");
  return machines;
}

// What ends a row: who made it. Rows that are counted or predicted follow from that and the machine; measured ones belong to a time and a CPU as well.
std::vector<std::pair<std::string, std::string>> made_by(SweepKind kind, const SweepArgs& flags) {
  std::string version = version_text();
  if (version.starts_with("fathom ")) version.erase(0, 7);
  std::vector<std::pair<std::string, std::string>> made = {{"fathom_version", version}};
  if (kind != SweepKind::kCompare) return made;
  made.emplace_back("started", utc_now());
  if (flags.timed.backend == "fake") return made;
  Figures host;
  set_host_facts(host, flags.timed.backend, flags.timed.threads);
  for (const char* key : {"cpu", "cores"})
    if (const Cell* cell = host.find(key)) made.emplace_back(key, exact_text(*cell));
  return made;
}

int run(const SweepArgs& flags, const CLI::App& command) {
  const SweepKind kind = parse_kind(flags.what);
  for (const auto& [flag, given] : {std::pair{"--step-time", &flags.step_time}, std::pair{"--peak", &flags.peak}, std::pair{"--devices", &flags.devices}})
    if (!given->empty())
      throw Error(ErrorKind::kUsage, fmt::format("{} is about a step of one configuration that was timed, and a sweep has many", flag), {}, "fathom count --step-time gives its MFU and HFU; --do predict and --do compare find times here");
  const bool keeps = !flags.pareto.empty() || flags.top;
  if (flags.jobs && *flags.jobs < 1) throw_input(fmt::format("must be at least 1, not {}", *flags.jobs), {"", 0, "--jobs"}, "leave it out for all cores");
  if (flags.top && *flags.top < 1) throw_input(fmt::format("must be at least 1, not {}", *flags.top), {"", 0, "--top"}, "leave it out for all rows");
  if (flags.top && flags.sort.empty()) throw Error(ErrorKind::kUsage, "--top needs --sort COLUMN", {}, "such as --top 10 --sort flops");
  if (!flags.top && !flags.sort.empty()) throw Error(ErrorKind::kUsage, "--sort orders the rows of --top N; rows themselves are streamed", {}, "add --top N");
  RowFormat format = RowFormat::kCsv;
  OutputFlags table_flags = flags.output;
  const std::string path = take_row_file(table_flags, keeps);
  if (format_of_file(path) == "jsonl") format = RowFormat::kJsonl;
  if (flags.resume && path.empty()) throw Error(ErrorKind::kUsage, "--resume continues a file", {}, "add --save FILE.csv");
  const bool rows_to_stdout = path.empty() && !keeps;
  if (flags.output.format == "jsonl" && path.empty()) format = RowFormat::kJsonl;
  check_sweep_format(command.count("-o") > 0 ? flags.output.format : "", keeps, path);

  const std::vector<Machine> machines = kind == SweepKind::kCount ? std::vector<Machine>() : machines_of(flags, kind);
  const Machine* const machine = machines.empty() ? nullptr : &machines[0];
  if (kind == SweepKind::kCount && !flags.timed.on.empty()) throw Error(ErrorKind::kUsage, "--on names a machine, but counts need none", {}, "add --do predict");
  const bool gpu = machine && machine->kind == MachineKind::kGpu;
  if (kind == SweepKind::kCompare && gpu && flags.timed.backend != "cuda")
    throw_input(fmt::format("'{}' is a GPU, but the ops run on the {} backend", machine->name, flags.timed.backend), {"", 0, "--on"}, "compare predicts for the machine that runs");
  if (kind != SweepKind::kCount && (!flags.scenario.weight_dtype.empty() || !flags.scenario.fusion.empty()))
    throw Error(ErrorKind::kUsage, "--weight-dtype and --fusion are counted, not predicted or run", {}, "leave --do out");
  std::vector<RecordNote> unread;
  note_unused_timed(command, {kind != SweepKind::kCount, kind == SweepKind::kCompare, of_one_kind(machines) ? machine : nullptr, flags.timed.rounds, " (--do predict does)", " (--do compare does)"}, unread);
  if (kind != SweepKind::kPredict) note_unused(command, {"--exact"}, kind == SweepKind::kCount ? "nothing is predicted (--do predict does)" : "a row that is measured is predicted as fathom compare does", unread);
  if (!keeps) note_unused(command, {"--ops", "--width", "--color"}, "rows are streamed as they are", unread);
  ScenarioFlags scenario = flags.scenario;
  scenario.counts = kind == SweepKind::kCount;
  SweepModelFlags model = flags.model;
  if (!flags.mtp.empty()) model.set.push_back("mtp=" + flags.mtp);
  if (!flags.expert_skew.empty() && !flags.expert_loads.empty()) throw Error(ErrorKind::kUsage, "--expert-skew and --expert-loads exclude each other");
  if (!flags.expert_loads.empty()) model.set.push_back("expert_loads=" + flags.expert_loads);
  if (!flags.expert_skew.empty()) model.set.push_back("expert_skew=" + flags.expert_skew);
  std::vector<std::string> names;
  for (const Machine& each : machines) names.push_back(each.name);
  const SweepSpace space(model, scenario, gpu, flags.convention, names);
  const u128 run_tokens = flags.run_tokens.empty() ? u128{0} : parse_tokens(flags.run_tokens);
  if (kind == SweepKind::kCompare && !space.has_phase(Phase::kGenerate)) note_unused(command, {"--temperature"}, "only --phase generate chooses tokens", unread);
  tell_notes(unread, flags.output.quiet);
  std::vector<Objective> objectives, by;
  if (!flags.pareto.empty()) objectives = parse_objectives(flags.pareto, kind);
  if (!flags.sort.empty()) by = parse_objectives(flags.sort, kind);
  if (by.size() > 1) throw Error(ErrorKind::kUsage, "--sort takes one column");
  std::vector<std::string> extra, columns;
  for (const std::vector<Objective>* list : {&objectives, &by})
    for (const Objective& objective : *list) extra.push_back(objective.key);
  if (!flags.convention.empty()) extra.emplace_back("convention_flops");
  if (!flags.run_tokens.empty())
    for (const char* key : {"run_steps", "run_flops"}) extra.emplace_back(key);
  for (const std::string& item : flags.columns)
    for (const std::string& name : split(item, ',')) columns.push_back(name);
  const RowWriter writer(format, space.columns(), figure_columns(kind, space, columns, extra), made_by(kind, flags));
  if (flags.run_tokens.empty() && std::any_of(writer.figures().begin(), writer.figures().end(), [](const std::string& key) { return key.starts_with("run_"); }))
    throw Error(ErrorKind::kUsage, "run_steps and run_flops are of a whole run", {}, "say how long it is: --phase train --run-tokens 300B");
  const auto new_keepers = [&] {
    SweepKeepers keepers;
    if (!objectives.empty()) keepers.front = std::make_unique<SweepFront>(objectives);
    if (!by.empty()) keepers.top = std::make_unique<SweepTop>(by[0], static_cast<std::size_t>(flags.top.value_or(0)));
    return keepers;
  };
  SweepKeepers keepers = new_keepers();

  std::vector<SweepMachine> timed_on;
  for (const Machine& each : machines) {
    timed_on.push_back({&each, predict_options(each, flags.timed)});
    timed_on.back().options.follow_placement = flags.exact;  // else residency by tensor: no memory plan per row
  }
  MeasureRow measure_row;
  if (kind == SweepKind::kCompare) measure_row = measure_with(*machine, flags);
  const auto make = [&] {
    return std::make_unique<RowEvaluator>(kind, writer.figures(), timed_on, measure_row ? &measure_row : nullptr, run_tokens);
  };
  catch_interrupts();
  SweepProgress before;
  if (flags.resume) {
    // What is measured cannot be worked out again; what is counted beside it can.
    const bool measured = kind == SweepKind::kCompare;
    const std::vector<std::string> counted = measured ? counted_keys(writer.figures()) : writer.figures();
    RowEvaluator check(measured ? SweepKind::kCount : kind, counted, timed_on, nullptr, run_tokens);
    const std::vector<std::string>* const known = measured ? &counted : nullptr;
    before = read_progress(path, space, writer, keepers, check, known);
    if (const std::vector<std::uint64_t> rows = before.unmeasured; !rows.empty()) {
      const std::string what = fmt::format("{} {} in {}", rows.size(), rows.size() == 1 ? "row without a measured time" : "rows without a measured time", path);
      if (!measure_again(path, space, writer, rows, *make(), interrupted)) {
        if (!flags.output.quiet) fmt::print(stderr, "fathom: interrupted; {}: continue with --resume\n", what);
        return 130;
      }
      if (!flags.output.quiet) fmt::print(stderr, "fathom: measured again: {}\n", what);
      keepers = new_keepers();
      before = read_progress(path, space, writer, keepers, check, known);
    }
  }
  if (!flags.output.quiet) {
    // A page of tables has its notes.
    if (!keeps || table_flags.format == "csv")
      for (const std::string& note : space.notes())
        if (!about_default(note)) fmt::print(stderr, "fathom: {}\n", note);
    if (flags.resume && before.rows > 0)
      fmt::print(stderr, "fathom: {} of {} rows are in {}{}\n", before.rows, space.rows(), path, before.dropped ? "; an unfinished last line was dropped" : "");
  }
  SweepOptions options;
  options.jobs = flags.jobs ? *flags.jobs : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (kind == SweepKind::kCompare) options.jobs = 1;
  options.chunk = kind == SweepKind::kCount ? 512 : kind == SweepKind::kPredict ? 16 : 1;
  options.jobs = static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(options.jobs), (space.rows() + options.chunk - 1) / options.chunk));
  options.jobs = std::max(1, options.jobs);
  options.first = before.rows;
  options.quiet = flags.output.quiet;
  options.interrupted = interrupted;
  const std::unique_ptr<SweepSink> sink = !path.empty() ? file_sink(path, before.bytes > 0, before.bytes) : rows_to_stdout ? stdout_sink() : no_sink();
  const SweepOutcome outcome = run_sweep(space, writer, make, options, *sink, keepers);

  if (outcome.done > 0 && outcome.failed == outcome.done && before.rows == before.failed && !outcome.interrupted)
    throw_input(fmt::format("none of the {} configurations can be evaluated; the first: {}", outcome.done + before.rows, outcome.first_failure));
  if (!flags.output.quiet && outcome.failed > 0)
    fmt::print(stderr, "fathom: {} of {} configurations have a status instead of figures; the first: {}\n", outcome.failed, outcome.done, outcome.first_failure);
  if (!flags.output.quiet && !outcome.interrupted && !path.empty() && outcome.seconds > 0)
    fmt::print(stderr, "fathom: {} rows in {}{}, {} ({} per second)\n", before.rows + outcome.done, path, before.rows > 0 ? fmt::format(", {} of them now", outcome.done) : "", spent(outcome.seconds),
               format_value(static_cast<double>(outcome.done) / outcome.seconds, Unit::kCount, 2));
  else if (flags.output.verbose && outcome.seconds > 0)
    fmt::print(stderr, "fathom: {} configurations in {:.3f} s, {:.0f} per second\n", outcome.done, outcome.seconds, static_cast<double>(outcome.done) / outcome.seconds);
  if (outcome.interrupted && !flags.output.quiet)
    fmt::print(stderr, "fathom: interrupted after {} of {} configurations{}\n", before.rows + outcome.done, space.rows(),
               path.empty() ? "" : before.rows + outcome.done > 0 ? "; continue with --resume" : fmt::format("; {} has no row, so there is nothing to continue", path));
  if (keeps && !outcome.closed) {
    Document document;
    document.title = fmt::format("Sweep of {} configurations", before.rows + outcome.done);
    const bool brief = table_flags.format != "csv" && table_flags.format != "json";
    if (keepers.front) document.add(kept_table("pareto", fmt::format("Pareto front: {}", names_of(objectives)), keepers.front->sorted(), writer, objectives, brief));
    if (keepers.top) document.add(kept_table("top", fmt::format("Top {}: {}", *flags.top, names_of(by)), keepers.top->sorted(), writer, by, brief));
    for (const std::string& note : space.notes()) document.note(note);
    OtherForms forms;
    const std::vector<std::string>& models = flags.model.models;
    forms.asked = fmt::format("{}, {}, {} configurations{}", models.size() > 6 ? fmt::format("{} models", models.size()) : fmt::format("{}", fmt::join(models, ", ")), flags.what, before.rows + outcome.done, names.empty() ? "" : fmt::format(", {} {}", names.size() == 1 ? "machine" : "machines", fmt::join(names, ", ")));
    if (kind == SweepKind::kCompare && flags.timed.backend != "fake") set_host_facts(forms.environment, flags.timed.backend, flags.timed.threads);
    emit_document(document, table_flags, forms);
  }
  return outcome.interrupted ? 130 : 0;
}

}  // namespace

void add_sweep(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SweepArgs>();
  CLI::App* command = app.add_subcommand("sweep", "count, predict or compare over ranges; streaming rows, Pareto front");
  command->add_option("MODEL", flags->model.models, "built-in names, INI files or Hugging Face config.json")->required();
  command->add_option("--do", flags->what, "count, predict or compare [count]")->type_name("W")->group("Sweep");
  command->add_option("--set", flags->model.set, "vary a model key: width=512:2048:256, mlp=4*width, norm=rms,layer")
      ->allow_extra_args(false)->type_name("KEY=LIST")->group("Sweep");
  command->add_flag("--exact", flags->exact, "--do predict: each time as fathom predict gives it, from where tensors lie in memory; about 100 rows a second, hundreds of times fewer [each tensor has memory of its own: 0.2 % off in the median, up to 10 %]")->group("Sweep");
  command->add_option("--columns", flags->columns, "figures per row, such as flops,params,peak_bytes, or all [by --do]")->allow_extra_args(false)->type_name("C,...")->group("Sweep");
  command->add_option("--mtp", flags->mtp, "multi-token prediction modules that are counted; a list, as --set mtp=LIST [the model's]")->type_name("N")->group("More");
  command->add_option("--expert-skew", flags->expert_skew, "uneven expert loads; a list, as --set expert_skew=LIST [the model's]")->type_name("S")->group("More");
  command->add_option("--expert-loads", flags->expert_loads, "the same by numbers: 4+2+1+1,none; 4,2,1,1 is one value; as --set expert_loads=LIST [the model's]")->type_name("LIST")->group("More");
  command->add_flag("--strict", flags->model.strict, "config.json: an unknown key is an error")->group("More");
  // Known from fathom count: refused with the reason. An empty group hides them.
  command->add_option("--step-time", flags->step_time)->group("");
  command->add_option("--peak", flags->peak)->group("");
  command->add_option("--devices", flags->devices)->group("");
  command->add_option("--convention", flags->convention, "also give FLOPs as NAME counts them; a list (fathom explain convention lists all) [exact]")->type_name("NAME")->check(known_names("--convention", find_convention, ','))->group("Sweep");
  command->add_option("--run-tokens", flags->run_tokens, "train: tokens of a whole run, such as 300B; adds run_steps and run_flops [none]")->type_name("D")->group("Sweep");
  command->add_option("--pareto", flags->pareto, "print the front over columns (max:X) instead of all rows")->type_name("C,...")->group("Sweep");
  command->add_option("--top", flags->top, "print the N best rows by --sort instead of all rows")->type_name("N")->group("Sweep");
  command->add_option("--sort", flags->sort, "column of --top (min:X or max:X)")->type_name("C")->group("Sweep");
  command->add_option("--jobs", flags->jobs, "threads [all]")->type_name("N")->group("Sweep");
  command->add_flag("--resume", flags->resume, "continue the --save file where it ends")->group("Sweep");
  command->add_option("--mod-every", flags->model.mod_every, "MoD twins: route layer l where l mod M = M-1; a list [2]")->type_name("M")->group("MoD twin");
  command->add_option("--capacity", flags->model.capacity, "shares of the tokens: 1/8,0.25, 0.1:0.9:0.1; none: unrouted [1/8]")->type_name("F")->group("MoD twin");
  command->add_option("--slots", flags->model.slots, "absolute slots per sequence instead of a share; a list")->type_name("N")->group("MoD twin");
  command->add_option("--rounding", flags->model.rounding, "of capacity x tokens: floor, half-up, ceil; a list [floor]")->type_name("MODE")->group("MoD twin");
  command->add_option("--gate", flags->model.gate, "raw, sigmoid or none; a list [raw]")->type_name("G")->group("MoD twin");
  add_scenario_flags(*command, flags->scenario);
  add_counted_flags(*command, flags->scenario);
  add_predict_flags(*command, flags->timed);
  command->get_option("--on")->description("machine: built-in name or file; a list [this machine]");
  add_measure_flags(*command, flags->timed);
  add_output_flags(*command, flags->output);
  command->footer("Examples:\n  fathom sweep gpt2-124m --mod-every 2,4 --capacity 0.125:1:0.125 --save rows.csv\n"
                  "  fathom sweep dense-60m --set width=512:2048:256 --set heads=width/64 --pareto flops,max:params");
  command->callback([flags, command, &exit_code] { exit_code = run(*flags, *command); });
}

}  // namespace fathom
