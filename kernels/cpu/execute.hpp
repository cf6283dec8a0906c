// run_op: one overload per op kind, from operands to the kernel call. Internal to the CPU execution.
#pragma once

#include "kernels/cpu/execution.hpp"

namespace fathom::cpu {

struct OpCall {
  CpuExecution& execution;
  const BoundOp& bound;
  Executed& executed;
  const Selection* selection;  // null: declared rows
  std::byte* scratch;
  int threads;

  const OperandView& in(size_t i) const { return bound.in[i]; }
  const OperandView& out(size_t i) const { return bound.out[i]; }
  std::int64_t rows() const { return executed.rows; }
};

void run_op(const fathom::Embedding& op, const OpCall& call);
void run_op(const fathom::RmsNorm& op, const OpCall& call);
void run_op(const fathom::LayerNorm& op, const OpCall& call);
void run_op(const fathom::Rope& op, const OpCall& call);
void run_op(const fathom::Attention& op, const OpCall& call);
void run_op(const fathom::KvAppend& op, const OpCall& call);
void run_op(const fathom::Activation& op, const OpCall& call);
void run_op(const fathom::AddResidual& op, const OpCall& call);
void run_op(const fathom::RouterScore& op, const OpCall& call);
void run_op(const fathom::Select& op, const OpCall& call);
void run_op(const fathom::GatherRows& op, const OpCall& call);
void run_op(const fathom::ScatterAddRows& op, const OpCall& call);
void run_op(const fathom::ExpertSelect& op, const OpCall& call);
void run_op(const fathom::ExpertDispatch& op, const OpCall& call);
void run_op(const fathom::ExpertCombine& op, const OpCall& call);
void run_op(const fathom::CrossEntropy& op, const OpCall& call);
void run_op(const fathom::RouterLoss& op, const OpCall& call);
void run_op(const fathom::RmsNormBackward& op, const OpCall& call);
void run_op(const fathom::LayerNormBackward& op, const OpCall& call);
void run_op(const fathom::AttentionBackward& op, const OpCall& call);
void run_op(const fathom::ActivationBackward& op, const OpCall& call);
void run_op(const fathom::ScatterAddBackward& op, const OpCall& call);
void run_op(const fathom::GatherBackward& op, const OpCall& call);
void run_op(const fathom::RouterScoreBackward& op, const OpCall& call);
void run_op(const fathom::ExpertSelectBackward& op, const OpCall& call);
void run_op(const fathom::ExpertCombineBackward& op, const OpCall& call);
void run_op(const fathom::ExpertDispatchBackward& op, const OpCall& call);
void run_op(const fathom::EmbeddingBackward& op, const OpCall& call);
void run_op(const fathom::LatentHeads& op, const OpCall& call);
void run_op(const fathom::LatentHeadsBackward& op, const OpCall& call);
void run_op(const fathom::GradientNorm& op, const OpCall& call);
void run_op(const fathom::AdamW& op, const OpCall& call);

std::int64_t column_norm_scratch(const fathom::RmsNorm& op);  // backward of a norm in place (execute_norms.cpp)

// Scratch of the expert ops (execute_experts.cpp).
std::int64_t expert_select_scratch(const fathom::ExpertSelect& op);
std::int64_t expert_combine_backward_scratch(const fathom::ExpertCombine& op);
std::int64_t expert_slots_scratch(std::int64_t tokens, std::int64_t picks);

}  // namespace fathom::cpu
