// The routing of a Mixture-of-Depths block and of experts: choosing rows, moving them, scoring them, and their gradients.
#include <algorithm>

#include "kernels/cuda_host/lower.hpp"
#include "lib/fill.hpp"

namespace fathom::cuda {

void Lowering::operator()(const Select& op) {
  const SelectionBuffers& buffers = selection_of(out(0));
  SelectArgs a;
  a.sequences = op.sequences;
  a.length = op.length;
  a.k = op.sequences > 0 ? op.selected.count / op.sequences : 0;
  a.top = buffers.fixed;
  a.scores = in(0).as<float>();
  if (op.rule == RoutingRule::kRandom) {
    // The control of the paper: scores without content, the same on every backend.
    std::vector<float> scores(static_cast<std::size_t>(op.sequences * op.length));
    for (std::size_t i = 0; i < scores.size(); ++i)
      scores[i] = static_cast<float>(fill_uniform(context_.options->seed, "random routing", static_cast<std::uint64_t>(bound_.layer) * scores.size() + i));
    a.scores = context_.constants.add(scores);
  }
  a.positions = in(1).as<std::int32_t>();
  a.indices = out(0).as<std::int32_t>();
  a.selected_positions = out(1).as<std::int32_t>();
  a.counts = out(2).as<std::int32_t>();
  a.rest = op.rest ? out(3).as<std::int32_t>() : nullptr;
  a.offsets = buffers.offsets;
  a.rest_count = buffers.rest_count;
  a.inverse = buffers.inverse;
  a.nan_row = flag();
  launch(&Kernels::select, a, "select", [](SelectArgs& now, RunState& run) { now.threshold = run.threshold; });
  if (buffers.fixed) return;
  // The host needs the counts for the products behind; a captured graph does without.
  push([counts = a.counts, sequences = op.sequences, index = bound_.selection](RunState& run) {
    if (!run.host_rows || run.capturing) return;
    std::vector<std::int32_t>& to = run.counts[index];
    to.resize(static_cast<std::size_t>(sequences));
    Text text;
    must(run.module->download(run.device, to.data(), counts, sequences * 4, &text), "reading the rows of a selection", text);
  });
}

void Lowering::operator()(const GatherRows& op) {
  GatherArgs a;
  a.type = op.act;
  a.rows = rows(op.rows.count);
  a.width = op.width;
  a.x = in(0).data;
  a.indices = in(1).as<std::int32_t>();
  a.y = out(0).data;
  launch(&Kernels::gather, a, "gather_rows");
}

void Lowering::operator()(const GatherBackward& op) {
  ScatterArgs a;
  a.type = op.forward.act;
  a.rows = rows(op.forward.rows.count);
  a.all_rows = out(0).rows;
  a.width = op.forward.width;
  a.x = a.y = out(0).data;
  a.f = in(0).data;
  a.indices = in(1).as<std::int32_t>();
  launch(&Kernels::scatter, a, "gather_backward");
}

void Lowering::operator()(const ScatterAddRows& op) {
  ScatterArgs a;
  a.type = op.act;
  a.rows = rows(op.rows.count);
  a.all_rows = in(0).rows;
  a.width = op.width;
  a.gate = op.gate;
  a.replace = op.replace;
  a.x = in(0).data;
  a.f = in(1).data;
  a.indices = in(2).as<std::int32_t>();
  a.scores = op.gate.kind != GateKind::kNone ? in(3).as<float>() : nullptr;
  a.y = out(0).data;
  if (a.x != a.y) {
    const auto found = context_.selections.find(in(2).at);
    if (found != context_.selections.end()) {
      a.inverse = found->second.inverse;
    } else {  // the rest of a selection: its rows are written into a copy
      copy(a.y, a.x, in(0).rows * in(0).cols * dtype_bytes(op.act), "copying the rows that stay");
      a.x = a.y;
    }
  }
  launch(&Kernels::scatter, a, "scatter_add_rows");
}

void Lowering::operator()(const ScatterAddBackward& op) {
  const ScatterAddRows& f = op.forward;
  ScatterBackwardArgs a;
  a.type = f.act;
  a.rows = rows(f.rows.count);
  a.width = f.width;
  a.gate = f.gate;
  a.replace = f.replace;
  a.accumulate = op.accumulate;
  a.dy = in(0).data;
  a.f = in(1).data;
  a.indices = in(2).as<std::int32_t>();
  if (f.gate.kind != GateKind::kNone) {
    a.scores = in(3).as<float>();
    a.dscores = out(1).as<float>();
  }
  a.df = out(0).data;
  launch(&Kernels::scatter_backward, a, "scatter_add_backward");
}

void Lowering::operator()(const RouterScore& op) {
  RouterScoreArgs a;
  a.type = op.act;
  a.rows = op.rows.count;
  a.width = op.width;
  a.x = in(0).data;
  a.w = in(1).data;
  if (op.bias) {
    a.bias = in(2).data;
    a.bias_type = in(2).dtype;
  }
  a.scores = out(0).as<float>();
  launch(&Kernels::router_score, a, "router_score");
}

void Lowering::operator()(const RouterLoss& op) {
  RouterLossArgs a;
  a.rows = op.rows.count;
  a.weight = static_cast<float>(op.lambda / static_cast<double>(std::max<std::int64_t>(1, op.rows.count)));
  a.scores = in(0).as<float>();
  a.inverse = selection_of(in(1)).inverse;
  a.dscores = out(1).as<float>();
  a.partials = scratch<float>(router_loss_launch(a).grid_x);
  a.loss = out(0).as<float>();
  launch(&Kernels::router_loss, a, "router_loss");
}

void Lowering::operator()(const RouterScoreBackward& op) {
  const RouterScore& f = op.forward;
  RouterBackwardArgs a;
  a.type = f.act;
  a.rows = f.rows.count;
  a.width = f.width;
  a.accumulate = op.accumulate;
  a.no_input = op.input_rows.count == 0;
  a.y = in(0).data;
  if (op.plain) {
    a.all_weight_rows = a.all_input_rows = a.overwrite_input = true;
    a.w = in(1).data;
    a.dscores = in(2).as<float>();
  } else {
    a.all_weight_rows = op.weight_rows == f.rows;
    a.all_input_rows = op.input_rows == f.rows;
    a.gathered = in(1).data;
    a.w = in(2).data;
    a.dscores = in(3).as<float>();
    a.inverse = selection_of(in(4)).inverse;
    if (op.detached_lambda > 0) {
      a.detached_weight = static_cast<float>(op.detached_lambda / static_cast<double>(std::max<std::int64_t>(1, f.rows.count)));
      a.scores = in(5).as<float>();
    }
  }
  if (is_gradient(out(0))) {  // a router may be frozen
    a.dw = out(0).data;
    a.grad_type = out(0).dtype;
    a.db = f.bias ? out(1).data : nullptr;
  }
  a.dx = a.no_input ? nullptr : bound_.out.back().data;
  a.partials = scratch<float>(router_partial_floats(a));
  launch(&Kernels::router_backward, a, "router_score_backward", [routed = op.plain && op.weight_rows.routed()](RouterBackwardArgs& now, RunState& run) {
    if (routed && run.host_rows) now.rows = run.rows;
  });
}

// ---- experts ----

namespace {

ExpertSelectArgs expert_args(const ExpertSelect& op, const AssignedBuffers& buffers, const OperandView& logits, const std::int32_t* token_count) {
  ExpertSelectArgs a;
  a.tokens = op.rows.count;
  a.token_count = token_count;
  a.experts = static_cast<int>(op.experts);
  a.noops = static_cast<int>(op.noops);
  a.picks = static_cast<int>(op.picks);
  a.sigmoid = op.sigmoid;
  a.capacity = op.capacity;
  a.logit_type = logits.dtype;
  a.logits = logits.data;
  a.chosen = buffers.chosen;
  a.chosen_weights = buffers.chosen_weights;
  a.slots = buffers.slots;
  return a;
}

// Rows between tokens and the places of experts, in either direction: `op` dispatches or combines its first operand by its second, a permutation.
template <class RowsOp>
ExpertRowsArgs moved_rows(const RowsOp& op, std::int64_t tokens, const AssignedBuffers& buffers, const BoundOp& bound) {
  ExpertRowsArgs a;
  a.type = op.act;
  a.tokens = tokens;
  a.width = op.width;
  a.picks = static_cast<int>(buffers.select->picks);
  a.rows = {op.rows.count, buffers.offsets.as<std::int32_t>() + buffers.select->experts};
  a.x = bound.in[0].data;
  a.y = bound.out[0].data;
  a.permutation = bound.in[1].as<std::int32_t>();
  a.slots = buffers.slots;
  return a;
}

}  // namespace

void Lowering::operator()(const ExpertSelect& op) {
  const AssignedBuffers& buffers = assigned_of(out(0));
  ExpertSelectArgs a = expert_args(op, buffers, in(0), selected_rows());
  a.room = out(0).rows;
  a.correction = op.correction ? in(1).as<float>() : nullptr;
  a.permutation = out(0).as<std::int32_t>();
  a.weights = out(1).as<float>();
  a.offsets = out(2).as<std::int32_t>();
  a.kept_offsets = buffers.kept_offsets;
  launch(&Kernels::expert_select, a, "expert_select");
}

void Lowering::operator()(const ExpertSelectBackward& op) {
  const AssignedBuffers& buffers = assigned_of(in(1));
  ExpertSelectArgs a = expert_args(op.forward, buffers, in(0), selected_rows());
  a.permutation = in(1).as<std::int32_t>();
  a.room = in(1).rows;
  a.offsets = in(2).as<std::int32_t>();
  a.dweights = in(3).as<float>();
  a.dlogits = out(0).data;
  a.dlogit_type = out(0).dtype;
  launch(&Kernels::expert_select_backward, a, "expert_select_backward");
}

void Lowering::operator()(const ExpertDispatch& op) {
  const AssignedBuffers& buffers = assigned_of(in(1));
  const ExpertRowsArgs a = moved_rows(op, buffers.select->rows.count, buffers, bound_);
  launch(&Kernels::expert_dispatch, a, "expert_dispatch");
}

void Lowering::operator()(const ExpertDispatchBackward& op) {
  ExpertRowsArgs a = moved_rows(op.forward, op.tokens, assigned_of(in(1)), bound_);
  a.accumulate = op.accumulate;
  launch(&Kernels::expert_combine, a, "expert_dispatch_backward");
}

void Lowering::operator()(const ExpertCombine& op) {
  ExpertRowsArgs a = moved_rows(op, op.tokens, assigned_of(in(1)), bound_);
  a.weights = in(2).as<float>();
  a.shared = op.shared ? in(3).data : nullptr;
  a.shared_gate = op.shared_gate ? in(4).data : nullptr;
  launch(&Kernels::expert_combine, a, "expert_combine");
}

void Lowering::operator()(const ExpertCombineBackward& op) {
  const AssignedBuffers& buffers = assigned_of(in(2));
  const ExpertCombine& f = op.forward;
  ExpertCombineBackwardArgs a;
  a.type = f.act;
  a.rows = {f.rows.count, buffers.offsets.as<std::int32_t>() + buffers.select->experts};
  a.tokens = f.tokens;
  a.width = f.width;
  a.dy = in(0).data;
  a.x = in(1).data;
  a.permutation = in(2).as<std::int32_t>();
  a.weights = in(3).as<float>();
  a.dx = out(0).data;
  a.dweights = out(1).as<float>();
  if (f.shared_gate) {
    a.shared = in(4).data;
    a.shared_gate = in(5).data;
    a.dshared = out(2).data;
    a.dgate = out(3).data;
  }
  // Rows behind the last assignment have no weight, so none of its gradient.
  clear(a.dweights, out(1).rows * 4, "clearing weight gradients");
  launch(&Kernels::expert_combine_backward, a, "expert_combine_backward");
}

}  // namespace fathom::cuda
