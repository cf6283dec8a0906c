// Predicted configurations per second on one thread: train, prefill and decode, dense and routed, on a GPU with its fitted model and on a calibrated CPU.
//
//   bench_predict [--rounds N] [--cpu MACHINE.ini] [--only TEXT]
//
// Every sweep is that of `fathom sweep --do predict`: rows are counted, predicted, formatted as CSV and handed to a sink that drops them. A 24-layer model (dense-220m's
// shape), dense and with every second block routed at 1/8. `lengths x batches` is the usual sweep: products of lengths and batches recur, and so do shapes.
// `lengths` is the hardest one: no row shares a product with another. Rounds alternate over the sweeps; medians, minimum and maximum are printed. "one by one" predicts the
// first rows of the same sweep without anything remembered, each list made and walked in full. Seconds are those of the processor that the process used: everything runs
// on one thread, and what else the machine does takes the clock on the wall with it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "lib/error.hpp"
#include "lib/gpu/gpu_model.hpp"
#include "models/builder.hpp"
#include "models/machine_ini.hpp"
#include "tools/sweep_run.hpp"

using namespace fathom;

namespace {

struct Sweep {
  std::string name;
  const Machine* machine = nullptr;
  PredictorKind predictor = PredictorKind::kCalibrated;
  SweepModelFlags model;
  ScenarioFlags scenario;
};

// Seconds of processor time so far.
double used() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Sweep sweep(std::string name, const Machine& machine, bool routed, const char* phase, std::string lengths, std::string batches) {
  Sweep s;
  s.name = fmt::format("{}: {}, {}: {}", machine.name, routed ? "MoD" : "dense", phase, name);
  s.machine = &machine;
  s.model.models = {"dense-220m"};
  s.model.set = {"layers=24"};
  if (routed) s.model.mod_every = "2", s.model.capacity = "1/8";
  s.scenario.phases = {phase};
  (std::string(phase) == "decode" ? s.scenario.context : s.scenario.seq) = std::move(lengths);
  s.scenario.batch = std::move(batches);
  return s;
}

PredictOptions options_of(const Sweep& s) {
  PredictOptions options;
  options.predictor = s.predictor;
  options.follow_placement = false;
  return options;
}

SweepOutcome run(const Sweep& s) {
  const SweepSpace space(s.model, s.scenario, s.machine->kind == MachineKind::kGpu);
  const RowWriter writer(RowFormat::kCsv, space.columns(), figure_columns(SweepKind::kPredict, space, {}, {}));
  SweepKeepers keepers;
  SweepOptions options;
  options.chunk = 16;
  options.quiet = true;
  options.interrupted = [] { return false; };
  const auto sink = no_sink();
  const auto make = [&] { return std::make_unique<RowEvaluator>(SweepKind::kPredict, writer.figures(), std::vector<SweepMachine>{{s.machine, options_of(s)}}, nullptr); };
  const double start = used();
  SweepOutcome outcome = run_sweep(space, writer, make, options, *sink, keepers);
  outcome.seconds = used() - start;
  if (outcome.failed > 0) throw_input("a row of the benchmark failed: " + outcome.first_failure);
  return outcome;
}

// Rows of the sweep evenly spread, each built and predicted on its own.
double one_by_one(const Sweep& s, std::uint64_t count) {
  const SweepSpace space(s.model, s.scenario, s.machine->kind == MachineKind::kGpu);
  SweepPoint point;
  const double start = used();
  double sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    space.at(i * (space.rows() / count), point);
    sum += predict(build(*point.network, point.scenario), *s.machine, options_of(s)).seconds;
  }
  const double seconds = used() - start;
  return sum > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

int main(int count, char** words) {
  int rounds = 5;
  std::string cpu_file, only;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--rounds" && i + 1 < count) rounds = std::max(1, std::atoi(words[++i]));
    else if (word == "--cpu" && i + 1 < count) cpu_file = words[++i];
    else if (word == "--only" && i + 1 < count) only = words[++i];
    else return fmt::print(stderr, "bench_predict [--rounds N] [--cpu MACHINE.ini] [--only TEXT]\n"), 2;
  }
  const Machine gpu = load_machine("h200");
  // Physics form alone: the fitted forms without the trees that correct them.
  Machine physics = gpu;
  physics.name = "h200, physics form";
  physics.gpu_fit = GpuFit("physics", [&gpu] {
    fathom::gpu::GpuModel model = gpu.gpu_fit.model();
    for (fathom::gpu::OpModel& op : model.ops) op.residual = {};
    return model;
  });
  Machine cpu;
  if (!cpu_file.empty()) cpu = load_machine(cpu_file), cpu.name = "CPU";
  std::vector<Sweep> sweeps;
  const auto add = [&](Sweep s) {
    if (s.name.find(only) != std::string::npos) sweeps.push_back(std::move(s));
  };
  std::vector<const Machine*> machines = {&physics, &gpu};
  if (!cpu_file.empty()) machines.push_back(&cpu);
  for (const Machine* machine : machines) {
    for (const bool routed : {false, true}) {
      add(sweep("lengths x batches", *machine, routed, "prefill", "64:8192:64", "1:96"));
      add(sweep("lengths x batches", *machine, routed, "train", "64:4096:64", "1:64"));
      add(sweep("contexts x batches", *machine, routed, "decode", "64:4096:64", routed ? "1:32" : "1:64"));
      add(sweep("lengths", *machine, routed, "prefill", "1:4000", "1"));
      add(sweep("lengths", *machine, routed, "train", "1:2000", "1"));
    }
  }
  std::vector<std::vector<double>> rates(sweeps.size());
  std::vector<std::uint64_t> rows(sweeps.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < sweeps.size(); ++i) {
      const SweepOutcome outcome = run(sweeps[i]);
      rows[i] = outcome.done;
      rates[i].push_back(static_cast<double>(outcome.done) / outcome.seconds);
    }
  fmt::print("{:58} {:>9} {:>12} {:>12} {:>12} {:>12}\n", "configurations per second of one core", "rows", "median", "min", "max", "one by one");
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    std::sort(rates[i].begin(), rates[i].end());
    fmt::print("{:58} {:9} {:12.0f} {:12.0f} {:12.0f} {:12.0f}\n", sweeps[i].name, rows[i], rates[i][rates[i].size() / 2], rates[i].front(), rates[i].back(), one_by_one(sweeps[i], 64));
  }
  return 0;
}
