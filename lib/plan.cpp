#include "lib/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/error.hpp"
#include "lib/plan_limit.hpp"

namespace fathom {
namespace {

struct Life {
  TensorInstance instance;
  std::int64_t size = 0;
  int first = std::numeric_limits<int>::max();
  int last = -1;
};

std::int64_t aligned_size(const Tensor& tensor) {
  // Activations get whole tiles of rows, so that matrix kernels may run padded rows without a copy.
  const std::int64_t rows = tensor.role == Role::kActivation ? (tensor.rows + kPlanRowTile - 1) / kPlanRowTile * kPlanRowTile : tensor.rows;
  const u128 bytes = product(rows, tensor.cols, dtype_bytes(tensor.dtype));
  if (bytes > static_cast<u128>(std::numeric_limits<std::int64_t>::max() / 4)) throw_input("tensor '" + tensor.name + "' is too large to plan", {}, "take a smaller batch, length or context (--batch, --seq, --context, --past), or a smaller model");
  return (static_cast<std::int64_t>(bytes) + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

bool is_shared(Role role) { return role == Role::kActivation || role == Role::kIndex; }

// The input that output 0 may share memory with: elementwise and scatter ops read and write each element once.
bool works_in_place(const OpSpec& spec) { return std::holds_alternative<AddResidual>(spec) || std::holds_alternative<ScatterAddRows>(spec); }

}  // namespace

TensorInstance instance_of(const Workload& workload, const Step& step, const Operand& operand) {
  const Tensor& tensor = workload.tensors()[static_cast<size_t>(operand.tensor)];
  const int micro = is_shared(tensor.role) ? step.micro : 0;
  switch (tensor.scope) {
    case Scope::kGlobal: return {operand.tensor, 0, micro};
    case Scope::kLayer: return {operand.tensor, step.layer + operand.layer_offset, micro};
    case Scope::kWeights: return {operand.tensor, step.weights, micro};
  }
  return {};
}

MemoryPlan plan_memory(const Workload& workload) {
  MemoryPlan plan;
  if (const std::int64_t ops = program_ops(workload); ops > kMostPlannedOps)
    throw_input(fmt::format("a step of {} ops is too long for a memory plan (at most {})", ops, kMostPlannedOps), {}, "use fewer layers");
  std::map<TensorInstance, Life> lives;
  const auto touch = [&](const TensorInstance& instance, int time) {
    Life& life = lives[instance];
    if (life.last < 0) {
      life.instance = instance;
      life.size = aligned_size(workload.tensors()[static_cast<size_t>(instance.tensor)]);
    }
    life.first = std::min(life.first, time);
    life.last = std::max(life.last, time);
  };
  int time = 0;
  for (const Step& step : workload.program()) {
    const Block& block = workload.blocks()[static_cast<size_t>(step.block)];
    for (int i = 0; i < block.op_count; ++i, ++time) {
      const Op& op = workload.ops()[static_cast<size_t>(block.first_op + i)];
      for (const auto* operands : {&op.inputs, &op.outputs})
        for (const Operand& operand : *operands) touch(instance_of(workload, step, operand), time);
    }
  }

  // In-place chains: output joins the placement of an input that dies at this op.
  std::map<TensorInstance, TensorInstance> joined;
  const auto root = [&](TensorInstance instance) {
    for (auto found = joined.find(instance); found != joined.end(); found = joined.find(instance)) instance = found->second;
    return instance;
  };
  time = 0;
  for (const Step& step : workload.program()) {
    const Block& block = workload.blocks()[static_cast<size_t>(step.block)];
    for (int i = 0; i < block.op_count; ++i, ++time) {
      const Op& op = workload.ops()[static_cast<size_t>(block.first_op + i)];
      if (!works_in_place(op.spec)) continue;
      const TensorInstance out = instance_of(workload, step, op.outputs[0]);
      if (!is_shared(workload.tensors()[static_cast<size_t>(out.tensor)].role) || joined.count(out) || lives[out].first != time) continue;
      const size_t candidates = std::holds_alternative<ScatterAddRows>(op.spec) ? 1 : 2;
      for (size_t k = 0; k < candidates; ++k) {
        const TensorInstance in = root(instance_of(workload, step, op.inputs[k]));
        if (in == out || !is_shared(workload.tensors()[static_cast<size_t>(in.tensor)].role)) continue;
        Life& source = lives[in];
        const Life& target = lives[out];
        if (source.last != time || source.size != target.size) continue;
        source.last = std::max(source.last, target.last);
        joined[out] = in;
        break;
      }
    }
  }

  std::vector<Life> order;
  std::int64_t persistent = 0;
  for (const auto& [instance, life] : lives) {
    const Role role = workload.tensors()[static_cast<size_t>(instance.tensor)].role;
    if (is_shared(role)) {
      if (!joined.count(instance)) order.push_back(life);
      continue;
    }
    plan.offsets[instance] = persistent;
    persistent += life.size;
    std::int64_t& part = role == Role::kWeight           ? plan.weights
                         : role == Role::kGradient       ? plan.gradients
                         : role == Role::kOptimizerState ? plan.optimizer
                         : role == Role::kKvCache        ? plan.kv_cache
                                                         : plan.other;
    part += life.size;
  }
  std::stable_sort(order.begin(), order.end(), [](const Life& a, const Life& b) { return a.size > b.size; });
  struct Placed {
    int first = 0, last = 0;
    std::int64_t offset = 0, end = 0;
  };
  std::vector<Placed> placed;  // sorted by offset
  for (const Life& life : order) {
    std::int64_t offset = 0;
    for (const Placed& other : placed) {
      if (other.first > life.last || life.first > other.last) continue;
      if (other.offset >= offset + life.size) break;
      offset = std::max(offset, other.end);
    }
    plan.activations = std::max(plan.activations, offset + life.size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, [](std::int64_t at, const Placed& b) { return at < b.offset; }), Placed{life.first, life.last, offset, offset + life.size});
    plan.offsets[life.instance] = persistent + offset;
  }
  for (const auto& [instance, into] : joined) plan.offsets[instance] = plan.offsets.at(root(into));
  plan.arena = persistent + plan.activations;
  return plan;
}

}  // namespace fathom
