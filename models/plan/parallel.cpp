#include "models/plan/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "lib/gpu/gpu_model.hpp"
#include "lib/plan.hpp"
#include "lib/predict/work.hpp"
#include "lib/program_walk.hpp"
#include "models/builder.hpp"

namespace fathom {
namespace {

constexpr double kLastBucketBytes = 25e6;  // gradients that are ready last cannot be hidden

std::int64_t divided(std::int64_t value, std::int64_t by, const char* what) {
  if (value % by != 0) throw_input(fmt::format("{} {} do not divide over {} tensor ranks", value, what, by), {"", 0, "tp"}, "choose a divisor");
  return value / by;
}

// Prices collectives of one plan.
class Wires {
 public:
  Wires(const Machine& machine, const ParallelPlan& plan) : machine_(machine), plan_(plan) {}

  // `span`: devices from the first to the last member of the group.
  double time(std::string_view op, std::int64_t ranks, std::int64_t span, double bytes) {
    if (ranks <= 1 || bytes <= 0) return 0;
    if (span > plan_.node) {
      if (!plan_.network)
        throw_input(fmt::format("a group of {} devices spans nodes of {}, and no network between nodes is given", ranks, plan_.node), {"", 0, "--network"},
                    "give its bandwidth per device and latency: --network 25GB/s:10us");
      const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks) * (op == "all_reduce" ? 2.0 : 1.0);
      provenance = weaker(provenance, Provenance::kDatasheet);
      return plan_.network->latency_s * std::log2(static_cast<double>(ranks)) + share * bytes / plan_.network->bytes_per_s;
    }
    const gpu::CollectivePrediction p = gpu::predict_collective(machine_.gpu_fit.model().collectives, op, static_cast<int>(ranks), bytes);
    if (std::string_view(p.provenance) == "extrapolated") provenance = weaker(provenance, Provenance::kExtrapolated);
    return p.seconds;
  }
  // A message to the neighbouring stage. Inside a node nobody measured one: half of an all-gather of two carries the same bytes.
  double send(double bytes, std::int64_t distance) {
    if (distance >= plan_.node) {
      if (!plan_.network) throw_input("a pipeline spans nodes, and no network between nodes is given", {"", 0, "--network"}, "give its bandwidth per device and latency: --network 25GB/s:10us");
      provenance = weaker(provenance, Provenance::kDatasheet);
      return plan_.network->latency_s + bytes / plan_.network->bytes_per_s;
    }
    provenance = weaker(provenance, Provenance::kExtrapolated);
    return gpu::predict_collective(machine_.gpu_fit.model().collectives, "all_gather", 2, 2 * bytes).seconds;
  }

  Provenance provenance = Provenance::kFitted;

 private:
  const Machine& machine_;
  const ParallelPlan& plan_;
};

// Forward products whose outputs are sums over the tensor ranks.
bool is_row_parallel(const Op& op) {
  const auto* gemm = std::get_if<Gemm>(&op.spec);
  // Experts, shared ones too, are summed over the ranks once their outputs are combined.
  if (std::holds_alternative<ExpertCombine>(op.spec)) return true;
  return gemm && gemm->role == GemmRole::kForward && (op.leaf.ends_with("attn/out") || op.leaf.ends_with("mlp/down"));
}
// Ops on whole rows, which sequence parallelism divides.
bool is_row_wise(const Op& op) {
  return std::holds_alternative<RmsNorm>(op.spec) || std::holds_alternative<LayerNorm>(op.spec) || std::holds_alternative<AddResidual>(op.spec) ||
         std::holds_alternative<RmsNormBackward>(op.spec) || std::holds_alternative<LayerNormBackward>(op.spec) || std::holds_alternative<ScatterAddRows>(op.spec) ||
         std::holds_alternative<ScatterAddBackward>(op.spec) || std::holds_alternative<RouterScore>(op.spec) || std::holds_alternative<RouterScoreBackward>(op.spec);
}

// Times of one use.
struct Piece {
  double compute = 0, lo = 0, hi = 0, tensor = 0, expert = 0;
  double backward = 0;   // part of compute in the backward pass
  double optimizer = 0;
  Piece& operator+=(const Piece& o) {
    compute += o.compute, lo += o.lo, hi += o.hi, tensor += o.tensor, expert += o.expert, backward += o.backward, optimizer += o.optimizer;
    return *this;
  }
};

}  // namespace

Network tensor_rank(const Network& network, std::int64_t ranks) {
  Network rank = network;
  if (ranks <= 1) return rank;
  for (BlockConfig& kind : rank.kinds) {
    if (kind.attention) {
      kind.attention->heads = divided(kind.attention->heads, ranks, "heads");
      // Fewer key heads than ranks are replicated, as trainers do.
      kind.attention->kv_heads = kind.attention->kv_heads >= ranks ? divided(kind.attention->kv_heads, ranks, "key heads") : 1;
    }
    if (kind.mlp) {
      kind.mlp->width = divided(kind.mlp->width, ranks, "MLP columns");
      if (kind.mlp->moe) kind.mlp->moe->width = divided(kind.mlp->moe->width, ranks, "expert columns");
      if (kind.mlp->moe && kind.mlp->moe->shared > 0) kind.mlp->moe->shared_width = divided(kind.mlp->moe->shared_width, ranks, "shared expert columns");
    }
  }
  // Vocabularies are padded to a multiple of the ranks, as trainers do.
  const std::int64_t rows = (rank.table_rows() + ranks - 1) / ranks;
  rank.vocab = rank.padded_vocab = rows;
  return rank;
}

namespace {

// Share of the stored weights that are routed experts'.
double expert_share(const Workload& w, const MemoryPlan& memory) {
  std::set<TensorInstance> seen;
  double bytes = 0;
  each_op_run(w, [&](const Step& step, const Op& op) {
    const auto* gemm = std::get_if<Gemm>(&op.spec);
    if (!gemm || gemm->experts <= 1 || gemm->role != GemmRole::kForward || op.pass != Pass::kForward) return;
    for (size_t k = 1; k <= (gemm->bias ? 2u : 1u); ++k)
      if (seen.insert(instance_of(w, step, op.inputs[k])).second) bytes += w.tensors()[static_cast<size_t>(op.inputs[k].tensor)].bytes().to_double();
  });
  return memory.weights > 0 ? bytes / static_cast<double>(memory.weights) : 0;
}

}  // namespace

double expected_most_rows(std::int64_t total, std::int64_t chosen, std::int64_t ranks) {
  if (total < 1 || chosen < 0 || chosen > total || ranks < 1 || total % ranks != 0)
    throw_input("rows over ranks need 0 <= chosen <= total, and a total that divides over the ranks");
  if (ranks == 1 || chosen == 0) return static_cast<double>(chosen);
  const std::int64_t each = total / ranks;
  // Independent binomials, given their sum, are the multivariate hypergeometric: P(max <= m) = [x^chosen] (sum_{j<=m} b_j x^j)^ranks / B(chosen).
  const double p = static_cast<double>(chosen) / static_cast<double>(total);
  const auto log_choose = [](double n, double k) { return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1); };
  const auto binomial_mass = [&](double n, double k) {
    if (p >= 1) return k == n ? 1.0 : 0.0;
    return std::exp(log_choose(n, k) + k * std::log(p) + (n - k) * std::log1p(-p));
  };
  std::vector<double> mass(static_cast<size_t>(std::min(each, chosen)) + 1);
  for (size_t j = 0; j < mass.size(); ++j) mass[j] = binomial_mass(static_cast<double>(each), static_cast<double>(j));
  const double all = binomial_mass(static_cast<double>(total), static_cast<double>(chosen));
  const auto at_most = [&](std::int64_t m) {
    std::vector<double> sum = {1.0};
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::vector<double> next(std::min<size_t>(static_cast<size_t>(chosen) + 1, sum.size() + static_cast<size_t>(m)), 0.0);
      for (size_t i = 0; i < sum.size(); ++i)
        for (size_t j = 0; j <= static_cast<size_t>(m) && j < mass.size() && i + j < next.size(); ++j) next[i + j] += sum[i] * mass[j];
      sum = std::move(next);
    }
    return sum.size() > static_cast<size_t>(chosen) ? std::min(1.0, sum[static_cast<size_t>(chosen)] / all) : 0.0;
  };
  // E[max] = sum over m of P(max > m); nothing below the mean rounded up can hold all.
  const std::int64_t least = (chosen + ranks - 1) / ranks;
  double expected = static_cast<double>(least);
  for (std::int64_t m = least; m < std::min(each, chosen); ++m) {
    const double beyond = 1 - at_most(m);
    if (beyond < 1e-12) break;
    expected += beyond;
  }
  return expected;
}

double expected_fullest(std::int64_t items, std::int64_t ranks) {
  if (items < 0 || ranks < 1) throw_input("items over ranks need counts that are not negative");
  if (ranks == 1 || items == 0) return static_cast<double>(items);
  // Independent Poisson counts, given their sum, are the multinomial.
  const double rate = static_cast<double>(items) / static_cast<double>(ranks);
  const auto poisson = [](double l, double k) { return std::exp(-l + k * std::log(l) - std::lgamma(k + 1)); };
  std::vector<double> mass(static_cast<size_t>(items) + 1);
  for (size_t j = 0; j < mass.size(); ++j) mass[j] = poisson(rate, static_cast<double>(j));
  const double all = poisson(static_cast<double>(items), static_cast<double>(items));
  const std::int64_t least = (items + ranks - 1) / ranks;
  double expected = static_cast<double>(least);
  for (std::int64_t m = least; m < items; ++m) {
    std::vector<double> sum = {1.0};
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::vector<double> next(std::min<size_t>(static_cast<size_t>(items) + 1, sum.size() + static_cast<size_t>(m)), 0.0);
      for (size_t i = 0; i < sum.size(); ++i)
        for (size_t j = 0; j <= static_cast<size_t>(m) && i + j < next.size(); ++j) next[i + j] += sum[i] * mass[j];
      sum = std::move(next);
    }
    const double beyond = 1 - (sum.size() > static_cast<size_t>(items) ? std::min(1.0, sum[static_cast<size_t>(items)] / all) : 0.0);
    if (beyond < 1e-9) break;
    expected += beyond;
  }
  return expected;
}

ParallelPrediction predict_parallel(const Network& network, const Scenario& scenario, const Machine& machine, const ParallelPlan& plan, const PredictOptions& options) {
  for (const auto& [value, name] : {std::pair{plan.data, "dp"}, {plan.tensor, "tp"}, {plan.pipeline, "pp"}, {plan.expert, "ep"}, {plan.micro_batches, "microbatches"}, {plan.interleave, "interleave"}, {plan.node, "node"}})
    if (value < 1) throw_input(fmt::format("{} is {}, must be at least 1", name, value), {"", 0, name});
  if (!machine.gpu_fit) throw_input(fmt::format("machine '{}' has no measured collectives", machine.name), {"", 0, "--on"}, "parallel plans need a fitted GPU, such as h200");
  const std::int64_t layers = network.layer_count();
  if (plan.pipeline * plan.interleave > layers) throw_input(fmt::format("{} layers cannot fill {} stages of {} chunks", layers, plan.pipeline, plan.interleave), {"", 0, "pp"});
  if (scenario.batch % (plan.data * plan.micro_batches) != 0)
    throw_input(fmt::format("a batch of {} does not divide over {} data ranks x {} micro-batches", scenario.batch, plan.data, plan.micro_batches), {"", 0, "batch"});
  if (plan.sequence && scenario.phase == Phase::kDecode) throw_input("sequence parallelism needs more than one new token per sequence", {"", 0, "sp"});
  const bool train = scenario.phase == Phase::kTrain;

  Scenario micro = scenario;
  micro.batch = scenario.batch / (plan.data * plan.micro_batches);
  // Two micro-steps stand for all: the second accumulates weight gradients, as all but the first do.
  micro.grad_accumulation = train && plan.micro_batches > 1 ? 2 : 1;
  const Network rank = tensor_rank(network, plan.tensor);
  const Workload w = build(rank, micro);
  PredictOptions o = options;
  o.follow_placement = false;
  const StepPrediction step = predict(w, machine, o);
  Wires wires(machine, plan);
  ParallelPrediction result;
  result.out_of_range = step.out_of_range;

  // Time of one use of each block, with its communication.
  const double width_bytes = static_cast<double>(network.width) * static_cast<double>(dtype_bytes(scenario.dtype));
  const double tokens = static_cast<double>(micro.batch * std::max<std::int64_t>(1, micro.phase == Phase::kDecode ? 1 : micro.length));
  // The sum over ranks after a row-parallel product, or its two halves; backward has the same on the gradients.
  const auto reduce = [&](double bytes) {
    if (!plan.sequence) return wires.time("all_reduce", plan.tensor, plan.tensor, bytes);
    return wires.time("reduce_scatter", plan.tensor, plan.tensor, bytes) + wires.time("all_gather", plan.tensor, plan.tensor, bytes);
  };
  std::vector<Piece> pieces(w.blocks().size());
  for (size_t b = 0; b < w.blocks().size(); ++b) {
    const Block& block = w.blocks()[b];
    Piece& piece = pieces[b];
    for (int i = block.first_op; i < block.first_op + block.op_count; ++i) {
      const Op& op = w.ops()[static_cast<size_t>(i)];
      const Prediction& p = step.ops[i].each;
      double scale = 1;
      if (plan.sequence && plan.tensor > 1 && is_row_wise(op)) {
        double share = 1.0 / static_cast<double>(plan.tensor);
        const Rows rows = rows_of(op.spec);
        // Routed rows lie unevenly on the ranks of a sharded sequence: the fullest decides.
        if (const auto* scatter = std::get_if<ScatterAddRows>(&op.spec); scatter && micro.length % plan.tensor == 0 && rows.count < micro.batch * micro.length) {
          const std::int64_t chosen = rows.count / micro.batch;
          if (chosen > 0) share = expected_most_rows(micro.length, chosen, plan.tensor) / static_cast<double>(chosen);
        }
        scale = (p.launch + (p.seconds - p.launch) * share) / std::max(1e-30, p.seconds);
      }
      const auto* gemm = std::get_if<Gemm>(&op.spec);
      if (gemm && gemm->experts > 1 && plan.expert > 1) {
        const double even = static_cast<double>(gemm->rows.count) / static_cast<double>(plan.expert);
        const double imbalance = even > 0 && gemm->rows.count <= 4096 ? expected_fullest(gemm->rows.count, plan.expert) / even : 1.0;
        scale /= static_cast<double>(plan.expert);
        scale *= imbalance;
      }
      const double seconds = p.seconds * scale;
      if (op.pass == Pass::kOptimizer) {
        piece.optimizer += plan.zero >= 1 ? seconds / static_cast<double>(plan.data) : seconds;
        continue;
      }
      piece.compute += seconds;
      piece.lo += p.lo * scale;
      piece.hi += p.hi * scale;
      if (op.pass != Pass::kForward) piece.backward += seconds;
      if (is_row_parallel(op)) {
        const auto* combine = std::get_if<ExpertCombine>(&op.spec);
        const double bytes = (combine ? static_cast<double>(combine->tokens) : rows_of(op.spec).expected()) * width_bytes;
        // Forward and recomputation where they stand; the backward pass has the same volume, and with sequence parallelism gathers inputs again.
        piece.tensor += reduce(bytes);
        if (train && op.pass == Pass::kForward) piece.tensor += reduce(bytes) + (plan.sequence ? wires.time("all_gather", plan.tensor, plan.tensor, bytes) : 0);
      }
      if (std::holds_alternative<Select>(op.spec) && plan.sequence) piece.tensor += wires.time("all_gather", plan.tensor, plan.tensor, tokens * 4);
      if (plan.expert > 1 && (std::holds_alternative<ExpertDispatch>(op.spec) || std::holds_alternative<ExpertCombine>(op.spec) ||
                              std::holds_alternative<ExpertDispatchBackward>(op.spec) || std::holds_alternative<ExpertCombineBackward>(op.spec)))
        piece.expert += wires.time("alltoall", plan.expert, plan.expert * plan.tensor, rows_of(op.spec).expected() * width_bytes);
    }
  }

  // Deal layers to stages in contiguous chunks; what stands outside the layers goes to the first stage (embedding) and the last (the rest).
  std::vector<Piece> stages(static_cast<size_t>(plan.pipeline));
  std::vector<std::int64_t> stage_layers(static_cast<size_t>(plan.pipeline), 0);
  const auto stage_of = [&](std::int64_t layer) {
    const std::int64_t chunks = plan.pipeline * plan.interleave;
    return static_cast<size_t>((layer * chunks / layers) % plan.pipeline);
  };
  for (std::int64_t l = 0; l < layers; ++l) ++stage_layers[stage_of(l)];
  for (const Step& s : w.program()) {
    if (s.micro + 1 != micro.grad_accumulation) continue;
    const Block& block = w.blocks()[static_cast<size_t>(s.block)];
    const size_t stage = block.layered ? stage_of(s.layer) : block.label.starts_with("embed") ? 0 : stages.size() - 1;
    stages[stage] += pieces[static_cast<size_t>(s.block)];
  }
  if (plan.tensor > 1) {  // the sharded token table: its rows are summed; the sharded head: maximum, sum and target logit per row, and its input gradient
    stages.front().tensor += reduce(tokens * width_bytes);
    stages.back().tensor += 3 * wires.time("all_reduce", plan.tensor, plan.tensor, tokens * 4);
    if (train) stages.back().tensor += reduce(tokens * width_bytes);
  }

  // Sends: activations forward and their gradients backward, per chunk.
  double send = 0;
  if (plan.pipeline > 1) {
    const double bytes = tokens * width_bytes / (plan.sequence ? static_cast<double>(plan.tensor) : 1.0);
    send = (train ? 2.0 : 1.0) * static_cast<double>(plan.interleave) * wires.send(bytes, plan.tensor * plan.data);
  }
  const double micros = static_cast<double>(plan.micro_batches), fill = static_cast<double>(plan.pipeline - 1) / static_cast<double>(plan.interleave);
  const auto micro_time = [&](const Piece& p) { return p.compute + p.tensor + p.expert + send; };
  const Piece& slowest = *std::max_element(stages.begin(), stages.end(), [&](const Piece& a, const Piece& b) { return micro_time(a) < micro_time(b); });
  double optimizer = 0;
  for (const Piece& s : stages) optimizer = std::max(optimizer, s.optimizer);

  // Memory of one rank of the largest stage, from the plan of its own op list.
  std::int64_t most = *std::max_element(stage_layers.begin(), stage_layers.end());
  Network stage_network = rank;
  stage_network.layers.assign(rank.layers.begin(), rank.layers.begin() + most);
  if (!rank.weights_of.empty()) stage_network.weights_of.assign(rank.weights_of.begin(), rank.weights_of.begin() + most);
  const Workload stage = build(stage_network, micro);
  const MemoryPlan memory = plan_memory(stage);
  // A pipeline's first stage has the table, its last the head: with both in the list, one of them is taken off.
  double head_share = 1;
  if (plan.pipeline > 1 && !rank.tied) {
    const double table = static_cast<double>(rank.table_rows()) * static_cast<double>(network.width) * static_cast<double>(dtype_bytes(scenario.dtype));
    head_share = 1 - table / std::max(1.0, static_cast<double>(memory.weights));
  }
  const double shards = static_cast<double>(plan.data);
  // Expert parallel ranks are data ranks that hold E / ep of the experts each; activations are those of the rows that a rank routes, whoever computes them.
  const double spread = 1 - expert_share(stage, memory) * (1 - 1.0 / static_cast<double>(plan.expert));
  const auto held = [&](std::int64_t bytes, int zero) {
    const double all = static_cast<double>(bytes) * head_share;
    return plan.zero >= zero ? all / shards : all * spread;  // sharded over all data ranks, experts are spread already
  };
  result.weight_bytes = held(memory.weights, 3);
  result.gradient_bytes = held(memory.gradients, 2);
  result.optimizer_bytes = held(memory.optimizer, 1);
  const double in_flight = train ? std::min<double>(micros, static_cast<double>(plan.pipeline)) : 1;
  // Sequence parallelism keeps rows / g of everything as wide as the stream; what is inside attention and MLP is divided already.
  double wide = 0, all_activations = 0;
  for (const Tensor& t : stage.tensors()) {
    if (t.role != Role::kActivation) continue;
    const double bytes = t.bytes().to_double() * (t.scope == Scope::kLayer ? static_cast<double>(most) : 1.0);
    all_activations += bytes;
    if (t.cols == network.width) wide += bytes;
  }
  const double kept = plan.sequence && all_activations > 0 ? 1 - wide / all_activations * (1 - 1.0 / static_cast<double>(plan.tensor)) : 1.0;
  result.activation_bytes = static_cast<double>(memory.activations) * in_flight * kept;
  result.memory_bytes = result.weight_bytes + result.gradient_bytes + result.optimizer_bytes + result.activation_bytes + static_cast<double>(memory.kv_cache + memory.other);

  result.micro_s = micro_time(slowest);
  result.compute_s = slowest.compute * micros;
  result.tensor_comm_s = slowest.tensor * micros;
  result.expert_comm_s = slowest.expert * micros;
  result.send_s = send * micros;
  result.bubble_s = fill * result.micro_s;
  result.optimizer_s = optimizer;
  if (train && plan.data > 1) {
    const double gradients = static_cast<double>(memory.gradients) * head_share;
    const std::int64_t span = plan.tensor * plan.data;
    const double all = plan.zero == 0 ? wires.time("all_reduce", plan.data, span, gradients)
                                      : wires.time("reduce_scatter", plan.data, span, gradients) + wires.time("all_gather", plan.data, span, static_cast<double>(memory.weights) * head_share);
    const double bucket = wires.time("all_reduce", plan.data, span, std::min(kLastBucketBytes, gradients));
    result.data_comm_s = plan.overlap > 0 ? std::max(0.0, all - plan.overlap * slowest.backward) + bucket : all;
    if (plan.zero >= 3) result.data_comm_s += 2 * micros * wires.time("all_gather", plan.data, span, static_cast<double>(memory.weights) * head_share);
  }
  const double overhead = step.overhead * micros / static_cast<double>(micro.grad_accumulation);
  result.seconds = (micros + fill) * result.micro_s + result.data_comm_s + optimizer + overhead;
  const double fixed = result.seconds - (micros + fill) * slowest.compute;
  result.lo = fixed + (micros + fill) * slowest.lo;
  result.hi = fixed + (micros + fill) * slowest.hi;
  result.provenance = weaker(step.provenance, wires.provenance);
  return result;
}

}  // namespace fathom
