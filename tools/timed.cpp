#include "tools/timed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "kernels/cuda_host/loader.hpp"
#include "kernels/cuda_host/throttle.hpp"
#include "kernels/fake/backend.hpp"
#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "models/builder.hpp"
#include "tools/interrupt.hpp"
#include "tools/observer.hpp"
#include "tools/results.hpp"
#include "tools/routing_view.hpp"
#include "tools/upper_cell.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kMostMapped = 16384;  // tokens of a routing map in a record

double plain_flops(const Timed& timed) { return comparable_flops(*timed.workload); }

// Tokens that a step processes (prefill, train) or makes (decode).
double tokens_of(const Timed& timed) {
  const Scenario& s = timed.configuration.scenario;
  return static_cast<double>(s.batch) * (s.phase == Phase::kDecode ? 1.0 : static_cast<double>(s.length));
}

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

Cell seconds(double value) { return value > 0 ? Cell::number(value) : Cell::status("not measured"); }

}  // namespace

void follow_prediction(Execution& execution, const StepPrediction& prediction) {
  auto* fake = dynamic_cast<FakeExecution*>(&execution);
  if (!fake || prediction.workload.empty()) return;
  std::vector<double> times;
  for (const Instance& instance : execution.workload().instances()) times.push_back(prediction.ops[instance.op].each.seconds);
  fake->set_times(std::move(times));
}

std::unique_ptr<Execution> bind_timed(const Backend& runner, const Timed& timed, const TimedFlags& flags, bool vary_tokens, bool graph) {
  BindOptions options;
  options.threads = flags.threads;
  options.seed = flags.seed;
  options.norm_epsilon = timed.configuration.network.norm_epsilon;
  options.graph = graph ? graph_mode(flags.launch, timed.configuration.scenario.phase == Phase::kDecode) : GraphMode::kNone;
  options.fill = timed.configuration.scenario.phase == Phase::kTrain ? FillKind::kTraining : FillKind::kTest;
  std::unique_ptr<Execution> execution = runner.bind(*timed.workload, options);
  // A decode step stands for many tokens: new ones each pass, thresholds centred on the wanted participation.
  if (timed.configuration.scenario.phase == Phase::kDecode) {
    execution->vary_tokens(vary_tokens);
    execution->calibrate_participation();
  }
  return execution;
}

namespace {

// Nothing runs above its ceiling: a fraction that says so tells that the probe of the ceiling was held up, not that the op was fast.
Cell fraction_cell(double fraction) { return fraction > 1.1 ? Cell::status("the probe of the ceiling was disturbed") : Cell::number(fraction); }

// One pass more, outside the measurement, shows which tokens were routed. A fake execution makes no selection.
void read_routing_of(Timed& timed) {
  const std::int64_t tokens = timed.workload->stream().queries;
  if (timed.configuration.scenario.phase != Phase::kPrefill || !timed.configuration.network.has_routes() || tokens > kMostMapped) return;
  if (dynamic_cast<FakeExecution*>(timed.execution.get())) return;
  timed.routing = routing_record(run_and_read_routing(*timed.execution, tokens));
}

}  // namespace

void add_predict_flags(CLI::App& app, TimedFlags& flags) {
  app.add_option("--on", flags.on, "machine: built-in name or file [this machine]")->type_name("MACHINE")->group("Machine");
  app.add_option("--predictor", flags.predictor, "light, roofline or calibrated [calibrated where the machine is]")->type_name("P")->group("Machine");
  app.add_option("--launch", flags.launch, "GPU: graph, buckets (graphs by row count), eager or auto (decode steps are graphs) [auto]")->type_name("HOW")->check(CLI::IsMember({"auto", "graph", "buckets", "eager"}))->group("Machine");
  app.add_option("--kernels", flags.kernels, "GPU: attention backward as our own kernels or as a library's [own]")->type_name("WHOSE")->check(CLI::IsMember({"own", "library"}))->group("Machine");
  app.add_option("--threads", flags.threads, "threads [all physical cores]")->type_name("N")->check(CLI::Range(0, 4096))->group("Machine");
}

void add_measure_flags(CLI::App& app, TimedFlags& flags) {
  app.add_option("--backend", flags.backend, "cpu, reference, fake or cuda [cpu]")->type_name("B")->group("Machine");
  app.add_option("--time", flags.time, "seconds to measure [10 per configuration]")->type_name("S")->check(CLI::Range(0.0, 1e6))->check([](const std::string& text) { return text.find_first_of("nN") == std::string::npos ? std::string() : "'" + text + "' is no number of seconds"; })->group("Machine");
  app.add_option("--rounds", flags.rounds, "exact number of rounds instead [by time]")->type_name("N")->check(CLI::Range(0, 1000000))->group("Machine");
  app.add_option("--seed", flags.seed, "of weights, tokens and random routing [1]")->type_name("N")->group("Machine");
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

void predict_all(std::vector<Timed>& timed, const Machine& machine, const TimedFlags& flags) {
  for (Timed& each : timed) {
    PredictOptions options = predict_options(machine, flags);
    each.raw = predict(*each.workload, machine, options);
    options.bytes_between_ops = kReferenceBytes;
    each.bracketed = predict(*each.workload, machine, options);
    options.bytes_between_ops = 0;
    options.predictor = PredictorKind::kLight;
    each.light = predict(*each.workload, machine, options);
  }
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
  double done = 0;
  for (const std::vector<size_t>& group : groups) {
    std::vector<Execution*> executions;
    for (size_t i : group) {
      timed[i].execution = bind_timed(runner, timed[i], flags, true, true);
      executions.push_back(timed[i].execution.get());
    }
    MeasureOptions measure_options;
    if (machine) measure_options.nominal = machine->references;
    const double share = static_cast<double>(group.size()) / static_cast<double>(timed.size());
    measure_options.seconds = budget * share;
    if (flags.rounds > 0) measure_options.min_rounds = measure_options.max_rounds = static_cast<int>(flags.rounds);
    measure_options.interrupted = interrupted;
    measure_options.progress = [&](const MeasureProgress& p) {
      progress.show(fmt::format("measuring {} ({}, round {})", timed[group[0]].configuration.label, p.stage, p.round), (done + share * p.share), p.seconds + done * budget);
    };
    const std::unique_ptr<MachineObserver> observer = make_observer(flags.backend);
    FakeClock fake(executions);
    for (size_t k = 0; k < group.size(); ++k) follow_prediction(*executions[k], timed[group[k]].raw);
    std::vector<Measurement> measured = measure(executions, measure_options, fake.active() ? static_cast<Clock&>(fake) : system_clock(), observer.get());
    for (size_t k = 0; k < group.size(); ++k) {
      Timed& each = timed[group[k]];
      each.measurement = std::move(measured[k]);
      if (!each.raw.workload.empty()) each.comparison = compare(*each.workload, each.bracketed, each.raw, each.light, each.measurement);
    }
    if (!measured.empty() && timed[group[0]].measurement.interrupted) {
      record.note("interrupted: the figures are of the rounds that were complete", Note::Severity::kWarning);
      break;
    }
    for (size_t i : group) {
      read_routing_of(timed[i]);
      timed[i].execution.reset();
    }
    done += share;
  }
}

void describe_environment(Record& record, std::span<const Timed* const> timed, const TimedFlags& flags) {
  const Backend& runner = backend(flags.backend);
  record.environment.set("backend", Cell::text(runner.description()));
  if (flags.backend == "cuda") {
    const cuda::DeviceInfo& info = cuda::probe_device().info;
    record.environment.set("gpu", Cell::text(info.name));
    record.environment.set("gpu_uuid", Cell::text(info.uuid));
    record.environment.set("gpu_ecc", Cell::text(info.ecc ? "on" : "off"));
    record.environment.set("gpu_l2_bytes", Cell::count(static_cast<u128>(info.l2_bytes)));
    record.environment.set("cuda_driver", Cell::number(info.driver));
    record.environment.set("cuda_runtime", Cell::number(info.runtime));
    record.environment.set("cublaslt", Cell::number(info.cublaslt));
  }
  std::map<std::string, std::vector<std::pair<double, std::string>>> drifted;   // reference -> (share of its time at calibration, configuration)
  for (const Timed* const one : timed) {
    const Timed& each = *one;
    const Measurement& m = each.measurement;
    if (m.workload.empty()) continue;
    record.environment.set("stopped_by", Cell::text(m.stopped_by));
    record.environment.set("seconds_spent", Cell::number(m.seconds_spent));
    for (const auto& [name, value] : m.state_after) record.environment.set(name, Cell::number(value));
    for (const ReferenceMeasurement& reference : m.references)
      if (reference.nominal > 0) record.environment.set("reference_" + reference.name + "_s", Cell::number(reference.nominal));  // a device that keeps time has none
    if (const auto throttle = m.state_after.find("gpu_throttle_reasons"); throttle != m.state_after.end())
      if (const std::string why = throttle_text(static_cast<std::int64_t>(throttle->second)); !why.empty())
        record.note(fmt::format("the GPU held its clock back while {} was measured: {}", each.configuration.label, why), Note::Severity::kWarning);
    for (const ReferenceMeasurement& reference : m.references)
      if (reference.nominal > 0 && std::abs(reference.p25 / reference.nominal - 1) > 0.1) drifted[reference.name].push_back({reference.p25 / reference.nominal, each.configuration.label});
    for (const auto& [name, rate] : m.ceiling_rate) record.environment.set("ceiling_" + name + "_flops_per_s", Cell::number(rate));
    for (const auto& [name, noise] : m.class_noise) record.environment.set("noise_" + name, Cell::number(noise));
    const auto foreign = m.state_after.find("foreign_cpu");
    if (foreign != m.state_after.end() && foreign->second > 0.1)
      record.note(fmt::format("other processes used {:.2f} cores while {} was measured: times are longer and noisier than on an idle machine", foreign->second, each.configuration.label),
                  Note::Severity::kWarning);
  }
  for (const auto& [name, where] : drifted) {
    const auto [least, most] = std::minmax_element(where.begin(), where.end());
    const std::string took = where.size() == 1 ? fmt::format("{:.2f}", least->first) : fmt::format("{:.2f} to {:.2f}", least->first, most->first);
    record.note(fmt::format("{} reference kernels took {} of their time at calibration while {} measured: normalised figures are scaled back to it, raw ones are not", name, took,
                            where.size() == 1 ? where[0].second + " was" : fmt::format("{} configurations were", where.size())));
  }
}

void add_prediction(Result& result, const Timed& timed, const Machine& machine) {
  result.machine = machine.name;
  result.machine_hash = timed.raw.machine_hash;
  const StepPrediction& step = timed.raw;
  Figures& totals = result.totals;
  totals.set("predicted_s", Cell::number(step.seconds));
  if (step.lo < step.hi) {
    totals.set("predicted_lo_s", Cell::number(step.lo));
    totals.set("predicted_hi_s", upper_cell(step.hi));
  }
  if (step.seconds > 0) totals.set("predicted_tokens_per_s", Cell::number(tokens_of(timed) / step.seconds));
  totals.set("light_s", Cell::number(timed.light.seconds));
  if (timed.workload->routed()) {
    totals.set("predicted_p50_s", Cell::number(step.p50));
    totals.set("predicted_p95_s", Cell::number(step.p95));
    totals.set("predicted_p99_s", Cell::number(step.p99));
  }
  totals.set("compute_s", Cell::number(step.compute));
  totals.set("memory_s", Cell::number(step.memory));
  totals.set("launch_s", Cell::number(step.launch));
  totals.set("provenance", Cell::text(std::string(provenance_name(step.provenance))));
  const Cell* asked = result.scenario.find("threads");
  const int threads = asked && asked->is_number() ? static_cast<int>(asked->value()) : machine.default_threads();
  if (const Peak* peak = machine.peak(timed.configuration.scenario.dtype))
    if (const auto rate = figure_at(peak->rate, threads)) totals.set("peak_flops_per_s", Cell::number(rate->value));
  for (int access = 0; access < kAccesses && !machine.levels.empty() && !totals.has("peak_bytes_per_s"); ++access)  // read, else copy, ...
    if (const auto rate = figure_at(machine.levels.back().rate[access], threads)) totals.set("peak_bytes_per_s", Cell::number(rate->value));
  for (size_t i = 0; i < result.ops.size(); ++i) {
    const OpPrediction& op = step.ops[static_cast<int>(i)];
    result.ops[i].set("predicted_s", Cell::number(op.total));
    if (op.total_lo < op.total_hi) {
      result.ops[i].set("predicted_lo_s", Cell::number(op.total_lo));
      result.ops[i].set("predicted_hi_s", upper_cell(op.total_hi));
    }
    result.ops[i].set("light_s", Cell::number(timed.light.ops[static_cast<int>(i)].total));
    result.ops[i].set("binding", Cell::text(std::string(binding_name(op.each.binding))));
    result.ops[i].set("provenance", Cell::text(std::string(provenance_name(op.each.provenance))));
  }
}

void add_measurement(Result& result, const Timed& timed) {
  const StepMeasurement& step = timed.measurement.step;
  Figures& totals = result.totals;
  totals.set("measured_s", seconds(step.raw_median));
  totals.set("normalised_s", seconds(step.normalised));
  totals.set("min_s", seconds(step.raw_min));
  totals.set("p50_s", seconds(step.p50));
  totals.set("p95_s", seconds(step.p95));
  totals.set("p99_s", seconds(step.p99));
  totals.set("samples", Cell::count(static_cast<u128>(step.raw.values.size())));
  totals.set("spread", Cell::number(step.raw_median > 0 ? (step.raw.quantile(0.75) - step.raw.quantile(0.25)) / step.raw_median : 0));
  totals.set("noise", Cell::number(step.raw_noise));
  if (step.raw_median > 0) totals.set("tokens_per_s", Cell::number(tokens_of(timed) / step.raw_median));
  if (step.raw_median > 0) totals.set("achieved_flops_per_s", Cell::number(plain_flops(timed) / step.raw_median));
  double executed = 0;
  for (size_t i = 0; i < result.ops.size(); ++i) {
    const OpMeasurement& op = timed.measurement.ops[static_cast<int>(i)];
    Figures& row = result.ops[i];
    executed += op.executed_flops * static_cast<double>(op.uses);
    if (op.status == MeasureStatus::kNotRun) {
      row.set("measured_s", Cell::status(op.reason.empty() ? "not run" : op.reason));
      continue;
    }
    row.set("measured_s", Cell::number(op.total));
    row.set("share", Cell::number(step.normalised > 0 ? op.total / step.normalised : 0));
    row.set("min_s", Cell::number(op.raw_min * static_cast<double>(op.uses)));
    row.set("p95_s", Cell::number(op.raw_p95 * static_cast<double>(op.uses)));
    row.set("samples", Cell::count(static_cast<u128>(op.raw.values.size())));
    row.set("noise", Cell::number(op.noise));
    row.set("rows_executed", Cell::number(op.rows_executed));
    if (op.executed_flops > 0) row.set("flops_executed", Cell::number(op.executed_flops * static_cast<double>(op.uses)));
    const Cost cost = declared_cost(timed.workload->ops()[i].spec);
    const double per_use = op.total / static_cast<double>(std::max<std::int64_t>(1, op.uses));
    if (per_use > 0 && cost.flops.value() > 0) row.set("achieved_flops_per_s", Cell::number(expected_cost(timed.workload->ops()[i].spec).flops / per_use));
    if (per_use > 0 && cost.flops.value() == 0) row.set("achieved_bytes_per_s", Cell::number((cost.read + cost.written).to_double() / per_use));
    row.set("implementation", Cell::text(op.implementation));
    if (op.status == MeasureStatus::kTooShort || op.status == MeasureStatus::kDisturbed) row.set("status", Cell::text(op.reason));
  }
  totals.set("flops_executed", Cell::number(executed));
  result.routing = timed.routing;
  const auto note = [&](std::string text) { result.notes.push_back({Note::Severity::kNote, timed.configuration.label + ": " + std::move(text)}); };
  constexpr double kOutliers = 1.5, kNoisy = 0.05;
  if (step.raw.values.size() >= 20 && step.p95 > kOutliers * step.p50)
    note(fmt::format("one pass in twenty took {:.1f} times the median or longer: something held some passes up", step.p95 / step.p50));
  if (timed.measurement.stopped_by == "time" && step.raw_noise > kNoisy)
    note(fmt::format("time was over while two halves of the passes still differed by {:.1f} %: a longer --time may narrow that", step.raw_noise * 100));
}

void add_fractions(Result& result, const Timed& timed, const Machine* machine, const TimedFlags& flags) {
  // The ceiling as probed during the run; the machine file's where the backend has no such probe.
  double rate = 0;
  const auto& probed = timed.measurement.ceiling_rate;
  if (const auto product = probed.find("product"); product != probed.end()) {
    rate = product->second;
  } else if (const Peak* peak = machine ? machine->peak(timed.configuration.scenario.dtype) : nullptr) {
    if (const auto figure = figure_at(peak->rate, flags.threads > 0 ? flags.threads : machine->default_threads())) rate = figure->value;
  }
  if (!(rate > 0)) return;
  for (size_t i = 0; i < result.ops.size(); ++i) {
    Figures& row = result.ops[i];
    const double achieved = row.number("achieved_flops_per_s");
    if (!(achieved > 0)) continue;
    const double ceiling = timed.measurement.ops[static_cast<int>(i)].ceiling_flops;
    row.set("peak_fraction", fraction_cell(ceiling > 0 ? expected_cost(timed.workload->ops()[i].spec).flops / ceiling : achieved / rate));
  }
  if (const double achieved = result.totals.number("achieved_flops_per_s"); achieved > 0) result.totals.set("peak_fraction", fraction_cell(achieved / rate));
}

void add_comparison(Result& result, const Timed& timed) {
  const Comparison& c = timed.comparison;
  Figures& totals = result.totals;
  if (c.raw.measured > 0) {
    totals.set("error", Cell::number(c.raw.error));
    totals.set("time_ratio", Cell::number(c.raw.ratio));
  }
  totals.set("verdict", Cell::text(std::string(verdict_name(c.raw.verdict))));
  totals.set("mape", Cell::number(c.mape));
  totals.set("median_error", Cell::number(c.median_error));
  for (size_t i = 0; i < result.ops.size(); ++i) {
    const OpComparison& op = c.ops[static_cast<int>(i)];
    Figures& row = result.ops[i];
    // Ops stand between reference kernels in a bracketed pass, so they are graded against the prediction of that pass.
    row.set("predicted_s", Cell::number(op.predicted));
    if (op.measured > 0) row.set("error", Cell::number(op.error));
    row.set("verdict", Cell::text(std::string(verdict_name(op.verdict))));
    if (!op.reason.empty()) row.set("status", Cell::text(op.reason));
  }
  if (c.dropped > 0 && c.graded == 0)
    result.notes.push_back({Note::Severity::kNote, fmt::format("{}: none of {} ops graded (their verdict and status say why)", result.model, c.dropped)});
  else if (c.dropped > 0)
    result.notes.push_back({Note::Severity::kNote, fmt::format("{}: {} ops graded, {} not graded (their verdict and status say why); mean |error| per op {:.1f} %, weighted by time {:.1f} %",
                                                               result.model, c.graded, c.dropped, c.mape * 100, c.weighted_error * 100)});
}

void add_pair(Result& result, const Timed& timed, const Timed& twin, bool predicted, bool measured) {
  const double flops = plain_flops(timed);
  const double base = plain_flops(twin);
  if (base > 0) result.totals.set("flops_ratio", Cell::number(flops / base));
  if (predicted && twin.raw.seconds > 0) result.totals.set("predicted_ratio", Cell::number(timed.raw.seconds / twin.raw.seconds));
  if (!measured || !(twin.measurement.step.raw_median > 0) || !(timed.measurement.step.raw_median > 0)) return;
  const PairRatio pair = pair_ratio(flops, base, timed.measurement.step.raw_median, twin.measurement.step.raw_median);
  result.totals.set("measured_ratio", Cell::number(pair.time_ratio));
  result.totals.set("ratio_noise", Cell::number(std::hypot(timed.measurement.step.raw_noise, twin.measurement.step.raw_noise)));
  result.totals.set("realised", pair.status.empty() ? Cell::number(pair.realised) : Cell::status(pair.status));
}

}  // namespace fathom
