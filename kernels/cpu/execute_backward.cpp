#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/activation.hpp"
#include "kernels/cpu/attention_views.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/embedding.hpp"
#include "kernels/cpu/execute.hpp"
#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/router.hpp"
#include "kernels/cpu/rows.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {

ActivationKind kernel_activation(fathom::ActivationKind kind);
Gate kernel_gate(const fathom::Gate& gate);

void run_op(const fathom::AttentionBackward& op, const OpCall& call) {
  run_attention_backward(op, call.bound, call.executed, call.scratch, call.threads);
}

void run_op(const fathom::ActivationBackward& op, const OpCall& call) {
  const fathom::Activation& f = op.forward;
  const Activation shape{kernel_activation(f.kind), f.act, call.rows(), f.width};
  const std::int64_t w = f.width;
  if (f.gated)
    gated_activation_backward(shape, {call.in(0).data, w}, {call.in(1).data, w}, {call.in(2).data, w}, {call.out(0).data, w}, {call.out(1).data, w},
                              call.threads);
  else
    activation_backward(shape, {call.in(0).data, w}, {call.in(1).data, w}, {call.out(0).data, w}, call.threads);
}

void run_op(const fathom::ScatterAddBackward& op, const OpCall& call) {
  const fathom::ScatterAddRows& f = op.forward;
  const std::int64_t n = call.rows();
  const bool gated = f.gate.kind != fathom::GateKind::kNone;
  const std::int32_t* indices = call.in(2).as<std::int32_t>();
  if (gated) {
    float* gate = reinterpret_cast<float*>(call.scratch);
    float* derivative = gate + n;
    float* compact = derivative + n;
    gate_values(kernel_gate(f.gate), call.in(3).as<float>(), indices, n, gate, derivative);
    scatter_add_rows_backward({f.act, n, f.width}, call.in(0).data, call.in(1).data, gate, derivative, indices, call.out(0).data, compact, call.threads);
    float* dscores = call.out(1).as<float>();
    for (std::int64_t i = 0; i < n; ++i) dscores[indices[i]] = (op.accumulate ? dscores[indices[i]] : 0.0f) + compact[i];
  } else {  // df = dy[indices]; no score, no score gradient
    gather_rows({f.act, n, f.width}, call.in(0).data, indices, call.out(0).data, call.threads);
  }
  if (!f.replace) return;
  // The identity path of these rows runs through the block.
  const std::int64_t bytes = f.width * dtype_bytes(f.act);
  std::byte* dy = call.out(gated ? 2 : 1).data;
  for (std::int64_t i = 0; i < n; ++i) std::memset(dy + indices[i] * bytes, 0, static_cast<size_t>(bytes));
}

void run_op(const fathom::GatherBackward& op, const OpCall& call) {
  scatter_add_rows({op.forward.act, call.rows(), op.forward.width}, call.in(0).data, nullptr, call.in(1).as<std::int32_t>(), call.out(0).data, call.threads);
}

void run_op(const fathom::RouterScoreBackward& op, const OpCall& call) {
  // inputs: y, xg, w, dscores, indices[, scores]; outputs: dw[, db], dx. Plain: inputs x, w, dscores.
  const fathom::RouterScore& f = op.forward;
  const bool has_dw = call.execution.workload().tensors()[static_cast<size_t>(call.out(0).at.tensor)].role == Role::kGradient;
  if (op.plain) {
    const std::int64_t rows = op.weight_rows.routed() ? call.rows() : f.rows.count;
    const float* d = call.in(2).as<float>();
    float* sums = reinterpret_cast<float*>(call.scratch);
    if (has_dw) {
      const OperandView& dw = call.out(0);
      column_sums(f.act, call.in(0).data, d, rows, f.width, dw.dtype, dw.data, op.accumulate, sums, call.threads);
      if (f.bias) {
        const OperandView& db = call.out(1);
        const float before = op.accumulate ? load_values(db.data, db.dtype, 1)[0] : 0.0f;
        const float value = static_cast<float>(before + sum_in_order(d, rows));
        store_values({&value, 1}, db.dtype, db.data);
      }
    }
    if (op.input_rows.count == 0) return;
    const OperandView& dx = call.bound.out.back();
    std::memset(dx.data, 0, static_cast<size_t>(rows * f.width * dtype_bytes(dx.dtype)));
    router_input_gradient(f.act, d, call.in(1).data, nullptr, dx.data, rows, f.width, call.threads);
    return;
  }
  const bool all_weight_rows = op.weight_rows == f.rows;
  const bool all_input_rows = op.input_rows == f.rows;
  const std::int64_t selected = call.in(1).rows;
  const std::int32_t* indices = call.in(4).as<std::int32_t>();
  const float* dscores = call.in(3).as<float>();
  float* bypass = reinterpret_cast<float*>(call.scratch);  // dscores with the selected rows cleared
  float* compact = bypass + f.rows.count;
  float* workspace = compact + f.rows.count;
  for (std::int64_t i = 0; i < selected; ++i) compact[i] = dscores[indices[i]];
  const OperandView& dw = call.out(0);
  if (has_dw) column_sums(f.act, call.in(1).data, compact, selected, f.width, dw.dtype, dw.data, op.accumulate, workspace, call.threads);
  if (has_dw && all_weight_rows) {
    std::memcpy(bypass, dscores, static_cast<size_t>(f.rows.count) * sizeof(float));
    for (std::int64_t i = 0; i < selected; ++i) bypass[indices[i]] = 0.0f;
    column_sums(f.act, call.in(0).data, bypass, f.rows.count, f.width, dw.dtype, dw.data, true, workspace, call.threads);
  }
  if (has_dw && f.bias) {
    const double sum = sum_in_order(all_weight_rows ? dscores : compact, all_weight_rows ? f.rows.count : selected);
    const OperandView& db = call.out(1);
    const bool narrow = db.dtype == DType::kBF16;
    const float before = !op.accumulate ? 0.0f : narrow ? static_cast<float>(*db.as<bf16>()) : *db.as<float>();
    const float value = static_cast<float>(before + sum);
    store_values({&value, 1}, db.dtype, db.data);
  }
  if (op.input_rows.count == 0) return;
  const OperandView& dx = call.bound.out.back();
  if (op.detached_lambda > 0) {
    // Selected rows have the target 1; what the detached loss added to their dr does not reach the stream.
    const double weight = op.detached_lambda / static_cast<double>(std::max<std::int64_t>(1, f.rows.count));
    const float* scores = call.in(5).as<float>();
    for (std::int64_t i = 0; i < selected; ++i)
      compact[i] -= static_cast<float>(weight * (1.0 / (1.0 + std::exp(-static_cast<double>(scores[indices[i]]))) - 1.0));
  }
  if (all_input_rows && op.detached_lambda == 0)  // a detached loss was taken off `compact` only, which holds every row where all are selected
    router_input_gradient(f.act, dscores, call.in(2).data, nullptr, dx.data, f.rows.count, f.width, call.threads);
  else
    router_input_gradient(f.act, compact, call.in(2).data, indices, dx.data, selected, f.width, call.threads);
}

void run_op(const fathom::EmbeddingBackward& op, const OpCall& call) {
  const fathom::Embedding& f = op.forward;
  const auto one = [&](const OperandView& table, const std::int32_t* ids, bool accumulate) {
    if (!accumulate) std::memset(table.data, 0, static_cast<size_t>(table.rows * table.cols * dtype_bytes(table.dtype)));
    embedding_backward({f.act, call.rows(), f.width, table.rows}, call.in(1).data, ids, table.data, call.scratch, call.threads);
  };
  one(call.out(0), call.in(0).as<std::int32_t>(), op.accumulate);
  // The position table has no other gradient source, so it accumulates only over micro-steps.
  if (f.learned_positions) one(call.out(1), call.in(2).as<std::int32_t>(), op.accumulate_positions);
}

void run_op(const fathom::GradientNorm& op, const OpCall& call) {
  if (op.first) ++call.execution.optimizer_step();
  double sum = op.first ? 0.0 : static_cast<double>(*call.out(0).as<float>());
  for (const OperandView& gradient : call.bound.in) sum += sum_of_squares(gradient.dtype, gradient.data, gradient.rows * gradient.cols, call.threads);
  *call.out(0).as<float>() = static_cast<float>(sum);
}

void run_op(const fathom::AdamW& op, const OpCall& call) {
  const BindOptions& options = call.execution.bind_options();
  AdamW settings;
  settings.learning_rate = options.learning_rate;
  settings.beta1 = options.beta1;
  settings.beta2 = options.beta2;
  settings.epsilon = options.epsilon;
  settings.weight_decay = options.weight_decay;
  settings.grad_scale = clip_factor(*call.in(0).as<float>(), options.clip);
  settings.step = call.execution.optimizer_step();
  const bool master = op.master();
  const size_t stride = master ? 4 : 3;
  for (size_t t = 0; 1 + t < call.bound.in.size(); ++t) {
    const OperandView& gradient = call.in(1 + t);
    const OperandView& weight = call.out(t * stride);
    float* values = master ? call.out(t * stride + 3).as<float>() : weight.as<float>();
    adamw(settings, values, call.out(t * stride + 1).as<float>(), call.out(t * stride + 2).as<float>(), gradient.dtype, gradient.data,
          master ? weight.as<bf16>() : nullptr, weight.rows * weight.cols, call.threads);
  }
}

}  // namespace fathom::cpu
