// Norms, activations, embeddings, losses and the optimizer: ops whose work is streaming.
#include "kernels/cuda_host/lower.hpp"

namespace fathom::cuda {

void Lowering::operator()(const RmsNorm& op) {
  NormArgs a;
  a.type = op.act;
  a.rows = rows(op.rows.count);
  a.declared_rows = op.rows.count;
  a.width = op.width;
  a.groups = op.groups;
  a.gains = op.gains;
  a.stride = op.stride > 0 ? op.stride : op.groups * op.width;
  a.offset = op.offset;
  a.epsilon = static_cast<float>(context_.options->norm_epsilon);
  a.x = in(0).data;
  a.gain = op.gains > 0 ? in(1).data : nullptr;
  a.y = out(0).data;
  a.stats = op.stats ? out(1).as<float>() : nullptr;
  a.copy = op.stride > 0 && op.stats ? out(2).data : nullptr;
  launch(&Kernels::norm, a, "rms_norm");
}

void Lowering::operator()(const LayerNorm& op) {
  NormArgs a;
  a.type = op.act;
  a.rows = rows(op.rows.count);
  a.declared_rows = op.rows.count;
  a.width = a.stride = op.width;
  a.gains = op.gain ? 1 : 0;
  a.epsilon = static_cast<float>(context_.options->norm_epsilon);
  a.centred = true;
  a.x = in(0).data;
  a.gain = op.gain ? in(1).data : nullptr;
  a.bias = op.bias ? in(op.gain ? 2 : 1).data : nullptr;
  a.y = out(0).data;
  a.stats = op.stats ? out(1).as<float>() : nullptr;
  launch(&Kernels::norm, a, "layer_norm");
}

void Lowering::operator()(const RmsNormBackward& op) {
  const RmsNorm& f = op.forward;
  const std::size_t stats = f.gains > 0 ? 2 : 1;
  NormBackwardArgs a;
  a.type = f.act;
  a.rows = rows(f.rows.count);
  a.declared_rows = f.rows.count;
  a.width = f.width;
  a.groups = f.groups;
  a.gains = f.gains;
  a.stride = f.stride > 0 ? f.stride : f.groups * f.width;
  a.offset = f.offset;
  a.x_stride = f.groups * f.width;
  a.accumulate = op.accumulate;
  a.accumulate_weights = op.accumulate_weights;
  a.x = in(0).data;
  a.gain = f.gains > 0 ? in(1).data : nullptr;
  a.stats = in(stats).as<float>();
  a.dy = in(stats + 1).data;
  a.dx = out(0).data;
  if (has_out(1)) {
    a.dgain = out(1).data;
    a.grad_type = out(1).dtype;
  }
  a.partials = scratch<float>(norm_partial_floats(a));
  launch(&Kernels::norm_backward, a, "rms_norm_backward");
}

void Lowering::operator()(const LayerNormBackward& op) {
  const LayerNorm& f = op.forward;
  const std::size_t stats = f.gain ? 2 : 1;
  NormBackwardArgs a;
  a.type = f.act;
  a.rows = rows(f.rows.count);
  a.declared_rows = f.rows.count;
  a.width = a.stride = a.x_stride = f.width;
  a.gains = f.gain ? 1 : 0;
  a.centred = true;
  a.accumulate = op.accumulate;
  a.accumulate_weights = op.accumulate_weights;
  a.x = in(0).data;
  a.gain = f.gain ? in(1).data : nullptr;
  a.stats = in(stats).as<float>();
  a.dy = in(stats + 1).data;
  a.dx = out(0).data;
  std::size_t next = 1;
  if (f.gain && has_out(next)) {
    a.dgain = out(next).data;
    a.grad_type = out(next++).dtype;
  }
  if (f.bias && has_out(next)) {
    a.dbias = out(next).data;
    a.grad_type = out(next).dtype;
  }
  a.partials = scratch<float>(norm_partial_floats(a));
  launch(&Kernels::norm_backward, a, "layer_norm_backward");
}

void Lowering::operator()(const Activation& op) {
  ActivationArgs a;
  a.type = op.act;
  a.kind = op.kind;
  a.rows = rows(op.rows.count);
  a.width = op.width;
  a.x = in(0).data;
  a.up = op.gated ? in(1).data : nullptr;
  a.y = out(0).data;
  launch(&Kernels::activation, a, "activation");
}

void Lowering::operator()(const ActivationBackward& op) {
  const Activation& f = op.forward;
  ActivationBackwardArgs a;
  a.type = f.act;
  a.kind = f.kind;
  a.rows = rows(f.rows.count);
  a.width = f.width;
  a.x = in(0).data;
  a.up = f.gated ? in(1).data : nullptr;
  a.dy = in(f.gated ? 2 : 1).data;
  a.dx = out(0).data;
  a.dup = f.gated ? out(1).data : nullptr;
  launch(&Kernels::activation_backward, a, "activation_backward");
}

void Lowering::operator()(const AddResidual& op) {
  AddArgs a;
  a.type = op.act;
  a.rows = rows(op.rows.count);
  a.width = op.width;
  a.a = in(0).data;
  a.b = in(1).data;
  a.y = out(0).data;
  launch(&Kernels::add, a, "add_residual");
}

void Lowering::operator()(const Embedding& op) {
  EmbeddingArgs a;
  a.type = op.act;
  a.rows = op.rows.count;
  a.width = op.width;
  a.tokens = in(0).as<std::int32_t>();
  a.table = in(1).data;
  if (op.learned_positions) {
    a.positions = in(2).as<std::int32_t>();
    a.position_table = in(3).data;
  }
  a.x = out(0).data;
  launch(&Kernels::embedding, a, "embedding");
}

void Lowering::operator()(const EmbeddingBackward& op) {
  const Embedding& f = op.forward;
  const auto one = [&](const OperandView& table, const OperandView& ids, bool accumulate) {
    EmbeddingBackwardArgs a;
    a.type = f.act;
    a.grad_type = table.dtype;
    a.rows = f.rows.count;
    a.width = f.width;
    a.table_rows = table.rows;
    a.accumulate = accumulate;
    a.ids = ids.as<std::int32_t>();
    a.dx = in(1).data;
    a.dtable = table.data;
    a.scratch = scratch<std::int32_t>(embedding_scratch_ints(a));
    launch(&Kernels::embedding_backward, a, "embedding_backward");
  };
  one(out(0), in(0), op.accumulate);
  if (f.learned_positions) one(out(1), in(2), op.accumulate_positions);
}

void Lowering::operator()(const CrossEntropy& op) {
  CrossEntropyArgs a;
  a.type = op.act;
  a.rows = op.rows.count;
  a.vocab = op.vocab;
  a.stride = in(0).cols;
  a.gradient = op.gradient;
  a.weight = static_cast<float>(op.weight);
  a.logits = in(0).data;
  if (op.gradient && out(1).data != in(0).data) {  // usually the plan put them on the same memory
    copy(out(1).data, in(0).data, in(0).rows * in(0).cols * dtype_bytes(op.act), "copying logits");
    a.logits = out(1).data;
  }
  a.labels = in(1).as<std::int32_t>();
  a.counted = scratch<std::int32_t>(1);
  a.row_losses = scratch<float>(op.rows.count);
  a.loss = out(0).as<float>();
  launch(&Kernels::cross_entropy, a, "cross_entropy");
}

std::vector<ParameterTensor> Lowering::parameter_tensors(const AdamW* op, std::int64_t& chunks) {
  const bool master = op && op->master();
  const std::size_t stride = master ? 4 : 3, first = op ? 1 : 0;  // AdamW's first input is the sum of squares
  std::vector<ParameterTensor> tensors;
  chunks = 0;
  for (std::size_t t = 0; first + t < bound_.in.size(); ++t) {
    const OperandView& gradient = in(first + t);
    ParameterTensor tensor;
    tensor.grad = gradient.data;
    tensor.count = gradient.rows * gradient.cols;
    tensor.first_chunk = chunks;
    if (op) {
      tensor.weight = out(t * stride).data;
      tensor.m = out(t * stride + 1).as<float>();
      tensor.v = out(t * stride + 2).as<float>();
      tensor.master = master ? out(t * stride + 3).as<float>() : nullptr;
    }
    chunks += parameter_chunks(tensor.count);
    tensors.push_back(tensor);
  }
  return tensors;
}

void Lowering::operator()(const GradientNorm& op) {
  GradientNormArgs a;
  a.grad_type = op.grad;
  const std::vector<ParameterTensor> tensors = parameter_tensors(nullptr, a.chunks);
  a.tensors = context_.constants.add(tensors);
  a.tensor_count = static_cast<std::int64_t>(tensors.size());
  a.first = op.first;
  a.partials = scratch<float>(a.chunks);
  a.sum = out(0).as<float>();
  if (op.first) push([](RunState& run) { ++run.optimizer_step; });
  launch(&Kernels::gradient_norm, a, "gradient_norm");
}

void Lowering::operator()(const AdamW& op) {
  AdamWArgs a;
  a.grad_type = op.grad;
  a.weight_type = op.weight;
  const std::vector<ParameterTensor> tensors = parameter_tensors(&op, a.chunks);
  a.tensors = context_.constants.add(tensors);
  a.tensor_count = static_cast<std::int64_t>(tensors.size());
  a.sum = in(0).as<float>();
  a.clip = static_cast<float>(context_.options->clip);
  launch(&Kernels::adamw, a, "adamw", [o = *context_.options](AdamWArgs& now, RunState& run) {
    set_adamw(now, o.learning_rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, run.optimizer_step);
  });
}

}  // namespace fathom::cuda
