// fathom predict, run and compare: time predicted, measured, and both side by side.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "reports/save.hpp"
#include "tools/generation.hpp"
#include "tools/gpu_table.hpp"
#include "tools/interrupt.hpp"
#include "tools/plan_flags.hpp"
#include "tools/profile.hpp"
#include "tools/results.hpp"
#include "tools/timed.hpp"

namespace fathom {
namespace {

struct Flags {
  ModelFlags model;
  ScenarioFlags scenario;
  TimedFlags timed;
  TableFlags table;
  PlanFlags plan;
  ProfileFlags profile;
  OutputFlags output;
};

enum class Command { kPredict, kRun, kCompare };

std::vector<Result> make_results(const std::vector<Timed>& timed, const Machine* machine, Command command, const TimedFlags& flags, bool measured) {
  std::vector<Result> results;
  for (const Timed& each : timed) {
    Result result = counted_result(each.configuration.label, each.configuration.network, each.configuration.scenario, *each.workload);
    if (flags.threads > 0) result.scenario.set("threads", Cell::count(static_cast<u128>(flags.threads)));
    if (command != Command::kPredict) result.scenario.set("backend", Cell::text(flags.backend));
    if (machine && command != Command::kRun) add_prediction(result, each, *machine);
    if (measured) add_measurement(result, each);
    if (measured && machine) add_fractions(result, each, *machine, flags);
    if (measured && command == Command::kCompare) add_comparison(result, each);
    if (each.twin >= 0) add_pair(result, each, timed[static_cast<size_t>(each.twin)], machine && command != Command::kRun, measured);
    results.push_back(std::move(result));
  }
  return results;
}

void name_predictor(Record& record, const std::vector<Timed>& timed) {
  if (!timed.empty()) record.environment.set("predictor", Cell::text(std::string(predictor_name(timed.front().raw.predictor))));
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

void add_generations(Record& record, const std::vector<Configuration>& generations, const Machine* machine, Command command, const Flags& flags) {
  for (const Configuration& each : generations) {
    Result result = count_generation(each);
    if (machine && command != Command::kRun) predict_generation(result, each, *machine, flags.timed);
    if (command != Command::kPredict) run_generation(result, each, flags.timed, flags.output.quiet);
    record.results.push_back(std::move(result));
    if (interrupted()) break;
  }
}

// Time, activity and counters in processes of their own, joined here.
int run_profiled(const Flags& flags, Command command) {
  Record record = new_record(command == Command::kRun ? "run" : "compare");
  catch_interrupts();
  const int code = run_passes(flags.profile, flags.timed.backend, record);
  if (code != 0 && code != 130) return code;
  const int emitted = emit(record, flags.output);
  return code != 0 ? code : emitted;
}

// What such a child does: the same configurations under the profiler, counts and profiled figures only.
int run_profile_pass(const Flags& flags, Command command) {
  Record record = new_record(command == Command::kRun ? "run" : "compare");
  const bool predicts = command != Command::kRun && flags.timed.backend == "fake";  // the fake takes predicted times
  std::optional<Machine> machine;
  if (predicts) machine = resolve_machine(flags.timed.on, true);
  const bool gpu = machine ? machine->kind == MachineKind::kGpu : flags.timed.backend == "cuda";
  std::vector<Configuration> configurations = expand(flags.model, flags.scenario, gpu, record.notes);
  take_generations(configurations);
  std::vector<Timed> timed = make_timed(configurations);
  if (predicts) predict_all(timed, *machine, flags.timed);
  std::vector<Result> results = make_results(timed, nullptr, Command::kPredict, flags.timed, false);
  profile_pass(timed, flags.profile, flags.timed, results, record);
  record.results = std::move(results);
  return emit(record, flags.output);
}

int run_timed(const Flags& flags, Command command) {
  if (!flags.table.files.empty()) {
    if (!flags.model.models.empty()) throw Error(ErrorKind::kUsage, "predict takes a MODEL or a --table, not both", {}, "");
    TableFlags table = flags.table;
    table.on = flags.timed.on;
    return predict_tables(table, flags.output);
  }
  if (flags.model.models.empty()) throw Error(ErrorKind::kUsage, "MODEL is required", {}, "fathom list models");
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
    machine = resolve_machine(flags.timed.on, flags.output.quiet);
  if (machine && flags.timed.backend == "cpu" && command != Command::kPredict) check_isa(*machine);
  const bool gpu = machine ? machine->kind == MachineKind::kGpu : flags.timed.backend == "cuda";
  if (command == Command::kCompare && gpu && flags.timed.backend != "cuda" && flags.timed.backend != "fake")
    throw_input(fmt::format("'{}' is a GPU, but the ops run on the {} backend", machine->name, flags.timed.backend), {"", 0, "--on"}, "compare predicts for the machine that runs");
  std::vector<Configuration> configurations = expand(flags.model, flags.scenario, gpu, record.notes);
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
      twins.push_back(std::move(twin));
    }
    for (Timed& twin : make_timed(twins)) timed.push_back(std::move(twin));
    predict_all(timed, *machine, flags.timed);
    name_predictor(record, timed);
    record.results = make_results(timed, &*machine, command, flags.timed, false);
    record.results.resize(asked);
    for (size_t i = 0; i < asked; ++i) apply_plan(record.results[i], timed[i], *machine, flags.timed, flags.plan);
    add_generations(record, generations, &*machine, command, flags);
    return emit(record, flags.output);
  }
  if (predicts) {
    predict_all(timed, *machine, flags.timed);
    name_predictor(record, timed);
    record.predicted_at = utc_now();
    save_prediction_first(record, make_results(timed, &*machine, command, flags.timed, false), flags.output);
  }
  catch_interrupts();
  measure_all(timed, flags.timed, machine ? &*machine : nullptr, flags.output.quiet, record);
  describe_environment(record, timed, flags.timed);
  record.results = make_results(timed, machine ? &*machine : nullptr, command, flags.timed, true);
  if (flags.profile.mode == "events") conclude_profile(record, "events", backend(flags.timed.backend).timer(), {});
  add_generations(record, generations, machine ? &*machine : nullptr, command, flags);
  const int code = emit(record, flags.output);
  return interrupted() ? 130 : code;
}

void add_timed(CLI::App& app, int& exit_code, Command command, const char* name, const char* what, const char* examples) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = app.add_subcommand(name, what);
  add_model_flags(*sub, flags->model);
  add_scenario_flags(*sub, flags->scenario);
  if (command != Command::kRun) {
    add_predict_flags(*sub, flags->timed);
  } else {
    sub->add_option("--threads", flags->timed.threads, "threads [all physical cores]")->type_name("N")->group("Machine");
  }
  if (command == Command::kPredict) {
    add_plan_flags(*sub, flags->plan);
    add_table_flags(*sub, flags->table);
    sub->get_option("MODEL")->required(false);
  } else {
    add_measure_flags(*sub, flags->timed);
    add_profile_flags(*sub, flags->profile);
  }
  add_output_flags(*sub, flags->output);
  sub->footer(examples);
  sub->callback([flags, command, &exit_code] { exit_code = run_timed(*flags, command); });
}

}  // namespace

void add_predict(CLI::App& app, int& exit_code) {
  add_timed(app, exit_code, Command::kPredict, "predict", "step time, decode latency and memory on a machine; what binds each op",
            "Examples:\n  fathom predict mod-220m --on h200 --phase train --batch 8\n  fathom predict llama-3-8b --phase decode --batch 1:64:x2 --context 4096");
}
void add_run(CLI::App& app, int& exit_code) {
  add_timed(app, exit_code, Command::kRun, "run", "the same, measured by executing it here",
            "Examples:\n  fathom run mod-60m --ops\n  fathom run gpt2-124m --phase train --seq 1024 --threads 1");
}
void add_compare(CLI::App& app, int& exit_code) {
  add_timed(app, exit_code, Command::kCompare, "compare", "predicted against measured, per configuration and per op",
            "Examples:\n  fathom compare mod-60m dense-60m --backend cpu\n  fathom compare mod-220m dense-220m --seq 1024 --save report.md --ops");
}

}  // namespace fathom
