#include "tools/timed.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "kernels/cuda_host/loader.hpp"
#include "kernels/fake/backend.hpp"
#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "lib/predict/handover.hpp"
#include "lib/plan.hpp"
#include "models/builder.hpp"
#include "reports/format.hpp"
#include "tools/interrupt.hpp"
#include "tools/observer.hpp"
#include "tools/results.hpp"
#include "tools/routing_view.hpp"

namespace fathom {
namespace {

constexpr double kLate = 1.25;                // of the time that was given: beyond, it is said
constexpr std::int64_t kMostMapped = 16384;  // tokens of a routing map in a record

// The virtual clock of fake executions: each op takes its predicted time, so a measurement repeats the prediction to the digit.
class FakeClock : public Clock {
 public:
  explicit FakeClock(const std::vector<Execution*>& executions) {
    for (Execution* execution : executions)
      if (auto* fake = dynamic_cast<FakeExecution*>(execution)) fakes_.push_back(fake);
  }
  bool active() const { return !fakes_.empty(); }
  double now() override {
    double sum = 0;
    for (const FakeExecution* fake : fakes_) sum += fake->virtual_now();
    return sum;
  }

 private:
  std::vector<FakeExecution*> fakes_;
};

}  // namespace

void follow_prediction(Execution& execution, const StepPrediction& prediction) {
  auto* fake = dynamic_cast<FakeExecution*>(&execution);
  if (!fake || prediction.workload.empty()) return;
  std::vector<double> times;
  for (const Instance& instance : execution.workload().instances()) times.push_back(prediction.ops[instance.op].each.seconds);
  fake->set_times(std::move(times));
}

std::unique_ptr<Execution> bind_timed(const Backend& runner, const Timed& timed, const TimedFlags& flags, bool vary_tokens, bool graph, std::int64_t beside) {
  BindOptions options;
  options.threads = flags.threads;
  options.seed = flags.seed;
  options.norm_epsilon = timed.configuration.network.norm_epsilon;
  options.graph = graph ? graph_mode(flags.launch, timed.configuration.scenario.phase == Phase::kDecode) : GraphMode::kNone;
  options.fill = timed.configuration.scenario.phase == Phase::kTrain ? FillKind::kTraining : FillKind::kTest;
  options.measured = true;
  options.beside = beside;
  options.stop = interrupted;
  std::unique_ptr<Execution> execution = runner.bind(*timed.workload, options);
  // A decode step stands for many tokens: new ones each pass, thresholds centred on the wanted participation.
  if (timed.configuration.scenario.phase == Phase::kDecode) {
    execution->vary_tokens(vary_tokens);
    execution->calibrate_participation();
  }
  return execution;
}

namespace {

// One pass more, outside the measurement, shows which tokens were routed. A fake execution makes no selection.
void read_routing_of(Timed& timed) {
  const std::int64_t tokens = timed.workload->stream().queries;
  if (timed.configuration.scenario.phase != Phase::kPrefill || !timed.configuration.network.has_routes() || tokens > kMostMapped) return;
  if (dynamic_cast<FakeExecution*>(timed.execution.get())) return;
  timed.routing = routing_record(run_and_read_routing(*timed.execution, tokens));
}

}  // namespace

namespace {

constexpr double kMostSeconds = 1e6;

// A measurement takes some time: 0 is refused and not taken for the default.
std::string seconds_to_measure(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return fmt::format("'{}' is not a number of seconds, such as 5", text.substr(0, 80));
  if (value > 0 && value <= kMostSeconds) return {};
  return fmt::format("'{}' is not in range: seconds, more than 0 and at most {}", text, kMostSeconds);
}

}  // namespace

void add_predict_flags(CLI::App& app, TimedFlags& flags) {
  app.add_option("--on", flags.on, "machine: built-in name or file [this machine]")->type_name("MACHINE")->group("Machine");
  app.add_option("--predictor", flags.predictor, "light, roofline or calibrated [calibrated where the machine is]")->type_name("P")->check(known_names("--predictor", parse_predictor))->group("Machine");
  app.add_option("--launch", flags.launch, "GPU: graph, buckets (graphs by row count), eager or auto (decode steps are graphs) [auto]")->type_name("HOW")->check(CLI::IsMember({"auto", "graph", "buckets", "eager"}))->group("Machine");
  app.add_option("--kernels", flags.kernels, "GPU: attention backward as our own kernels or as a library's [own]")->type_name("WHOSE")->check(CLI::IsMember({"own", "library"}))->group("Machine");
  app.add_option("--threads", flags.threads, "threads [all physical cores]")->type_name("N")->check(CLI::Range(1, 4096))->group("Machine");
}

void add_measure_flags(CLI::App& app, TimedFlags& flags) {
  app.add_option("--backend", flags.backend, "cpu, reference, fake or cuda [cpu]")->type_name("B")->check(known_names("--backend", check_backend_name))->group("Machine");
  app.add_option("--time", flags.time, "seconds to measure all configurations together, beside loading; 12 passes of each at least [10 for each]")->type_name("S")->check(seconds_to_measure)->group("Machine");
  app.add_option("--rounds", flags.rounds, "exact number of rounds instead [by time]")->type_name("N")->check(CLI::Range(1, 1000000))->group("Machine");
  app.add_option("--seed", flags.seed, "of weights, tokens and random routing [1]")->type_name("N")->group("Machine");
  add_temperature_flag(app, flags);
}

void add_temperature_flag(CLI::App& app, TimedFlags& flags) {
  app.add_option("--temperature", flags.temperature, "phase generate: of the tokens that are drawn; 0: always the likeliest, which without trained weights repeats itself [1]")->type_name("T")->check(number_in(0, 1000))->group("Machine");
}

GraphMode graph_mode(const std::string& launch, bool decode) {
  if (launch == "buckets") return GraphMode::kBuckets;
  return launch == "graph" || (launch == "auto" && decode) ? GraphMode::kWhole : GraphMode::kNone;
}

std::vector<Timed> make_timed(const std::vector<Configuration>& configurations) {
  std::vector<Timed> timed(configurations.size());
  std::vector<TwinKey> keys;
  for (const Configuration& configuration : configurations) keys.push_back({&configuration.network, &configuration.scenario});
  for (size_t i = 0; i < configurations.size(); ++i) {
    timed[i].configuration = configurations[i];
    timed[i].workload = std::make_shared<Workload>(build(configurations[i].network, configurations[i].scenario));
    if (configurations[i].network.has_routes()) timed[i].twin = find_twin(keys, i);
  }
  return timed;
}

PredictOptions predict_options(const Machine& machine, const TimedFlags& flags) {
  PredictOptions options;
  const int threads = flags.threads > 0 ? flags.threads : machine.default_threads();
  const auto fitted = [threads](const auto& each) { return each.threads == threads; };
  const bool calibrated = machine.gpu_fit || std::any_of(machine.class_fits.begin(), machine.class_fits.end(), fitted) || std::any_of(machine.gemm_curves.begin(), machine.gemm_curves.end(), fitted);
  options.predictor = flags.predictor.empty() ? (calibrated ? PredictorKind::kCalibrated : PredictorKind::kRoofline) : parse_predictor(flags.predictor);
  options.launch = flags.launch == "graph" || flags.launch == "buckets" ? LaunchMode::kGraph : flags.launch == "eager" ? LaunchMode::kEager : LaunchMode::kAuto;
  options.library_kernels = flags.kernels == "library";
  options.threads = flags.threads;
  return options;
}

void check_dtype(const Machine& machine, const Scenario& scenario) {
  // Peaks of f64 and of integers are in some machine files, but no kernel computes in them and nothing was fitted to them.
  const DType type = scenario.dtype;
  const bool known = type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
  if (known && (machine.kind != MachineKind::kGpu || machine.peak(type))) return;
  throw_input(fmt::format("nothing can be predicted in {} on {}: {}", dtype_name(type), machine.name, known ? "its file has no peak for that type" : "no kernel computes in that type"), {"", 0, "dtype"},
              "f32 and bf16 can be run and predicted; fathom count takes any type");
}

void predict_all(std::vector<Timed>& timed, const Machine& machine, const TimedFlags& flags, bool to_measure) {
  PredictOptions raw = predict_options(machine, flags), bracketed = raw, light = raw;
  bracketed.bytes_between_ops = kReferenceBytes;
  light.predictor = PredictorKind::kLight;
  const Placement lie = placement_of(machine, raw.threads > 0 ? raw.threads : machine.default_threads());
  std::optional<Machine> otherwise;
  if (to_measure && raw.predictor == PredictorKind::kCalibrated && lie != Placement::kUnknown) otherwise = placed(machine, lie == Placement::kApart ? Placement::kTogether : Placement::kApart);
  for (Timed& each : timed) {
    check_dtype(machine, each.configuration.scenario);
    each.raw = predict(*each.workload, machine, raw);
    each.bracketed = predict(*each.workload, machine, bracketed);
    each.light = predict(*each.workload, machine, light);
    if (!otherwise) continue;
    each.raw_otherwise = predict(*each.workload, *otherwise, raw);
    each.bracketed_otherwise = predict(*each.workload, *otherwise, bracketed);
    each.raw_otherwise.machine_hash = each.bracketed_otherwise.machine_hash = each.raw.machine_hash;  // of one file
  }
}

void choose_placement(Timed& each) {
  if (each.bracketed_otherwise.workload.empty() || each.measurement.placement != each.bracketed_otherwise.placement) return;
  std::swap(each.raw, each.raw_otherwise);
  std::swap(each.bracketed, each.bracketed_otherwise);
}

void measure_all(std::vector<Timed>& timed, const TimedFlags& flags, const Machine* machine, bool quiet, Record& record) {
  const Backend& runner = backend(flags.backend);
  for (const Timed& each : timed) {
    const Scenario& s = each.configuration.scenario;
    const std::int64_t reach = s.phase == Phase::kDecode ? s.context : s.past + s.length;
    const Network& network = each.configuration.network;
    if (network.positions == PositionKind::kLearned && reach > network.max_length)
      throw_input(fmt::format("{} has {} learned positions and cannot run {}", network.name, network.max_length, reach), {"", 0, "seq"}, "use a shorter --seq or --context");
  }
  // Twins are measured together, round by round; unrelated configurations one after the other, so that memory stays small.
  std::vector<std::vector<size_t>> groups;
  std::vector<bool> placed(timed.size(), false);
  for (size_t i = 0; i < timed.size(); ++i) {
    if (placed[i]) continue;
    std::vector<size_t> group = {i};
    placed[i] = true;
    for (size_t j = 0; j < timed.size(); ++j) {
      const bool related = !placed[j] && (timed[j].twin == static_cast<int>(i) || timed[i].twin == static_cast<int>(j) || (timed[i].twin >= 0 && timed[i].twin == timed[j].twin));
      if (!related) continue;
      group.push_back(j);
      placed[j] = true;
    }
    groups.push_back(group);
  }
  const double budget = flags.time > 0 ? flags.time : 10.0 * static_cast<double>(timed.size());
  Progress progress(quiet);
  const double begin = system_clock().now();
  double done = 0;
  for (const std::vector<size_t>& group : groups) {
    const double share = static_cast<double>(group.size()) / static_cast<double>(timed.size());
    try {
      std::vector<Execution*> executions;
      std::int64_t beside = 0;  // what is not bound yet
      for (size_t i : group) beside += plan_memory(*timed[i].workload).arena;
      for (size_t i : group) {
        beside -= plan_memory(*timed[i].workload).arena;
        timed[i].execution = bind_timed(runner, timed[i], flags, true, true, beside);
        executions.push_back(timed[i].execution.get());
      }
      MeasureOptions measure_options;
      if (machine) measure_options.nominal = machine->references;
      measure_options.seconds = budget * share;
      if (flags.rounds > 0) measure_options.min_rounds = measure_options.max_rounds = static_cast<int>(flags.rounds);
      measure_options.interrupted = interrupted;
      measure_options.progress = [&](const MeasureProgress& p) {
        std::string text = fmt::format("measuring {} ({}, round {})", timed[group[0]].configuration.label, p.stage, p.round);
        for (size_t k = 0; k < p.so_far.size(); ++k) text += (k == 0 ? ", so far " : " / ") + format_value(p.so_far[k], Unit::kSeconds, 3);
        progress.show(text, (done + share * p.share), system_clock().now() - begin);
      };
      const std::unique_ptr<MachineObserver> observer = make_observer(flags.backend);
      FakeClock fake(executions);
      for (size_t k = 0; k < group.size(); ++k) follow_prediction(*executions[k], timed[group[k]].raw);
      const double planned = measure_options.seconds;
      std::vector<Measurement> measured = measure(executions, measure_options, fake.active() ? static_cast<Clock&>(fake) : system_clock(), observer.get());
      for (size_t k = 0; k < group.size(); ++k) {
        Timed& each = timed[group[k]];
        each.measurement = std::move(measured[k]);
        choose_placement(each);
        if (!each.raw.workload.empty()) each.comparison = compare(*each.workload, each.bracketed, each.raw, each.light, each.measurement);
      }
      if (timed[group[0]].measurement.interrupted) throw Stopped();
      if (const double spent = timed[group[0]].measurement.seconds_spent; flags.time > 0 && !flags.shared_time && flags.rounds == 0 && !fake.active() && spent > kLate * planned)
        for (size_t i : group)
          timed[i].notes.push_back({Note::Severity::kNote, fmt::format("the least number of passes{} took {:.1f} s, more than the {:.1f} s that --time leaves for {}", group.size() > 1 ? " of it and its twin" : "", spent, planned,
                                                                       group.size() > 1 ? "both" : "it")});
      for (size_t i : group) {
        read_routing_of(timed[i]);
        timed[i].allocated = timed[i].execution->allocated_bytes();
        timed[i].execution.reset();
      }
    } catch (const Stopped&) {
      record.note("interrupted: the figures are of the rounds that were complete", Note::Severity::kWarning);
      break;
    }
    done += share;
  }
}

}  // namespace fathom
