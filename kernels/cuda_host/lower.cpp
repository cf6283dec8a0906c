#include "kernels/cuda_host/lower.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"

namespace fathom::cuda {

void prepare_context(LoweringContext& context, const std::vector<const BoundOp*>& program) {
  Pieces& pieces = context.constants.pieces;
  context.flags = pieces.take<std::int32_t>(static_cast<std::int64_t>(program.size()));
  for (const BoundOp* bound : program) {
    if (const auto* select = std::get_if<Select>(bound->spec)) context.offset_count += select->sequences + 1;
    if (const auto* select = std::get_if<ExpertSelect>(bound->spec)) context.expert_offset_count += select->experts + 1;
  }
  context.offsets = pieces.take<std::int32_t>(context.offset_count);
  context.expert_offsets = pieces.take<std::int32_t>(context.expert_offset_count);
  std::int32_t* next_experts = context.expert_offsets;
  std::int32_t* next_offsets = context.offsets;
  std::int64_t ones = 0;
  const StreamShape& stream = context.workload->stream();
  for (const BoundOp* bound : program) {
    if (const auto* select = std::get_if<Select>(bound->spec)) {
      SelectionBuffers buffers;
      buffers.select = select;
      buffers.index = bound->selection;
      buffers.fixed = select->rule == RoutingRule::kTopK || select->rule == RoutingRule::kRandom;
      buffers.offsets = next_offsets;
      next_offsets += select->sequences + 1;
      if (select->rest) buffers.rest_count = pieces.take<std::int32_t>(1);
      buffers.inverse = pieces.take<std::int32_t>(select->sequences * select->length);
      context.selections[bound->out[0].at] = buffers;
    }
    if (const auto* select = std::get_if<ExpertSelect>(bound->spec)) {
      AssignedBuffers buffers;
      buffers.select = select;
      buffers.offsets = bound->out[2];
      buffers.chosen = pieces.take<std::int32_t>(select->rows.count * select->picks);
      buffers.chosen_weights = pieces.take<float>(select->rows.count * select->picks);
      buffers.slots = pieces.take<std::int32_t>(select->rows.count * select->picks);
      buffers.kept_offsets = next_experts;
      next_experts += select->experts + 1;
      context.assigned[bound->out[0].at] = buffers;
      context.assigned_by_index[bound->assigned] = bound->out[0].at;
    }
    if (const auto* gemm = std::get_if<Gemm>(bound->spec); gemm && gemm->role == GemmRole::kWeightGradient && gemm->experts <= 1 && bound->out.size() > 1)
      ones = std::max(ones, gemm->rows.count);
    if (const auto* rope = std::get_if<Rope>(bound->spec)) {
      const float*& table = context.rope_tables[{rope->base, rope->width}];
      if (table) continue;
      const std::int64_t positions = stream.past + stream.queries;
      std::vector<float> values(static_cast<std::size_t>(positions * rope->width));
      fill_rope_table(rope->base, rope->width, positions, values.data());
      table = context.constants.add(values);
    }
  }
  if (ones > 0) context.ones = context.constants.add(std::vector<float>(static_cast<std::size_t>(ones), 1.0f));
}

void Lowering::lower() {
  std::visit([this](const auto& op) { (*this)(op); }, *bound_.spec);
}

const SelectionBuffers* Lowering::selection() const {
  if (bound_.selection < 0) return nullptr;
  for (const auto& [indices, buffers] : context_.selections)
    if (buffers.index == bound_.selection) return &buffers;
  throw_internal("a selection without buffers");
}

const SelectionBuffers& Lowering::selection_of(const OperandView& indices) const {
  const auto found = context_.selections.find(indices.at);
  if (found == context_.selections.end()) throw_internal(fmt::format("the rows of '{}' come from no selection", kind_name(*bound_.spec)));
  return found->second;
}

const AssignedBuffers& Lowering::assigned_of(const OperandView& permutation) const {
  const auto found = context_.assigned.find(permutation.at);
  if (found == context_.assigned.end()) throw_internal(fmt::format("the rows of '{}' come from no expert selection", kind_name(*bound_.spec)));
  return found->second;
}

bool Lowering::is_gradient(const OperandView& view) const {
  return context_.workload->tensors()[static_cast<std::size_t>(view.at.tensor)].role == Role::kGradient;
}

RowCount Lowering::rows(std::int64_t declared) const {
  if (bound_.assigned >= 0) {
    const AssignedBuffers& assigned = context_.assigned.at(context_.assigned_by_index.at(bound_.assigned));
    return {declared, assigned.offsets.as<std::int32_t>() + assigned.select->experts};
  }
  return {declared, selected_rows()};
}

const std::int32_t* Lowering::selected_rows() const {
  const SelectionBuffers* chosen = selection();
  if (!chosen || chosen->fixed) return nullptr;
  return rows_of(*bound_.spec).source == RowSource::kRest ? chosen->rest_count : chosen->offsets + chosen->select->sequences;
}

Ragged Lowering::ragged(std::int64_t sequences, std::int64_t declared) const {
  const SelectionBuffers* chosen = selection();
  if (!chosen || chosen->fixed) return {sequences, sequences > 0 ? declared / sequences : 0, nullptr};
  return {sequences, 0, chosen->offsets};
}

void Lowering::clear(void* memory, std::int64_t bytes, const char* what) {
  push([=](RunState& run) {
    Text text;
    must(run.module->clear(run.device, memory, bytes, &text), what, text);
  });
}

void Lowering::copy(void* to, const void* from, std::int64_t bytes, const char* what) {
  push([=](RunState& run) {
    Text text;
    must(run.module->copy(run.device, to, from, bytes, &text), what, text);
  });
}

}  // namespace fathom::cuda
