#include "models/tape.hpp"

#include <algorithm>

#include "lib/error.hpp"

namespace fathom {

Weight Tape::weight(const Name& name, std::int64_t rows, std::int64_t cols, bool trainable, DType type) {
  const bool trained = training() && trainable;
  if (out_.counting()) {
    const TensorId id = out_.tensor(prefix_, name, Role::kWeight, weight_scope_, rows, cols, type);
    if (trained && pass_ != Pass::kRecompute) trained_ = checked_add(trained_, product(rows, cols));
    return {id, trained ? id : -1};
  }
  const auto find = [&](const WeightPool& pool) -> const Weight* {
    for (const NamedWeight& known : pool)
      if (known.trainable == trainable && known.name == name) return &known.weight;
    return nullptr;
  };
  if (const Weight* known = find(by_name_)) return *known;
  Weight weight;
  if (const Weight* shared = pool_ ? find(*pool_) : nullptr) {
    weight = *shared;
  } else {
    weight.tensor = out_.tensor(prefix_, name, Role::kWeight, weight_scope_, rows, cols, type);
    if (trained) weight.gradient = out_.tensor(prefix_, name + ".grad", Role::kGradient, weight_scope_, rows, cols, scenario_.grad_dtype);
    if (pool_) pool_->push_back({name, trainable, weight});
  }
  by_name_.push_back({name, trainable, weight});
  weights_.push_back(weight);
  if (weight.gradient >= 0) trained_ = checked_add(trained_, product(rows, cols));
  return weight;
}

Operand Tape::tensor(const Name& name, Role role, Scope scope, std::int64_t rows, std::int64_t cols, DType dtype) {
  return {out_.tensor(prefix_, name, role, scope, rows, cols, dtype), 0};
}

Value Tape::activation(const Name& name, std::int64_t rows, std::int64_t cols, DType dtype, bool needs_grad) {
  return Value{tensor(name, Role::kActivation, Scope::kLayer, rows, cols, dtype), needs_grad && training()};
}

Value Tape::index(const Name& name, std::int64_t rows) {
  return Value{tensor(name, Role::kIndex, Scope::kLayer, rows, 1, DType::kI32), false};
}

void Tape::play_backward(const Value& result, Operand seed) {
  gradients_.clear();
  substitutes_.clear();
  repeats_.start();
  playing_ = true;
  gradients_.set(result.at, seed);
  for (auto closure = closures_.rbegin(); closure != closures_.rend(); ++closure) (*closure)();
  playing_ = false;
}

Operands Tape::repeated(const Operands& inputs) {
  Operands result;
  for (int i = 0; i < inputs.size(); ++i) result.push_back(repeated(inputs[i]));
  return result;
}

Operand Tape::repeated(const Operand& at) {
  if (const Operand* again = substitutes_.find(at)) return *again;
  // Every op that wrote the tensor, in order: the one that made it and those that worked on it in place.
  for (Repeat* each : repeats_.writers(at)) {
    if (each->done) continue;
    each->done = true;
    const Operands inputs = repeated(each->inputs);
    Operands outputs;
    for (int i = 0; i < each->outputs.size(); ++i) {
      const Operand& output = each->outputs[i];
      if (!substitutes_.find(output)) {
        TensorId made = 0;
        if (out_.counting()) {
          made = out_.tensor(prefix_, "", Role::kActivation, Scope::kLayer, 0, 0, act());
        } else {
          const Tensor tensor = out_.at(output.tensor);  // a copy: making a tensor may move them
          if (out_.named()) {
            const bool own = tensor.name.starts_with(prefix_);
            made = out_.list().tensor(prefix_ + "recompute/" + (own ? tensor.name.substr(prefix_.size()) : tensor.name), tensor.role, tensor.scope, tensor.rows, tensor.cols, tensor.dtype);
          } else {
            made = out_.tensor(prefix_, "", tensor.role, tensor.scope, tensor.rows, tensor.cols, tensor.dtype);
          }
        }
        substitutes_.set(output, {made, 0});
      }
      outputs.push_back(*substitutes_.find(output));
    }
    each->emit(inputs, outputs);
  }
  const Operand* again = substitutes_.find(at);
  return again ? *again : at;
}

Operand Tape::saved(const Value& value) const {
  const Operand* found = substitutes_.find(value.at);
  return found ? *found : value.at;
}

Operand Tape::gradient(const Value& value) const {
  const Operand* found = gradients_.find(value.at);
  if (!found) throw_internal("a gradient was asked for before it was formed" + (out_.named() ? ": " + out_.at(value.at.tensor).name : std::string()));
  return *found;
}

Tape::Target Tape::gradient_target(const Value& value, const Name& name, std::int64_t rows, std::int64_t cols) {
  if (const Operand* found = gradients_.find(value.at)) return {*found, true};
  if (const Operand* target = targets_.find(value.at)) {
    gradients_.set(value.at, *target);
    return {*target, false};
  }
  const Operand made = tensor(name + ".d", Role::kActivation, Scope::kLayer, rows, cols, act());
  gradients_.set(value.at, made);
  return {made, false};
}

Value Tape::norm(const Name& leaf, const Value& x, Rows rows, std::int64_t width, const Operand* into) {
  const bool rms = network_.norm == NormKind::kRms;
  const bool has_gain = network_.norm_gain;
  const bool bias = !rms && network_.norm_bias;
  // A frozen token table freezes the norms of the first block that it alone feeds: their gains would need the first projections' input gradients.
  const bool trainable = base_trainable() && (trains_first_norms || !network_.freeze_embedding || x.needs_grad);
  const Weight gain = has_gain ? weight(leaf + "/gain", 1, width, trainable) : Weight{};
  const Weight shift = bias ? weight(leaf + "/bias", 1, width, trainable) : Weight{};
  const bool needs_grad = x.needs_grad || gain.gradient >= 0 || shift.gradient >= 0;
  const Value y = into ? Value{*into, needs_grad && training()} : activation(leaf, rows.count, width, act(), needs_grad);
  Operands inputs = {x.at};
  if (has_gain) inputs.push_back({gain.tensor, 0});
  if (bias) inputs.push_back({shift.tensor, 0});
  Operands outputs = {y.at};
  Value stats;
  if (training()) {
    stats = activation(leaf + "/stats", rows.count, rms ? 1 : 2, DType::kF32, false);
    outputs.push_back(stats.at);
  }
  RmsNorm rms_spec{rows, width, 1, training(), act()};
  rms_spec.gains = has_gain ? 1 : 0;
  const LayerNorm layer_spec{rows, width, bias, training(), act(), has_gain};
  if (rms)
    emit(leaf, Part::kNorm, rms_spec, inputs, outputs);
  else
    emit(leaf, Part::kNorm, layer_spec, inputs, outputs);
  if (!y.needs_grad) return y;
  record([=, this] {
    if (!has_gradient(y)) return;
    // Frozen input: only the parameter gradients are needed, but the fused kernel forms dx as well.
    const Target dx = gradient_target(x, leaf + "/in", rows.count, width);
    Operands sources = {saved(x)};
    if (has_gain) sources.push_back({gain.tensor, 0});
    sources.push_back(stats.at);
    sources.push_back(gradient(y));
    Operands targets = {dx.at};
    if (gain.gradient >= 0) targets.push_back({gain.gradient, 0});
    if (shift.gradient >= 0) targets.push_back({shift.gradient, 0});
    if (rms)
      emit_backward(leaf, Part::kNorm, RmsNormBackward{rms_spec, dx.accumulate, accumulate_weights}, sources, targets);
    else
      emit_backward(leaf, Part::kNorm, LayerNormBackward{layer_spec, dx.accumulate, accumulate_weights}, sources, targets);
  });
  return y;
}

Value Tape::norm_in_place(const Name& leaf, const Value& x, Rows rows, const InPlaceNorm& part) {
  const std::int64_t gain_rows = part.gains;
  const Weight gain = gain_rows > 0 ? weight(leaf + "/gain", gain_rows, part.width, base_trainable()) : Weight{};
  Value y = x;
  y.needs_grad = training() && (x.needs_grad || gain.gradient >= 0);
  RmsNorm spec{rows, part.width, part.groups, training(), act()};
  spec.gains = gain_rows;
  spec.stride = part.stride;
  spec.offset = part.offset;
  Operands inputs = {x.at};
  if (gain_rows > 0) inputs.push_back({gain.tensor, 0});
  Operands outputs = {x.at};
  Value stats, before;
  if (training()) {
    stats = activation(leaf + "/stats", rows.count * part.groups, 1, DType::kF32, false);
    before = activation(leaf + "/in", rows.count, part.groups * part.width, act(), false);
    outputs.push_back(stats.at);
    outputs.push_back(before.at);
  }
  emit(leaf, Part::kNorm, spec, inputs, outputs);
  if (!y.needs_grad) return y;
  record([=, this] {
    if (!has_gradient(y)) return;
    const Operand d = gradient(y);
    Operands sources = {before.at};
    if (gain_rows > 0) sources.push_back({gain.tensor, 0});
    sources.push_back(stats.at);
    sources.push_back(d);
    Operands targets = {d};
    if (gain.gradient >= 0) targets.push_back({gain.gradient, 0});
    emit_backward(leaf, Part::kNorm, RmsNormBackward{spec, false, accumulate_weights}, sources, targets);
  });
  return y;
}

Value Tape::linear(const Name& leaf, const Value& x, const Linear& spec) {
  const bool grouped = spec.experts > 1;
  const bool trainable = spec.adapter || base_trainable();
  // Routers, adapters and the head stay in the compute type where the other matrices are stored narrower.
  const bool matrix = !spec.given && !spec.adapter && spec.part != Part::kRouter && spec.part != Part::kAdapter;
  const DType stored = matrix ? matrix_type() : act();
  const Weight w = spec.given ? *spec.given : weight(leaf + "/weight", spec.experts * spec.batch * spec.in, spec.out, trainable, stored);
  const Weight b = spec.given_bias ? *spec.given_bias : spec.bias ? weight(leaf + "/bias", spec.experts, spec.batch * spec.out, trainable) : Weight{};
  const std::int64_t in_width = spec.in_stride ? spec.in_stride : spec.batch * spec.in;
  Value y = spec.into ? *spec.into : activation(leaf, spec.rows.count, spec.batch * spec.out, spec.result, false);
  y.needs_grad = training() && (y.needs_grad || x.needs_grad || w.gradient >= 0 || b.gradient >= 0);
  Gemm gemm;
  gemm.rows = spec.rows;
  gemm.in = spec.in;
  gemm.out = spec.out;
  gemm.bias = spec.bias;
  gemm.transposed = spec.transposed;
  gemm.accumulate = spec.into != nullptr;
  gemm.experts = spec.experts;
  gemm.tokens = spec.tokens;
  gemm.picks = spec.picks;
  gemm.capacity = spec.capacity;
  gemm.expected_experts = spec.expected_experts;
  gemm.act = act();
  gemm.weight = stored;
  gemm.result = spec.result;
  gemm.batch = spec.batch;
  gemm.batch_stride = spec.batch_stride;
  gemm.in_stride = spec.in_stride;
  gemm.out_stride = spec.out_stride;
  gemm.out_offset = spec.out_offset;
  Operands inputs = {x.at, {w.tensor, 0}};
  if (spec.bias) inputs.push_back({b.tensor, 0});
  if (grouped) inputs.push_back(spec.offsets);
  emit(leaf, spec.part, gemm, inputs, {y.at});
  if (!training() || (!x.needs_grad && w.gradient < 0)) return y;
  const Part part = spec.part;
  const Operand offsets = spec.offsets;
  const bool later = spec.later_gradient;
  record([=, this] {
    if (!has_gradient(y)) return;
    const Operand dy = gradient(y);
    if (w.gradient >= 0) {
      Gemm dw = gemm;
      dw.role = GemmRole::kWeightGradient;
      dw.accumulate = later || accumulate_weights;
      dw.result = scenario_.grad_dtype;
      Operands sources = {saved(x), dy};
      if (grouped) sources.push_back(offsets);
      Operands targets = {{w.gradient, 0}};
      if (b.gradient >= 0) targets.push_back({b.gradient, 0});
      emit_backward(leaf + "/dw", part, dw, sources, targets);
    }
    if (x.needs_grad) {
      const Target dx_target = gradient_target(x, leaf + "/in", gemm.rows.count, in_width);
      Gemm dx = gemm;
      dx.role = GemmRole::kInputGradient;
      dx.bias = false;
      dx.accumulate = dx_target.accumulate;
      dx.result = act();
      Operands sources = {dy, {w.tensor, 0}};
      if (grouped) sources.push_back(offsets);
      emit_backward(leaf + "/dx", part, dx, sources, {dx_target.at});
    }
  });
  return y;
}

void Tape::adapt(std::string_view target, const Name& leaf, const Value& x, Value& y, Linear spec, std::int64_t out_offset, std::int64_t out_stride) {
  if (!network_.lora) return;
  const Lora& lora = *network_.lora;
  if (std::find(lora.targets.begin(), lora.targets.end(), target) == lora.targets.end()) return;
  const std::int64_t out = spec.out;
  spec.adapter = true;
  spec.bias = false;
  spec.part = Part::kAdapter;
  spec.out = lora.rank;
  spec.result = act();
  const Value low = linear(leaf + "/lora_a", x, spec);
  spec.in = lora.rank;
  spec.out = out;
  spec.in_stride = 0;
  const Value base = y;
  spec.into = &base;
  spec.out_offset = out_offset;
  spec.out_stride = out_stride;
  y = linear(leaf + "/lora_b", low, spec);
}

Value Tape::activation_op(const Name& leaf, const Value& x, const Value* up, Rows rows, std::int64_t width, ActivationKind kind, Part part) {
  const bool gated = up != nullptr;
  const Value second = gated ? *up : Value{};
  const Value y = activation(leaf, rows.count, width, act(), x.needs_grad || second.needs_grad);
  const Activation spec{rows, width, kind, gated, act()};
  Operands inputs = {x.at};
  if (gated) inputs.push_back(second.at);
  emit(leaf, part, spec, inputs, {y.at});
  if (!y.needs_grad) return y;
  record([=, this] {
    if (!has_gradient(y)) return;
    const Operand dy = gradient(y);
    Operands sources = {x.at};
    Operands targets = {gradient_target(x, leaf + "/in", rows.count, width).at};
    if (gated) {
      sources.push_back(second.at);
      targets.push_back(gradient_target(second, leaf + "/up", rows.count, width).at);
    }
    sources.push_back(dy);
    emit_backward(leaf, part, ActivationBackward{spec}, sources, targets);
  });
  return y;
}

Value Tape::add(const Name& leaf, const Value& a, const Value& b, Rows rows, std::int64_t width, const Operand* into) {
  const bool needs_grad = a.needs_grad || b.needs_grad;
  const Value y = into ? Value{*into, needs_grad} : activation(leaf, rows.count, width, act(), needs_grad);
  const AddResidual spec{rows, width, act()};
  emit(leaf, Part::kResidual, spec, {a.at, b.at}, {y.at});
  record([=, this] {
    if (!has_gradient(y)) return;
    const Operand dy = gradient(y);
    // b first: it is the branch computed from a, so all of b's gradient ops run before a's next contribution arrives in the shared buffer.
    for (const Value& operand : {b, a}) {
      if (!operand.needs_grad) continue;
      if (!has_gradient(operand)) {
        set_gradient(operand, dy);
      } else {
        const Operand held = gradient(operand);
        emit_backward(leaf, Part::kResidual, spec, {held, dy}, {held});
      }
    }
  });
  return y;
}

}  // namespace fathom
