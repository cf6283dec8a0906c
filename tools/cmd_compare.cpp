// fathom predict, run and compare: time predicted, measured, and both side by side.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "reports/save.hpp"
#include "tools/convention.hpp"
#include "tools/fail_on.hpp"
#include "tools/generation.hpp"
#include "tools/gpu_table.hpp"
#include "tools/interrupt.hpp"
#include "tools/plan_flags.hpp"
#include "tools/profile.hpp"
#include "tools/relative.hpp"
#include "tools/results.hpp"
#include "tools/text_run.hpp"
#include "tools/timed.hpp"
#include "tools/unused_flags.hpp"

namespace fathom {
namespace {

struct CompareArgs {
  ModelFlags model;
  ScenarioFlags scenario;
  TimedFlags timed;
  TableFlags table;
  PlanFlags plan;
  ProfileFlags profile;
  TextFlags text;
  std::vector<std::string> fail_on;
  OutputFlags output;
  std::string convention;
  bool with_twin = false;
};

enum class Command { kPredict, kRun, kCompare };

std::vector<Result> make_results(const std::vector<Timed>& timed, const Machine* machine, Command command, const TimedFlags& flags, bool measured) {
  std::vector<Result> results;
  for (const Timed& each : timed) {
    Result result = counted_result(each.configuration.label, each.configuration.network, each.configuration.scenario, *each.workload);
    if (flags.threads > 0) result.scenario.set("threads", Cell::count(static_cast<u128>(flags.threads)));
    if (command != Command::kPredict) result.scenario.set("backend", Cell::text(flags.backend));
    if (machine && command != Command::kRun) add_prediction(result, each, *machine);
    const bool ran = measured && !each.measurement.workload.empty();  // an interrupt leaves the later ones without
    if (measured && !ran) result.totals.set("measured_s", Cell::status("interrupted"));
    if (ran) add_measurement(result, each);
    result.notes.insert(result.notes.end(), each.notes.begin(), each.notes.end());
    if (ran) add_fractions(result, each, machine, flags);
    if (ran && command == Command::kCompare) add_comparison(result, each);
    if (each.twin >= 0) add_pair(result, each, timed[static_cast<size_t>(each.twin)], machine && command != Command::kRun, measured);
    results.push_back(std::move(result));
  }
  return results;
}

// Ratios of models that are no twins. Generations, which stand behind the steps, have no twins.
void set_relatives(Record& record, const std::vector<Timed>& timed) {
  add_relatives(record.results, [&](size_t a, size_t b) {
    return a < timed.size() && b < timed.size() && (timed[a].twin == static_cast<int>(b) || timed[b].twin == static_cast<int>(a));
  });
}

constexpr const char* kCeilings = "predicted is what the probed ceilings allow, and real kernels stay below them: `fathom calibrate` (minutes) fits this machine, and predictions are then of its kernels";

void name_predictor(Record& record, const Machine& machine, const TimedFlags& flags) {
  const PredictorKind predictor = predict_options(machine, flags).predictor;
  record.environment.set("predictor", Cell::text(std::string(predictor_name(predictor))));
  if (predictor == PredictorKind::kRoofline && flags.predictor.empty() && flags.on.empty() && probe_doubts(machine).empty())
    record.note(kCeilings);
}

// Where a measurement beats what ceilings allow, or their probes are in doubt, nothing is said of what stays below them.
void drop_ceilings_note(Record& record) {
  const bool beaten = std::any_of(record.results.begin(), record.results.end(), [](const Result& r) { return r.totals.number("measured_s") < r.totals.number("predicted_s"); });
  if (beaten) std::erase_if(record.notes, [](const RecordNote& note) { return note.text == kCeilings; });
}

// Predictions go to disk before anything runs: a record that is interrupted, or doubted, shows what was predicted.
void save_prediction_first(Record record, const std::vector<Result>& results, const OutputFlags& flags) {
  record.results = results;
  record.note("predictions only: nothing has been run yet");
  for (const std::string& path : flags.save)
    if (std::filesystem::path(path).extension() == ".json") save_file(path, write_record(record));
}

// Generations have no single op list; they are handled one by one beside the steps.
std::vector<Configuration> take_generations(std::vector<Configuration>& all) {
  std::vector<Configuration> generations;
  for (const Configuration& each : all)
    if (each.scenario.phase == Phase::kGenerate) generations.push_back(each);
  std::erase_if(all, [](const Configuration& each) { return each.scenario.phase == Phase::kGenerate; });
  return generations;
}

void add_generations(Record& record, const std::vector<Configuration>& generations, const Machine* machine, Command command, const CompareArgs& flags) {
  for (const Configuration& each : generations) {
    Result result = count_generation(each);
    apply_convention(flags.convention, each.network, each.scenario, result);
    if (machine && command != Command::kRun) predict_generation(result, each, *machine, flags.timed);
    if (command != Command::kPredict) run_generation(result, each, flags.timed, flags.output.quiet);
    record.results.push_back(std::move(result));
    if (!interrupted()) continue;
    record.environment.set("stopped_by", Cell::text("interrupt"));
    break;
  }
}

// The dense twin of every routed model that has none beside it.
void add_dense_twins(std::vector<Configuration>& all) {
  const size_t asked = all.size();
  for (size_t i = 0; i < asked; ++i) {
    std::vector<TwinKey> keys;
    for (const Configuration& each : all) keys.push_back({&each.network, &each.scenario});
    if (!all[i].network.has_routes() || find_twin(keys, i) >= 0) continue;
    Configuration twin = all[i];
    twin.network = dense_twin(twin.network);
    twin.scenario = for_dense_twin(twin.network, twin.scenario);
    // What --mod-every has made of a dense model goes back to that model's name.
    const size_t made = twin.label.find("+mod(");
    twin.network.name = twin.label = made == std::string::npos ? twin.label + "-dense" : twin.label.substr(0, made);
    all.push_back(std::move(twin));
  }
}

// What is asked for, the twins of --with-twin last.
std::vector<Configuration> asked_configurations(const CompareArgs& flags, bool gpu, std::vector<RecordNote>& notes) {
  std::vector<Configuration> all = expand(flags.model, flags.scenario, gpu, notes);
  if (flags.with_twin) add_dense_twins(all);
  return all;
}

// Time, activity and counters in processes of their own, joined here.
int run_profiled(const CompareArgs& flags, Command command) {
  Record record = new_record(command == Command::kRun ? "run" : "compare");
  catch_interrupts();
  const int code = run_passes(flags.profile, flags.timed.backend, record);
  if ((code != 0 && code != 130) || record.results.empty()) return code;
  const std::vector<Condition> conditions = parse_conditions(flags.fail_on, false);
  const int emitted = emit(record, flags.output);
  return code != 0 ? code : fail_code(met(conditions, record), emitted);
}

// What such a child does: the same configurations under the profiler, counts and profiled figures only.
int run_profile_pass(const CompareArgs& flags, Command command) {
  Record record = new_record(command == Command::kRun ? "run" : "compare");
  const bool predicts = command != Command::kRun && flags.timed.backend == "fake";  // the fake takes predicted times
  std::optional<Machine> machine;
  if (predicts) machine = resolve_machine(flags.timed.on, true);
  const bool gpu = machine ? machine->kind == MachineKind::kGpu : flags.timed.backend == "cuda";
  std::vector<Configuration> configurations = asked_configurations(flags, gpu, record.notes);
  take_generations(configurations);
  std::vector<Timed> timed = make_timed(configurations);
  if (predicts) predict_all(timed, *machine, flags.timed);
  std::vector<Result> results = make_results(timed, nullptr, Command::kPredict, flags.timed, false);
  profile_pass(timed, flags.profile, flags.timed, results, record);
  record.results = std::move(results);
  return emit(record, flags.output);
}

// A saved record, and not a Hugging Face configuration: it says so in its first lines.
bool is_record(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::path(name).extension() != ".json" || !std::filesystem::is_regular_file(name, ignored)) return false;
  return load_file(name).substr(0, 200).find("\"schema\"") != std::string::npos;
}

// Options that this call has and that nothing in it reads.
void note_unread(const CLI::App& app, const CompareArgs& flags, Command command, const std::vector<Configuration>& configurations, const Machine* machine, std::vector<RecordNote>& notes) {
  note_unused_timed(app, {true, command != Command::kPredict, machine, flags.timed.rounds}, notes);
  const bool generates = std::all_of(configurations.begin(), configurations.end(), [](const Configuration& each) { return each.scenario.phase == Phase::kGenerate; });
  const bool steps = std::none_of(configurations.begin(), configurations.end(), [](const Configuration& each) { return each.scenario.phase == Phase::kGenerate; });
  if (steps && command != Command::kPredict) note_unused(app, {"--temperature"}, "only --phase generate chooses tokens", notes);
  if (generates) note_unused(app, {"--time", "--rounds"}, "a generation is run once, token by token", notes);
  if (std::none_of(configurations.begin(), configurations.end(), [](const Configuration& each) { return each.network.has_routes(); })) note_unused(app, {"--with-twin"}, "no model is routed", notes);
  if (generates) note_unused(app, {"--ops"}, kNoOpsOfGeneration, notes);
  if (command == Command::kRun) note_unused(app, {"--steps", "--learning-rate"}, "only training on a text (--corpus FILE) reads it", notes);
  if (command != Command::kPredict) return;
  note_unused(app, {"--grade", "--sustained"}, "only --table reads it", notes);
  if (!flags.plan.several()) note_unused(app, {"--zero", "--overlap", "--node", "--network", "--interleave"}, "the plan has one device (--dp, --tp, --pp, --ep)", notes);
}

int compare_saved(const CompareArgs& flags, const CLI::App& app) {
  const std::vector<std::string>& files = flags.model.models;
  const auto record = std::find_if(files.begin(), files.end(), is_record);
  for (const std::string& file : files)
    if (!is_record(file)) throw_input(fmt::format("'{}' is no record, but '{}' is", file, *record), {}, "compare takes models, or two records");
  if (files.size() != 2) throw_input(fmt::format("compare takes two records, not {}", files.size()), {}, "fathom report shows any number of records");
  const std::vector<Condition> conditions = parse_conditions(flags.fail_on, true);
  check_output_flags(flags.output);
  const Record before = read_record(load_file(files[0]), files[0]), after = read_record(load_file(files[1]), files[1]);
  refuse_mixed_counts({&before, &after}, files);
  RecordDifference difference = compare_records(before, after);
  std::vector<RecordNote> unread;
  note_all_but(app, {"--fail-on"}, "saved records are compared as they are", unread);
  note_unused(app, {"--columns"}, "a comparison of records has columns of its own", unread);
  for (const RecordNote& note : unread) difference.notes.push_back({note.severity, note.text});
  OtherForms forms;
  forms.ops = true;
  forms.asked = fmt::format("changes from {} to {}", files[0], files[1]);
  const Document data = view_difference(difference, files[0], files[1], flags.output.ops, true);
  forms.data = &data;
  emit_document(view_difference(difference, files[0], files[1], flags.output.ops), flags.output, forms);
  return fail_code(met(conditions, difference), 0);
}

int run_timed(const CompareArgs& flags, Command command, const CLI::App& app) {
  if (!flags.table.files.empty()) {
    if (!flags.model.models.empty()) throw Error(ErrorKind::kUsage, "predict takes a MODEL or a --table, not both", {}, "");
    TableFlags table = flags.table;
    table.on = flags.timed.on;
    std::vector<RecordNote> unread;
    note_all_but(app, {"--table", "--grade", "--sustained", "--on"}, "rows of a table say what is predicted", unread);
    note_unused(app, {"--columns"}, "the table has columns of its own", unread);
    tell_notes(unread, flags.output.quiet);
    return predict_tables(table, flags.output);
  }
  if (flags.model.models.empty()) throw Error(ErrorKind::kUsage, "MODEL is required", {}, "fathom list models");
  if (command == Command::kCompare && std::any_of(flags.model.models.begin(), flags.model.models.end(), is_record)) return compare_saved(flags, app);
  const std::vector<Condition> conditions = parse_conditions(flags.fail_on, false);
  if (!flags.text.file.empty()) {
    std::vector<RecordNote> unread;
    note_unused(app, {"--time", "--rounds", "--profile", "--columns"}, "training on a text (--corpus) is not timed", unread);
    return run_text(flags.text, flags.model, flags.scenario, flags.timed, flags.output, std::move(unread));
  }
  check_output_flags(flags.output);
  if (command != Command::kPredict) check_profile_flags(flags.profile, flags.timed.backend);
  if (starts_passes(flags.profile)) return run_profiled(flags, command);
  if (flags.profile.pass == "activity" || flags.profile.pass == "counters") return run_profile_pass(flags, command);
  const char* names[] = {"predict", "run", "compare"};
  Record record = new_record(names[static_cast<int>(command)]);
  const bool predicts = command != Command::kRun;
  std::optional<Machine> machine;
  // `run` on the CPU shows achieved rates as fractions of the probed ceilings, so it needs this machine's file too.
  if (flags.timed.backend == "cuda" && flags.timed.on.empty() && command != Command::kPredict)
    machine = this_gpu(predicts);
  else if (predicts || flags.timed.backend == "cpu")
    machine = resolve_machine(flags.timed.on, flags.output.quiet, &record.notes);
  if (machine && flags.timed.backend == "cpu" && command != Command::kPredict) check_isa(*machine);
  const bool gpu = machine ? machine->kind == MachineKind::kGpu : flags.timed.backend == "cuda";
  if (command == Command::kCompare && gpu && flags.timed.backend != "cuda" && flags.timed.backend != "fake")
    throw_input(fmt::format("'{}' is a GPU, but the ops run on the {} backend", machine->name, flags.timed.backend), {"", 0, "--on"}, "compare predicts for the machine that runs");
  std::vector<Configuration> configurations = asked_configurations(flags, gpu, record.notes);
  note_unread(app, flags, command, configurations, machine ? &*machine : nullptr, record.notes);
  const std::vector<Configuration> generations = take_generations(configurations);
  std::vector<Timed> timed = make_timed(configurations);
  if (command == Command::kPredict) {  // the dense twin is predicted along, so that a routed model always has its ratio
    const size_t asked = timed.size();
    std::vector<Configuration> twins;
    for (size_t i = 0; i < asked; ++i) {
      if (!timed[i].configuration.network.has_routes() || timed[i].twin >= 0) continue;
      timed[i].twin = static_cast<int>(asked + twins.size());
      Configuration twin = timed[i].configuration;
      twin.network = dense_twin(twin.network);
      twin.scenario = for_dense_twin(twin.network, twin.scenario);
      twins.push_back(std::move(twin));
    }
    for (Timed& twin : make_timed(twins)) timed.push_back(std::move(twin));
    predict_all(timed, *machine, flags.timed);
    name_predictor(record, *machine, flags.timed);
    record.results = make_results(timed, &*machine, command, flags.timed, false);
    record.results.resize(asked);
    for (size_t i = 0; i < asked; ++i) apply_plan(record.results[i], timed[i], *machine, flags.timed, flags.plan);
    for (size_t i = 0; i < asked; ++i) apply_convention(flags.convention, timed[i].configuration.network, timed[i].configuration.scenario, record.results[i]);
    add_generations(record, generations, &*machine, command, flags);
    set_relatives(record, timed);
    return emit(record, flags.output);
  }
  const auto is_realised = [](const Condition& condition) { return condition.kind == Condition::Kind::kRealised; };
  if (std::any_of(conditions.begin(), conditions.end(), is_realised) && std::none_of(timed.begin(), timed.end(), [](const Timed& each) { return each.twin >= 0; }))
    throw_input(kNoTwin, {"", 0, "--fail-on"}, "name it beside the routed model, such as mod-60m dense-60m, or add --with-twin");
  if (predicts) {
    predict_all(timed, *machine, flags.timed, true);
    name_predictor(record, *machine, flags.timed);
    std::vector<std::string> alone;
    for (const Timed& each : timed)
      if (each.configuration.network.has_routes() && each.twin < 0 && flags.profile.pass.empty() && std::find(alone.begin(), alone.end(), each.configuration.label) == alone.end()) alone.push_back(each.configuration.label);
    if (!alone.empty())
      record.note(fmt::format("{}: how much of the FLOPs saved becomes time is not told without {}: --with-twin runs {} too", fmt::join(alone, ", "), alone.size() == 1 ? "its dense twin" : "their dense twins",
                              alone.size() == 1 ? "it" : "them"));
    record.predicted_at = utc_now();
    save_prediction_first(record, make_results(timed, &*machine, command, flags.timed, false), flags.output);
  }
  catch_interrupts();
  measure_all(timed, flags.timed, machine ? &*machine : nullptr, flags.output.quiet, record);
  std::vector<const Timed*> all;
  for (const Timed& each : timed) all.push_back(&each);
  describe_environment(record, all, flags.timed);
  record.results = make_results(timed, machine ? &*machine : nullptr, command, flags.timed, true);
  drop_ceilings_note(record);
  if (flags.profile.mode == "events") conclude_profile(record, "events", backend(flags.timed.backend).timer(), {});
  add_generations(record, generations, machine ? &*machine : nullptr, command, flags);
  set_relatives(record, timed);
  const int code = emit(record, flags.output);
  return interrupted() ? 130 : fail_code(met(conditions, record), code);
}

void add_timed(CLI::App& app, int& exit_code, Command command, const char* name, const char* what, const char* examples) {
  auto flags = std::make_shared<CompareArgs>();
  CLI::App* sub = app.add_subcommand(name, what);
  add_model_flags(*sub, flags->model);
  add_scenario_flags(*sub, flags->scenario);
  if (command != Command::kRun) {
    add_predict_flags(*sub, flags->timed);
  } else {
    sub->add_option("--threads", flags->timed.threads, "threads [all physical cores]")->type_name("N")->check(CLI::Range(1, 4096))->group("Machine");
    add_text_flags(*sub, flags->text);
  }
  if (command == Command::kPredict) {
    add_convention_flag(*sub, flags->convention);
    add_plan_flags(*sub, flags->plan);
    add_table_flags(*sub, flags->table);
    sub->get_option("MODEL")->required(false);
  } else {
    add_measure_flags(*sub, flags->timed);
    add_profile_flags(*sub, flags->profile);
    sub->add_flag("--with-twin", flags->with_twin, "also run the dense twin of every routed model")->group("MoD twin");
  }
  if (command == Command::kCompare) {
    add_fail_on(*sub, flags->fail_on);
    sub->get_option("MODEL")->description("models (built-in name, INI file, config.json), or two saved records");
  }
  add_output_flags(*sub, flags->output);
  add_columns_flag(*sub, flags->output);
  sub->footer(examples);
  sub->callback([flags, command, sub, &exit_code] { exit_code = run_timed(*flags, command, *sub); });
}

}  // namespace

void add_predict(CLI::App& app, int& exit_code) {
  add_timed(app, exit_code, Command::kPredict, "predict", "step time, decode latency and memory on a machine; what binds each op",
            "Examples:\n  fathom predict mod-220m --on h200 --phase train --batch 8\n  fathom predict llama-3-8b --phase decode --batch 1:64:x2 --context 4096");
}
void add_run(CLI::App& app, int& exit_code) {
  add_timed(app, exit_code, Command::kRun, "run", "the same, measured by executing it here",
            "Examples:\n  fathom run mod-60m --ops\n  fathom run mod-tiny --phase train --batch 8 --corpus novel.txt --steps 300");
}
void add_compare(CLI::App& app, int& exit_code) {
  add_timed(app, exit_code, Command::kCompare, "compare", "predicted against measured, per configuration and per op; or two saved records",
            "Examples:\n  fathom compare mod-60m dense-60m --backend cpu --save today.json\n  fathom compare yesterday.json today.json --fail-on slower=5% --ops");
}

}  // namespace fathom
