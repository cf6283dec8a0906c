// Values, weights and the gradient tape of one block emission.
//
// A forward emission helper adds its op to the current block and pushes a closure that adds the op's backward ops. Playing the closures in
// reverse inside a backward block yields the backward list. First contribution to a gradient writes it, later ones accumulate; a residual
// add hands its gradient on without copying (the residual stream has one gradient buffer for the whole step).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/workload.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

// A tensor in the data flow of one block.
struct Value {
  Operand at;
  bool needs_grad = false;
};

// A trainable tensor and its gradient (gradient < 0: frozen, or no training).
struct Weight {
  TensorId tensor = -1;
  TensorId gradient = -1;
};

class Tape {
 public:
  Tape(WorkloadBuilder& out, const Network& network, const Scenario& scenario) : out_(out), network_(network), scenario_(scenario) {}

  WorkloadBuilder& out() { return out_; }
  const Network& network() const { return network_; }
  const Scenario& scenario() const { return scenario_; }
  bool training() const { return scenario_.phase == Phase::kTrain; }
  DType act() const { return scenario_.dtype; }

  // Weights are memoised by name within one block kind, so that forward, recomputation and backward name the same tensor.
  Weight weight(const std::string& name, std::int64_t rows, std::int64_t cols, bool trainable);
  const std::vector<Weight>& weights() const { return weights_; }
  void set_weight_scope(Scope scope) { weight_scope_ = scope; }

  // A new activation of this block (one instance per layer).
  Value activation(const std::string& name, std::int64_t rows, std::int64_t cols, DType dtype, bool needs_grad);
  Value index(const std::string& name, std::int64_t rows);

  OpId emit(const std::string& leaf, Part part, OpSpec spec, std::vector<Operand> inputs, std::vector<Operand> outputs);
  OpId emit_backward(const std::string& leaf, Part part, OpSpec spec, std::vector<Operand> inputs, std::vector<Operand> outputs);

  // Recording of backward closures.
  void record(std::function<void()> backward) {
    if (training()) closures_.push_back(std::move(backward));
  }
  // Selective recomputation: emitted at the head of the backward block; substitute() makes later closures read the repeated tensor.
  void record_recompute(std::function<void()> emission) {
    if (training()) recomputations_.push_back(std::move(emission));
  }
  void substitute(const Value& value, const Value& again) { substitutes_[key(value.at)] = again.at; }
  Operand saved(const Value& value) const;

  // Runs the closures, last first, on a fresh set of gradients: `seed` is the gradient of `result`. Can be played again for another variant.
  void play_backward(const Value& result, Operand seed);
  void forget() { closures_.clear(), recomputations_.clear(); }
  void set_pass(Pass pass) { pass_ = pass; }
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  // Block kinds that serve one weight set (recursion with another capacity per pass) name their weights in one pool.
  using WeightPool = std::map<std::string, Weight>;
  void set_weight_pool(std::shared_ptr<WeightPool> pool) { pool_ = std::move(pool); }
  // The first contribution to this value's gradient goes to `target` instead of a new tensor.
  void assign_target(const Value& value, Operand target) { targets_[key(value.at)] = target; }
  bool base_trainable() const { return !network_.lora; }
  Pass pass() const { return pass_; }
  bool accumulate_weights = false;  // weight gradients add to what is there (shared weights, gradient accumulation)

  // Gradients by value.
  bool has_gradient(const Value& value) const { return gradients_.count(key(value.at)) != 0; }
  Operand gradient(const Value& value) const;  // must exist
  void set_gradient(const Value& value, Operand gradient) { gradients_[key(value.at)] = gradient; }
  // Where to write this value's gradient, and whether a contribution is already there.
  std::pair<Operand, bool> gradient_target(const Value& value, const std::string& name);

  // ---- emission helpers; all values are row-major [rows, cols] ----
  Value norm(const std::string& leaf, const Value& x, Rows rows, std::int64_t width, std::int64_t groups = 1);
  // y = x W (+ b); `tied` uses the given weight stored [out, in].
  struct Linear {
    Rows rows;
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool bias = false;
    DType result = DType::kF32;
    Part part = Part::kProjection;
    const Weight* tied = nullptr;
    std::int64_t experts = 1;
    std::int64_t tokens = 0;
    std::int64_t picks = 0;
    Operand offsets = {};  // grouped only
  };
  Value linear(const std::string& leaf, const Value& x, const Linear& spec);
  Value activation_op(const std::string& leaf, const Value& x, const Value* up, Rows rows, std::int64_t width, ActivationKind kind, Part part);
  Value add(const std::string& leaf, const Value& a, const Value& b, Rows rows, Operand* into = nullptr);

 private:
  static std::pair<TensorId, int> key(const Operand& at) { return {at.tensor, at.layer_offset}; }

  WorkloadBuilder& out_;
  const Network& network_;
  const Scenario& scenario_;
  Pass pass_ = Pass::kForward;
  std::string prefix_;
  Scope weight_scope_ = Scope::kWeights;
  std::vector<std::function<void()>> closures_;
  std::vector<std::function<void()>> recomputations_;
  std::map<std::pair<TensorId, int>, Operand> substitutes_;
  std::map<std::string, Weight> by_name_;
  std::shared_ptr<WeightPool> pool_;
  std::vector<Weight> weights_;
  std::map<std::pair<TensorId, int>, Operand> gradients_;
  std::map<std::pair<TensorId, int>, Operand> targets_;
};

}  // namespace fathom
