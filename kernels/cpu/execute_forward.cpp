#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/activation.hpp"
#include "kernels/cpu/attention_views.hpp"
#include "kernels/cpu/cross_entropy.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/embedding.hpp"
#include "kernels/cpu/execute.hpp"
#include "kernels/cpu/kv_cache.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/rope.hpp"
#include "kernels/cpu/router.hpp"
#include "kernels/cpu/rows.hpp"
#include "kernels/cpu/topk.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {

ActivationKind kernel_activation(fathom::ActivationKind kind) {
  switch (kind) {
    case fathom::ActivationKind::kGeluTanh: return ActivationKind::kGeluTanh;
    case fathom::ActivationKind::kGeluErf: return ActivationKind::kGeluErf;
    case fathom::ActivationKind::kSilu: return ActivationKind::kSilu;
    case fathom::ActivationKind::kRelu: return ActivationKind::kRelu;
    case fathom::ActivationKind::kRelu2: return ActivationKind::kReluSquared;
  }
  return ActivationKind::kGeluTanh;
}

Gate kernel_gate(const fathom::Gate& gate) {
  const float alpha = static_cast<float>(gate.alpha);
  switch (gate.kind) {
    case fathom::GateKind::kNone: return {GateKind::kStraightThrough, 1.0f, 0.0f};
    case fathom::GateKind::kRaw: return {GateKind::kRaw, 1.0f, 0.0f};
    case fathom::GateKind::kSigmoid: return {GateKind::kSigmoid, 1.0f, 0.0f};
    case fathom::GateKind::kScaledSigmoid: return {GateKind::kAlphaSigmoid, alpha, 0.0f};
    case fathom::GateKind::kTanh: return {GateKind::kTanh, alpha, static_cast<float>(gate.beta)};
  }
  return {};
}

void run_op(const fathom::Embedding& op, const OpCall& call) {
  const Embedding shape{op.act, call.rows(), op.width, call.in(1).rows};
  const bool learned = op.learned_positions;
  embedding(shape, call.in(1).data, call.in(0).as<std::int32_t>(), learned ? call.in(3).data : nullptr,
            learned ? call.in(2).as<std::int32_t>() : nullptr, call.out(0).data, call.threads);
}

void run_op(const fathom::Rope& op, const OpCall& call) {
  Rope shape;
  shape.type = op.act;
  shape.rows = call.rows();
  shape.row_stride = op.row_stride;
  shape.heads = op.heads;
  shape.head_dim = op.head_dim;
  shape.rotary_dim = op.width;
  shape.table_positions = call.execution.rope_positions();
  rope(shape, call.out(0).data + op.offset * dtype_bytes(op.act), call.in(1).as<std::int32_t>(), call.execution.rope_table(op.base, op.width), op.inverse, call.threads);
}

void run_op(const fathom::Attention& op, const OpCall& call) {
  run_attention(op, call.bound, call.selection, call.executed, call.scratch, call.threads);
}

void run_op(const fathom::KvAppend& op, const OpCall& call) {
  const std::int64_t sequences = std::max<std::int64_t>(1, call.out(1).rows);
  KvAppendCall append;
  append.act = op.act;
  append.source = call.in(0).data;
  append.rows = call.rows();
  append.stride = call.in(0).cols;
  append.offset = call.in(0).cols - op.width;  // keys and values stand behind the queries
  const size_t rest = call.bound.in.size() - (op.positions ? 1 : 0);
  append.indices = rest > 1 ? call.in(1).as<std::int32_t>() : nullptr;
  if (op.positions) append.positions = call.in(rest).as<std::int32_t>(), append.kept = call.out(2).as<std::int32_t>();
  append.queries = call.execution.workload().stream().queries;
  append.rows_per_sequence = op.rows.count / sequences;
  append.cache = call.out(0).data;
  append.counts = call.out(1).as<std::int32_t>();
  append.slots = reinterpret_cast<std::int32_t*>(call.scratch);
  append_kv(call.execution.kv_layout_of(call.out(0).at.tensor), append, call.threads);
}

void run_op(const fathom::Activation& op, const OpCall& call) {
  const Activation shape{kernel_activation(op.kind), op.act, call.rows(), op.width};
  if (op.gated)
    gated_activation(shape, {call.in(0).data, op.width}, {call.in(1).data, op.width}, {call.out(0).data, op.width}, call.threads);
  else
    activation(shape, {call.in(0).data, op.width}, {call.out(0).data, op.width}, call.threads);
}

void run_op(const fathom::AddResidual& op, const OpCall& call) {
  add(op.act, call.in(0).data, call.in(1).data, call.out(0).data, call.rows() * op.width, call.threads);
}

void run_op(const fathom::RouterScore& op, const OpCall& call) {
  float bias = 0.0f;
  if (op.bias) bias = call.in(2).dtype == DType::kF32 ? *call.in(2).as<float>() : static_cast<float>(*call.in(2).as<bf16>());
  router_scores(op.act, call.in(0).data, call.in(1).data, bias, call.out(0).as<float>(), call.rows(), op.width, call.threads);
}

void run_op(const fathom::Select& op, const OpCall& call) {
  const float* scores = call.in(0).as<float>();
  const std::int32_t* positions = call.in(1).as<std::int32_t>();
  std::int32_t* indices = call.out(0).as<std::int32_t>();
  std::int32_t* original = call.out(1).as<std::int32_t>();
  std::int32_t* counts = call.out(2).as<std::int32_t>();
  Selection& selection = call.execution.selection_for(call.bound);
  selection.per_sequence.assign(static_cast<size_t>(op.sequences), 0);
  selection.total = 0;
  SelectionStatus status;
  if (op.rule == RoutingRule::kRandom) {
    // The control of the paper: scores without content.
    float* random = reinterpret_cast<float*>(call.scratch);
    for (std::int64_t i = 0; i < op.sequences * op.length; ++i)
      random[i] = static_cast<float>(fill_uniform(call.execution.bind_options().seed, "random routing", static_cast<std::uint64_t>(call.bound.layer * op.sequences * op.length + i)));
    scores = random;
  }
  std::byte* workspace = call.scratch + 4 * op.sequences * op.length;
  if (op.rule == RoutingRule::kTopK || op.rule == RoutingRule::kRandom) {
    const std::int64_t slots = op.sequences > 0 ? op.selected.count / op.sequences : 0;
    BatchSelection batch;
    batch.scores = scores;
    batch.stride = op.length;
    batch.batch = op.sequences;
    batch.k = slots;
    batch.output_stride = slots;
    batch.positions = original;
    batch.rows = indices;
    status = topk(batch, workspace, call.threads);
    for (std::int64_t b = 0; b < op.sequences; ++b) selection.per_sequence[static_cast<size_t>(b)] = slots;
    selection.total = slots * op.sequences;
  } else {
    for (std::int64_t b = 0; b < op.sequences && status.ok(); ++b) {
      const ThresholdResult result = select_above(scores + b * op.length, op.length, call.execution.threshold(call.bound), indices + selection.total);
      status = result.status;
      status.sequence = b;
      for (std::int64_t i = 0; i < result.count; ++i) indices[selection.total + i] += static_cast<std::int32_t>(b * op.length);
      selection.per_sequence[static_cast<size_t>(b)] = result.count;
      selection.total += result.count;
    }
  }
  if (!status.ok())
    throw_input(fmt::format("router score of token {} in sequence {} is not a number", status.nan_index, status.sequence), {"", 0, call.execution.workload().path(call.bound.op)},
                "the activations overflowed or the weights are not finite");
  for (std::int64_t b = 0; b < op.sequences; ++b) counts[b] = static_cast<std::int32_t>(selection.per_sequence[static_cast<size_t>(b)]);
  for (std::int64_t i = 0; i < selection.total; ++i) original[i] = positions[indices[i]];
  call.executed.rows = selection.total;
  if (!op.rest) return;
  std::int32_t* rest = call.out(3).as<std::int32_t>();
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < op.sequences * op.length; ++i) {
    if (next < selection.total && indices[next] == i)
      ++next;
    else
      *rest++ = static_cast<std::int32_t>(i);
  }
}

void run_op(const fathom::GatherRows& op, const OpCall& call) {
  gather_rows({op.act, call.rows(), op.width}, call.in(0).data, call.in(1).as<std::int32_t>(), call.out(0).data, call.threads);
}

void run_op(const fathom::ScatterAddRows& op, const OpCall& call) {
  // Usually the plan put y on x's memory; where x is still needed, the bypass rows are copied.
  if (call.in(0).data != call.out(0).data) {
    const std::int64_t elements = call.in(0).rows * call.in(0).cols;
    scaled_copy(op.act, call.in(0).data, 1.0f, call.out(0).data, elements, call.threads);
  }
  float* gate = nullptr;
  const std::int32_t* indices = call.in(2).as<std::int32_t>();
  if (op.gate.kind != fathom::GateKind::kNone) {
    gate = reinterpret_cast<float*>(call.scratch);
    gate_values(kernel_gate(op.gate), call.in(3).as<float>(), indices, call.rows(), gate, nullptr);
  }
  if (op.replace) {
    const std::int64_t bytes = op.width * dtype_bytes(op.act);
    over_ranges(call.rows(), call.threads, 2 * bytes, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        scaled_copy(op.act, call.in(1).data + i * bytes, gate ? gate[i] : 1.0f, call.out(0).data + indices[i] * bytes, op.width, 1);
    });
    return;
  }
  scatter_add_rows({op.act, call.rows(), op.width}, call.in(1).data, gate, indices, call.out(0).data, call.threads);
}

void run_op(const fathom::CrossEntropy& op, const OpCall& call) {
  const CrossEntropy shape{op.act, call.rows(), op.vocab, call.in(0).cols};
  const std::int32_t* labels = call.in(1).as<std::int32_t>();
  const std::int64_t counted = std::max<std::int64_t>(1, count_labels(labels, call.rows()));
  LossSum loss;
  if (op.gradient) {
    const float scale = static_cast<float>(op.weight / static_cast<double>(counted));
    loss = cross_entropy_and_gradient(shape, call.in(0).data, labels, scale, reinterpret_cast<float*>(call.scratch), call.threads);
  } else {
    loss = cross_entropy(shape, call.in(0).data, labels, reinterpret_cast<float*>(call.scratch), call.threads);
  }
  *call.out(0).as<float>() = static_cast<float>(op.weight * loss.sum / static_cast<double>(counted));
  // Padding columns of the table take no part in the softmax, so they have no gradient either.
  const std::int64_t padding = (shape.row_stride - op.vocab) * dtype_bytes(op.act);
  if (!op.gradient || padding == 0) return;
  for (std::int64_t r = 0; r < call.rows(); ++r)
    std::memset(call.out(1).data + (r * shape.row_stride + op.vocab) * dtype_bytes(op.act), 0, static_cast<size_t>(padding));
}

void run_op(const fathom::RouterLoss& op, const OpCall& call) {
  // Targets: 1 where the row was selected. Mean over all valid rows times lambda.
  std::uint8_t* mask = reinterpret_cast<std::uint8_t*>(call.scratch);
  std::memset(mask, 0, static_cast<size_t>(op.rows.count));
  const std::int32_t* indices = call.in(1).as<std::int32_t>();
  const std::int32_t* counts = call.in(2).as<std::int32_t>();
  std::int64_t selected = 0;
  for (std::int64_t b = 0; b < call.in(2).rows; ++b) selected += counts[b];
  for (std::int64_t i = 0; i < selected; ++i) mask[indices[i]] = 1;
  const double weight = op.lambda / static_cast<double>(std::max<std::int64_t>(1, op.rows.count));
  *call.out(0).as<float>() =
      static_cast<float>(bce_with_logits(call.in(0).as<float>(), mask, op.rows.count, weight, call.out(1).as<float>(), false));
}

}  // namespace fathom::cpu
