// Configurations per second of count-only sweeps on one thread, by what varies innermost, and resident memory as the number of rows grows.
//
//   bench_sweep [--rounds N] [--only TEXT] [--memory]
//
// Every sweep is that of `fathom sweep`: rows are evaluated, formatted as CSV and handed to a sink that drops them. A 24-layer model (dense-220m's shape), dense and with
// every second block routed at 1/8; experts and windows: built-in models as they are. Rounds alternate over the sweeps; medians, minimum and maximum are printed. --memory runs 10^4, 10^6 and 10^7 rows of one
// sweep and prints the resident size behind each.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "lib/error.hpp"
#include "tools/sweep_run.hpp"

using namespace fathom;

namespace {

struct Sweep {
  std::string name;
  SweepModelFlags model;
  ScenarioFlags scenario;
};

Sweep sweep(std::string name, bool routed, std::vector<std::string> phases, std::string seq, std::string batch) {
  Sweep s;
  s.name = std::move(name);
  s.model.models = {"dense-220m"};
  s.model.set = {"layers=24"};
  if (routed) s.model.mod_every = "2", s.model.capacity = "1/8";
  s.scenario.phases = std::move(phases);
  const bool decode = !s.scenario.phases.empty() && s.scenario.phases[0] == "decode";
  (decode ? s.scenario.context : s.scenario.seq) = std::move(seq);
  s.scenario.batch = std::move(batch);
  return s;
}

SweepOutcome run(const Sweep& s) {
  const SweepSpace space(s.model, s.scenario, false);
  const RowWriter writer(RowFormat::kCsv, space.columns(), figure_columns(SweepKind::kCount, space, {}, {}));
  SweepKeepers keepers;
  SweepOptions options;
  options.chunk = 512;
  options.quiet = true;
  options.interrupted = [] { return false; };
  const auto sink = no_sink();
  const auto make = [&] { return std::make_unique<RowEvaluator>(SweepKind::kCount, writer.figures(), std::vector<SweepMachine>(), nullptr); };
  SweepOutcome outcome = run_sweep(space, writer, make, options, *sink, keepers);
  if (outcome.failed > 0) throw_input("a row of the benchmark failed: " + outcome.first_failure);
  return outcome;
}

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void memory() {
  for (const auto& [rows, seq] : {std::pair{"10^4", "1:50"}, std::pair{"10^6", "1:5000"}, std::pair{"10^7", "1:50000"}}) {
    const SweepOutcome outcome = run(sweep("", true, {}, seq, "1:200"));
    fmt::print("{:5} rows: {:8.0f}/s, resident {:6.2f} MiB\n", rows, static_cast<double>(outcome.done) / outcome.seconds, resident_mib());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** words) {
  int rounds = 5;
  std::string only;
  for (int i = 1; i < count; ++i) {
    if (std::string(words[i]) == "--memory") return memory(), 0;
    if (std::string(words[i]) == "--only" && i + 1 < count) only = words[++i];
    if (std::string(words[i]) == "--rounds" && i + 1 < count) rounds = std::max(1, std::atoi(words[++i]));
  }
  std::vector<Sweep> sweeps;
  for (const bool routed : {false, true}) {
    const std::string kind = routed ? "MoD" : "dense";
    sweeps.push_back(sweep(kind + ", prefill: lengths x batches", routed, {}, "8:8000:8", "1:200"));
    sweeps.push_back(sweep(kind + ", prefill: lengths", routed, {}, "1:100000", "1"));
    sweeps.push_back(sweep(kind + ", train: lengths x batches", routed, {"train"}, "8:4000:8", "1:200"));
    sweeps.push_back(sweep(kind + ", train: lengths", routed, {"train"}, "1:30000", "1"));
    sweeps.push_back(sweep(kind + ", decode: contexts x batches", routed, {"decode"}, "8:1600:8", "1:200"));
  }
  Sweep capacities = sweep("MoD, prefill: capacities x lengths", true, {}, "8:2048:8", "1");
  capacities.model.capacity = "0.005:1:0.005";
  sweeps.push_back(capacities);
  Sweep widths = sweep("dense, prefill: widths x MLPs", false, {}, "2048", "1");
  widths.model.set = {"layers=24", "width=28:2800:28", "mlp=64:16384:64"};
  sweeps.push_back(widths);
  for (const bool routed : {false, true}) {
    widths = sweep(routed ? "MoD, train: widths x MLPs" : "dense, train: widths x MLPs", routed, {"train"}, "2048", "1");
    widths.model.set = {"layers=24", "width=28:2800:28", "mlp=64:16384:64"};
    sweeps.push_back(widths);
    widths = sweep(routed ? "MoD, decode: widths x MLPs" : "dense, decode: widths x MLPs", routed, {"decode"}, "2048", "1");
    widths.model.set = {"layers=24", "width=28:2800:28", "mlp=64:16384:64"};
    sweeps.push_back(widths);
    sweeps.push_back(sweep(routed ? "MoD, decode: contexts" : "dense, decode: contexts", routed, {"decode"}, "1:30000", "4"));
  }
  Sweep thresholds = sweep("MoD, prefill by threshold: lengths x batches", true, {}, "8:1600:8", "1:200");
  thresholds.scenario.routing = "threshold";
  sweeps.push_back(thresholds);
  thresholds = sweep("MoD, prefill by threshold: lengths", true, {}, "1:30000", "1");
  thresholds.scenario.routing = "threshold";
  sweeps.push_back(thresholds);
  for (const char* phase : {"prefill", "train", "decode"}) {
    Sweep shares = sweep(std::string("MoD, ") + phase + ": capacities", true, {phase}, "2048", "1");
    shares.model.capacity = "0.00002:0.6:0.00002";
    sweeps.push_back(shares);
    Sweep layers = sweep(std::string("MoD, ") + phase + ": layers x widths", true, {phase}, "2048", "1");
    layers.model.set = {"width=28:11200:28", "layers=2:48"};
    sweeps.push_back(layers);
  }
  for (const char* phase : {"prefill", "decode"}) {
    Sweep experts = sweep(std::string("MoE, ") + phase + ": lengths x batches", false, {phase}, "8:1600:8", "1:200");
    experts.model.models = {"mixtral-8x7b"};
    sweeps.push_back(experts);
  }
  for (const char* phase : {"prefill", "train", "decode"}) {
    const bool decode = std::string(phase) == "decode";
    Sweep windows = sweep(std::string("local and global windows, ") + phase + (decode ? ": contexts" : ": lengths"), false, {phase}, "1:30000", "1");
    windows.model.models = {"local-global"};
    sweeps.push_back(windows);
    Sweep experts = sweep(std::string("MoE, ") + phase + (decode ? ": contexts" : ": lengths"), false, {phase}, "1:30000", "1");
    experts.model.models = {"mixtral-8x7b"};
    sweeps.push_back(experts);
  }
  // One size or kind of the network after the other, and lengths of whatever routes them.
  for (const char* phase : {"prefill", "train", "decode"}) {
    const bool decode = std::string(phase) == "decode";
    const auto sized = [&](const std::string& name, const char* model, bool routed, std::vector<std::string> set) {
      Sweep s = sweep(fmt::format("{}, {}", name, phase), routed, {phase}, "2048", "1");
      s.model.models = {model};
      s.model.set = std::move(set);
      sweeps.push_back(s);
    };
    for (const bool routed : {false, true}) {
      const std::string kind = routed ? "MoD, " : "dense, ";
      sized(kind + "windows", "dense-220m", routed, {"layers=24", "window=1:4096"});
      sized(kind + "heads x widths", "dense-220m", routed, {"layers=24", "head_dim=64", "width=64:4096:64", "heads=1:64"});
      sized(kind + "vocabularies x windows", "dense-220m", routed, {"layers=24", "vocab=1000:32000:1000", "window=16:2048:16"});
    }
    sized("MoE, experts", "mixtral-8x7b", false, {"layers=24", "experts=2:4097"});
    sized("MoE, experts, routed", "mixtral-8x7b", true, {"layers=24", "experts=2:1025"});
    sized("local and global windows, windows", "local-global", false, {"window=1:4096"});
    for (const auto& [name, model] : {std::pair{"capacities by layer", "mod-schedule"}, std::pair{"early exit", "early-exit"}}) {
      Sweep s = sweep(fmt::format("{}, {}: {}", name, phase, decode ? "contexts" : "lengths"), false, {phase}, "1:30000", "1");
      s.model.models = {model};
      s.model.set = {};
      sweeps.push_back(s);
    }
  }
  std::erase_if(sweeps, [&](const Sweep& s) { return s.name.find(only) == std::string::npos; });
  std::vector<std::vector<double>> rates(sweeps.size());
  std::vector<std::uint64_t> rows(sweeps.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < sweeps.size(); ++i) {
      const SweepOutcome outcome = run(sweeps[i]);
      rows[i] = outcome.done;
      rates[i].push_back(static_cast<double>(outcome.done) / outcome.seconds);
    }
  fmt::print("{:46} {:>9} {:>12} {:>12} {:>12}\n", "configurations per second, one thread", "rows", "median", "min", "max");
  for (size_t i = 0; i < sweeps.size(); ++i) {
    std::sort(rates[i].begin(), rates[i].end());
    fmt::print("{:46} {:9} {:12.0f} {:12.0f} {:12.0f}\n", sweeps[i].name, rows[i], rates[i][rates[i].size() / 2], rates[i].front(), rates[i].back());
  }
  return 0;
}
