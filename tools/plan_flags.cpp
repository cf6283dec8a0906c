#include "tools/plan_flags.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"
#include "lib/plan.hpp"
#include "lib/quantity.hpp"
#include "models/builder.hpp"
#include "models/plan/serving.hpp"
#include "tools/upper_cell.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kMostServed = 1024;  // sequences in one decode step that a server would still run: where memory holds more, the answer is of these

std::optional<InterNode> network_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const size_t colon = text.find(':');
  if (colon == std::string::npos) throw_input(fmt::format("'{}' is no network", text), {"", 0, "--network"}, "write BANDWIDTH:LATENCY per device, such as 25GB/s:10us");
  InterNode network;
  network.bytes_per_s = parse_quantity(text.substr(0, colon), Dimension::kByteRate);
  network.latency_s = parse_quantity(text.substr(colon + 1), Dimension::kTime);
  if (!(network.bytes_per_s > 0)) throw_input("a network needs a bandwidth above 0", {"", 0, "--network"});
  return network;
}

ParallelPlan plan_of(const PlanFlags& f) {
  ParallelPlan plan;
  plan.data = f.data, plan.tensor = f.tensor, plan.pipeline = f.pipeline, plan.expert = f.expert;
  plan.sequence = f.sequence;
  plan.micro_batches = f.micro_batches, plan.interleave = f.interleave;
  plan.zero = f.zero;
  plan.overlap = f.overlap;
  plan.node = f.node;
  plan.network = network_of(f.network);
  return plan;
}

// No time for what cannot run.
void refuse(Result& result, const std::string& why) {
  for (const char* key : {"predicted_s", "predicted_lo_s", "predicted_hi_s", "light_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s", "compute_s", "memory_s", "launch_s", "predicted_ratio", "predicted_tokens_per_s"})
    if (result.totals.has(key)) result.totals.set(key, Cell::status("does not fit"));
  result.totals.set("status", Cell::text(why));
  result.notes.push_back({Note::Severity::kWarning, why});
}

void on_one_device(Result& result, const Timed& timed, const Machine& machine, const TimedFlags& timed_flags, const PlanFlags& flags) {
  const Network& network = timed.configuration.network;
  const Scenario& scenario = timed.configuration.scenario;
  const MemoryPlan plan = plan_memory(*timed.workload);
  const MemoryFit fit = memory_fit(network, scenario, plan, machine, flags.memory_limit);
  if (!fit.fits) {
    refuse(result, fit.text());
    return;
  }
  if (scenario.phase != Phase::kDecode || !machine.memory) return;
  const std::int64_t most = concurrency(network, scenario, plan, machine, flags.memory_limit);
  result.totals.set("concurrency", Cell::count(static_cast<u128>(most)));
  Scenario full = scenario;
  full.batch = std::min(most, kMostServed);
  if (most > kMostServed) result.notes.push_back({Note::Severity::kNote, fmt::format("max tokens/s is of a step of {} sequences: memory is not what limits it", kMostServed)});
  PredictOptions options = predict_options(machine, timed_flags);
  options.follow_placement = false;
  const StepPrediction step = predict(build(network, full), machine, options);
  result.totals.set("served_tokens_per_s", Cell::number(static_cast<double>(full.batch) / step.seconds));
  result.totals.set("served_s", Cell::number(step.seconds));
  result.totals.set("served_p99_s", Cell::number(step.p99));
}

}  // namespace

void add_plan_flags(CLI::App& app, PlanFlags& flags) {
  const auto count = [&](const char* name, std::int64_t& value, const char* what) { app.add_option(name, value, what)->type_name("N")->group("Devices"); };
  count("--dp", flags.data, "data-parallel ranks; --batch is the global batch [1]");
  count("--tp", flags.tensor, "tensor-parallel ranks [1]");
  count("--pp", flags.pipeline, "pipeline stages [1]");
  count("--ep", flags.expert, "expert-parallel ranks [1]");
  app.add_flag("--sp", flags.sequence, "sequence parallelism of the tensor ranks")->group("Devices");
  count("--microbatches", flags.micro_batches, "micro-batches per step and pipeline [1]");
  count("--interleave", flags.interleave, "chunks of layers per pipeline stage [1]");
  app.add_option("--zero", flags.zero, "sharding over data ranks: 1 optimizer, 2 and gradients, 3 and weights [0]")->type_name("N")->check(CLI::Range(0, 3))->group("Devices");
  app.add_option("--overlap", flags.overlap, "share of the backward pass that hides gradient communication [0]")->type_name("X")->check(number_in(0, 1))->group("Devices");
  count("--node", flags.node, "devices per node [8]");
  app.add_option("--network", flags.network, "between nodes, per device: BANDWIDTH:LATENCY such as 25GB/s:10us [none: such groups are refused]")->type_name("NET")->group("Devices");
  app.add_option("--memory-limit", flags.memory_limit, "share of the device's memory that may be used [0.9]")->type_name("X")->check(number_in(0.01, 1))->group("Devices");
}

void apply_plan(Result& result, const Timed& timed, const Machine& machine, const TimedFlags& timed_flags, const PlanFlags& flags) {
  if (!flags.several()) {
    on_one_device(result, timed, machine, timed_flags, flags);
    return;
  }
  const ParallelPlan plan = plan_of(flags);
  const ParallelPrediction p = predict_parallel(timed.configuration.network, timed.configuration.scenario, machine, plan, predict_options(machine, timed_flags));
  Figures& totals = result.totals;
  totals.set("devices", Cell::count(static_cast<u128>(plan.devices())));
  totals.set("device_bytes", Cell::number(p.memory_bytes));
  if (const double room = machine.memory ? machine.memory->value * flags.memory_limit : 0; room > 0 && p.memory_bytes > room) {
    refuse(result, fmt::format("does not fit: {:.1f} of {:.1f} GB per device (weights {:.1f}, gradients {:.1f}, optimizer {:.1f}, activations {:.1f})", p.memory_bytes * 1e-9, room * 1e-9, p.weight_bytes * 1e-9,
                               p.gradient_bytes * 1e-9, p.optimizer_bytes * 1e-9, p.activation_bytes * 1e-9));
    return;
  }
  if (const double tokens = totals.number("predicted_tokens_per_s") * totals.number("predicted_s"); tokens > 0 && p.seconds > 0) totals.set("predicted_tokens_per_s", Cell::number(tokens / p.seconds));
  totals.set("predicted_s", Cell::number(p.seconds));
  totals.set("predicted_lo_s", Cell::number(p.lo));
  totals.set("predicted_hi_s", upper_cell(p.hi));
  totals.set("communication_s", Cell::number(p.exposed_communication()));
  totals.set("bubble_s", Cell::number(p.bubble_s));
  totals.set("provenance", Cell::text(std::string(provenance_name(p.provenance))));
  for (const char* key : {"light_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s", "compute_s", "memory_s", "launch_s", "predicted_ratio"})
    if (totals.has(key)) totals.set(key, Cell());  // figures of one device
}

}  // namespace fathom
