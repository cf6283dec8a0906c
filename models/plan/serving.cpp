#include "models/plan/serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/params.hpp"
#include "models/plan/parallel.hpp"

namespace fathom {
namespace {

std::string gigabytes(double bytes) { return fmt::format("{:.{}f} GB", bytes * 1e-9, bytes < 10e9 ? 2 : 1); }

double total_of(const std::vector<MemoryItem>& items) {
  double sum = 0;
  for (const MemoryItem& item : items) sum += item.bytes;
  return sum;
}

// The largest batch below the present one that fits when everything but weights-like items shrinks with it.
std::string smaller_batch(const Scenario& s, double fixed, double growing, double capacity) {
  if (s.batch <= 1 || fixed >= capacity || !(growing > 0)) return {};
  const auto batch = static_cast<std::int64_t>(std::floor((capacity - fixed) / growing * static_cast<double>(s.batch)));
  if (batch < 1) return {};
  return fmt::format("batch {} fits", std::min(batch, s.batch - 1));
}

// The fewest tensor ranks of a node whose lists fit, each planned as predict_parallel plans it: what a rank keeps of every row does not divide.
std::string fewest_ranks(const Network& network, const Scenario& scenario, double capacity) {
  constexpr std::int64_t kNode = 8;
  std::vector<Recompute> kept = {scenario.recompute};
  if (scenario.phase == Phase::kTrain && scenario.recompute != Recompute::kFull) kept.push_back(Recompute::kFull);
  for (const Recompute recompute : kept)
    for (std::int64_t ranks = 2; ranks <= kNode; ranks *= 2) {
      Scenario each = scenario;
      each.recompute = recompute;
      try {
        const MemoryPlan rank = plan_memory(build(tensor_rank(network, ranks), each));
        if (static_cast<double>(rank.weights + rank.gradients + rank.optimizer + rank.activations + rank.kv_cache + rank.other) > capacity) continue;
      } catch (const Error& error) {  // heads or columns that do not divide
        if (error.kind() == ErrorKind::kInternal) throw;
        break;
      }
      return fmt::format("{} devices (--tp {}{}) fit", ranks, ranks, recompute == scenario.recompute ? "" : " --recompute full");
    }
  return {};
}

}  // namespace

std::string MemoryFit::text() const {
  if (fits) return fmt::format("{} of {}", gigabytes(total), capacity > 0 ? gigabytes(capacity) : "unknown capacity");
  return fmt::format("does not fit: {} of {}; largest: {}, {}{}", gigabytes(total), gigabytes(capacity), items.front().name, gigabytes(items.front().bytes), change.empty() ? "" : "; " + change);
}

MemoryFit memory_fit(const Network& network, const Scenario& scenario, const MemoryPlan& plan, const Machine& machine, double limit) {
  if (!(limit > 0 && limit <= 1)) throw_input(fmt::format("the share of memory that may be used is {}, must be above 0 and at most 1", limit));
  MemoryFit fit;
  const bool gpu = machine.kind == MachineKind::kGpu;
  fit.items = {{"weights", static_cast<double>(plan.weights)}, {"gradients", static_cast<double>(plan.gradients)},  {"optimizer state", static_cast<double>(plan.optimizer)},
               {"KV cache", static_cast<double>(plan.kv_cache)}, {"activations", static_cast<double>(plan.activations)}, {"inputs and outputs", static_cast<double>(plan.other)}};
  if (gpu) {
    fit.items.push_back({"workspace", kWorkspaceBytes});
    fit.items.push_back({"context", kContextBytes});
  }
  std::erase_if(fit.items, [](const MemoryItem& item) { return !(item.bytes > 0); });
  std::stable_sort(fit.items.begin(), fit.items.end(), [](const MemoryItem& a, const MemoryItem& b) { return a.bytes > b.bytes; });
  fit.total = total_of(fit.items);
  fit.capacity = machine.memory ? machine.memory->value * limit : 0;
  fit.fits = fit.capacity <= 0 || fit.total <= fit.capacity;
  if (fit.fits) return fit;
  const double growing = static_cast<double>(plan.activations + plan.kv_cache + plan.other), fixed = fit.total - growing;
  fit.change = smaller_batch(scenario, fixed, growing, fit.capacity);
  if (fit.change.empty() && scenario.phase == Phase::kTrain && scenario.recompute != Recompute::kFull) {
    Scenario full = scenario;
    full.recompute = Recompute::kFull;
    const MemoryPlan less = plan_memory(build(network, full));
    if (fit.total - static_cast<double>(plan.activations) + static_cast<double>(less.activations) <= fit.capacity) fit.change = "--recompute full fits";
  }
  if (fit.change.empty() && machine.gpu_fit) fit.change = fewest_ranks(network, scenario, fit.capacity);
  return fit;
}

double kv_sequence_bytes(const Network& network, const Scenario& scenario, std::int64_t context) { return kv_bytes(network, context, 1, scenario.kv_dtype, scenario.kv_page, scenario.mla, share_taken(scenario)).to_double(); }

std::int64_t concurrency(const Network& network, const Scenario& scenario, const MemoryPlan& plan, const Machine& machine, double limit) {
  if (!machine.memory) throw_input(fmt::format("machine '{}' does not say how much memory it has", machine.name), {}, "add memory = ... to its [machine] section");
  const double runtime = machine.kind == MachineKind::kGpu ? kWorkspaceBytes + kContextBytes : 0;
  const double room = machine.memory->value * limit - static_cast<double>(plan.weights) - runtime;
  const std::int64_t context = scenario.phase == Phase::kDecode ? scenario.context : scenario.past + scenario.length;
  // A decode step's own activations, per sequence.
  const double activations = static_cast<double>(plan.activations + plan.other) / static_cast<double>(std::max<std::int64_t>(1, scenario.batch));
  const double each = kv_sequence_bytes(network, scenario, context) + activations;
  if (room <= 0 || !(each > 0)) return 0;
  return static_cast<std::int64_t>(std::floor(room / each));
}

}  // namespace fathom
