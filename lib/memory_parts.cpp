#include "lib/memory_parts.hpp"

#include <set>

#include "lib/plan.hpp"

namespace fathom {

MemoryParts memory_parts(const Workload& workload) {
  MemoryParts parts;
  std::set<TensorInstance> counted, forward, saved;
  for (const Step& step : workload.program()) {
    if (step.micro > 0) continue;  // every micro-step uses the same memory; the optimizer comes after the last
    const Block& block = workload.blocks()[static_cast<size_t>(step.block)];
    for (int i = 0; i < block.op_count; ++i) {
      const Op& op = workload.ops()[static_cast<size_t>(block.first_op + i)];
      const bool later = op.pass == Pass::kBackward || op.pass == Pass::kRecompute;
      for (const Operand& in : op.inputs) {
        const TensorInstance at = instance_of(workload, step, in);
        if (later && forward.count(at) && saved.insert(at).second) parts.saved += workload.tensors()[static_cast<size_t>(at.tensor)].bytes();
      }
      for (const Operand& out : op.outputs) {
        const Role role = workload.tensors()[static_cast<size_t>(out.tensor)].role;
        if (op.pass == Pass::kForward && (role == Role::kActivation || role == Role::kIndex)) forward.insert(instance_of(workload, step, out));
      }
    }
  }
  for (const Step& step : workload.program()) {
    const Block& block = workload.blocks()[static_cast<size_t>(step.block)];
    for (int i = 0; i < block.op_count; ++i) {
      const Op& op = workload.ops()[static_cast<size_t>(block.first_op + i)];
      for (const auto* operands : {&op.inputs, &op.outputs})
        for (const Operand& operand : *operands) {
          const Tensor& tensor = workload.tensors()[static_cast<size_t>(operand.tensor)];
          Bytes* part = tensor.role == Role::kWeight           ? &parts.weights
                        : tensor.role == Role::kGradient       ? &parts.gradients
                        : tensor.role == Role::kOptimizerState ? &parts.optimizer
                        : tensor.role == Role::kKvCache        ? &parts.kv_cache
                                                               : nullptr;
          if (part && counted.insert(instance_of(workload, step, operand)).second) *part += tensor.bytes();
        }
    }
  }
  return parts;
}

}  // namespace fathom
