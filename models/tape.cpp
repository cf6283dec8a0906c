#include "models/tape.hpp"

#include "lib/error.hpp"

namespace fathom {

Weight Tape::weight(const std::string& name, std::int64_t rows, std::int64_t cols, bool trainable) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  Weight weight;
  if (const auto shared = pool_ ? pool_->find(name) : WeightPool::iterator{}; pool_ && shared != pool_->end()) {
    weight = shared->second;
  } else {
    weight.tensor = out_.tensor(prefix_ + name, Role::kWeight, weight_scope_, rows, cols, act());
    if (training() && trainable) weight.gradient = out_.tensor(prefix_ + name + ".grad", Role::kGradient, weight_scope_, rows, cols, scenario_.grad_dtype);
    if (pool_) pool_->emplace(name, weight);
  }
  by_name_.emplace(name, weight);
  weights_.push_back(weight);
  return weight;
}

Value Tape::activation(const std::string& name, std::int64_t rows, std::int64_t cols, DType dtype, bool needs_grad) {
  return Value{{out_.tensor(prefix_ + name, Role::kActivation, Scope::kLayer, rows, cols, dtype), 0}, needs_grad && training()};
}

Value Tape::index(const std::string& name, std::int64_t rows) {
  return Value{{out_.tensor(prefix_ + name, Role::kIndex, Scope::kLayer, rows, 1, DType::kI32), 0}, false};
}

OpId Tape::emit(const std::string& leaf, Part part, OpSpec spec, std::vector<Operand> inputs, std::vector<Operand> outputs) {
  return out_.op(leaf, part, pass_, std::move(spec), std::move(inputs), std::move(outputs));
}

OpId Tape::emit_backward(const std::string& leaf, Part part, OpSpec spec, std::vector<Operand> inputs, std::vector<Operand> outputs) {
  return out_.op(leaf, part, Pass::kBackward, std::move(spec), std::move(inputs), std::move(outputs));
}

void Tape::play_backward(const Value& result, Operand seed) {
  gradients_.clear();
  substitutes_.clear();
  const Pass before = pass_;
  pass_ = Pass::kRecompute;
  for (const auto& emission : recomputations_) emission();
  pass_ = before;
  gradients_[key(result.at)] = seed;
  for (auto closure = closures_.rbegin(); closure != closures_.rend(); ++closure) (*closure)();
}

Operand Tape::saved(const Value& value) const {
  const auto found = substitutes_.find(key(value.at));
  return found == substitutes_.end() ? value.at : found->second;
}

Operand Tape::gradient(const Value& value) const {
  const auto found = gradients_.find(key(value.at));
  if (found == gradients_.end()) throw_internal("a gradient was asked for before it was formed: " + out_.at(value.at.tensor).name);
  return found->second;
}

std::pair<Operand, bool> Tape::gradient_target(const Value& value, const std::string& name) {
  const auto found = gradients_.find(key(value.at));
  if (found != gradients_.end()) return {found->second, true};
  const auto target = targets_.find(key(value.at));
  if (target != targets_.end()) return {gradients_[key(value.at)] = target->second, false};
  const Tensor tensor = out_.at(value.at.tensor);
  const Operand made{out_.tensor(prefix_ + name + ".d", Role::kActivation, Scope::kLayer, tensor.rows, tensor.cols, act()), 0};
  gradients_[key(value.at)] = made;
  return {made, false};
}

Value Tape::norm(const std::string& leaf, const Value& x, Rows rows, std::int64_t width, std::int64_t groups) {
  const bool rms = network_.norm == NormKind::kRms || groups > 1;
  const bool bias = !rms && network_.norm_bias;
  const Weight gain = weight(leaf + "/gain", 1, width, base_trainable());
  const Weight shift = bias ? weight(leaf + "/bias", 1, width, base_trainable()) : Weight{};
  const Value y = activation(leaf, out_.at(x.at.tensor).rows, out_.at(x.at.tensor).cols, act(), x.needs_grad || gain.gradient >= 0);
  std::vector<Operand> inputs = {x.at, {gain.tensor, 0}};
  if (bias) inputs.push_back({shift.tensor, 0});
  std::vector<Operand> outputs = {y.at};
  Value stats;
  if (training()) {
    stats = activation(leaf + "/stats", rows.count * groups, rms ? 1 : 2, DType::kF32, false);
    outputs.push_back(stats.at);
  }
  const RmsNorm rms_spec{rows, width, groups, training(), act()};
  const LayerNorm layer_spec{rows, width, bias, training(), act()};
  emit(leaf, Part::kNorm, rms ? OpSpec(rms_spec) : OpSpec(layer_spec), inputs, outputs);
  if (!y.needs_grad) return y;
  record([=, this] {
    const auto [dx, accumulate] = gradient_target(x, leaf + "/in");
    std::vector<Operand> sources = {x.at, {gain.tensor, 0}, stats.at, gradient(y)};
    std::vector<Operand> targets = {dx};
    if (gain.gradient >= 0) targets.push_back({gain.gradient, 0});
    if (shift.gradient >= 0) targets.push_back({shift.gradient, 0});
    emit_backward(leaf, Part::kNorm,
                  rms ? OpSpec(RmsNormBackward{rms_spec, accumulate, accumulate_weights}) : OpSpec(LayerNormBackward{layer_spec, accumulate, accumulate_weights}),
                  sources, targets);
  });
  return y;
}

Value Tape::linear(const std::string& leaf, const Value& x, const Linear& spec) {
  const bool grouped = spec.experts > 1;
  const Weight w = spec.tied ? *spec.tied : weight(leaf + "/weight", spec.experts * spec.in, spec.out, base_trainable());
  const Weight b = spec.bias ? weight(leaf + "/bias", spec.experts, spec.out, base_trainable()) : Weight{};
  const Value y = activation(leaf, out_.at(x.at.tensor).rows, spec.out, spec.result, x.needs_grad || w.gradient >= 0);
  Gemm gemm;
  gemm.rows = spec.rows;
  gemm.in = spec.in;
  gemm.out = spec.out;
  gemm.bias = spec.bias;
  gemm.transposed = spec.tied != nullptr;
  gemm.experts = spec.experts;
  gemm.tokens = spec.tokens;
  gemm.picks = spec.picks;
  gemm.act = act();
  gemm.weight = act();
  gemm.result = spec.result;
  std::vector<Operand> inputs = {x.at, {w.tensor, 0}};
  if (spec.bias) inputs.push_back({b.tensor, 0});
  if (grouped) inputs.push_back(spec.offsets);
  emit(leaf, spec.part, gemm, inputs, {y.at});
  if (!y.needs_grad) return y;
  record([=, this] {
    const Operand dy = gradient(y);
    if (w.gradient >= 0) {
      Gemm dw = gemm;
      dw.role = GemmRole::kWeightGradient;
      dw.accumulate = accumulate_weights;
      dw.result = scenario_.grad_dtype;
      std::vector<Operand> sources = {saved(x), dy};
      if (grouped) sources.push_back(spec.offsets);
      std::vector<Operand> targets = {{w.gradient, 0}};
      if (b.gradient >= 0) targets.push_back({b.gradient, 0});
      emit_backward(leaf + "/dw", spec.part, dw, sources, targets);
    }
    if (x.needs_grad) {
      const auto [target, accumulate] = gradient_target(x, leaf + "/in");
      Gemm dx = gemm;
      dx.role = GemmRole::kInputGradient;
      dx.bias = false;
      dx.accumulate = accumulate;
      dx.result = act();
      std::vector<Operand> sources = {dy, {w.tensor, 0}};
      if (grouped) sources.push_back(spec.offsets);
      emit_backward(leaf + "/dx", spec.part, dx, sources, {target});
    }
  });
  return y;
}

Value Tape::activation_op(const std::string& leaf, const Value& x, const Value* up, Rows rows, std::int64_t width, ActivationKind kind, Part part) {
  const bool gated = up != nullptr;
  const Value second = gated ? *up : Value{};
  const Value y = activation(leaf, out_.at(x.at.tensor).rows, width, act(), x.needs_grad);
  const Activation spec{rows, width, kind, gated, act()};
  emit(leaf, part, spec, gated ? std::vector<Operand>{x.at, second.at} : std::vector<Operand>{x.at}, {y.at});
  if (!x.needs_grad && !(gated && second.needs_grad)) return y;
  record([=, this] {
    const Operand dy = gradient(y);
    std::vector<Operand> sources = {x.at};
    std::vector<Operand> targets = {gradient_target(x, leaf + "/in").first};
    if (gated) {
      sources.push_back(second.at);
      targets.push_back(gradient_target(second, leaf + "/up").first);
    }
    sources.push_back(dy);
    emit_backward(leaf, part, ActivationBackward{spec}, sources, targets);
  });
  return y;
}

Value Tape::add(const std::string& leaf, const Value& a, const Value& b, Rows rows, Operand* into) {
  const std::int64_t width = out_.at(a.at.tensor).cols;
  Value y;
  if (into) {
    y = Value{*into, a.needs_grad || b.needs_grad};
  } else {
    y = activation(leaf, out_.at(a.at.tensor).rows, width, act(), a.needs_grad || b.needs_grad);
  }
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
