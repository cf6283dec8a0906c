// Values, weights and the gradient tape of one block emission.
//
// A forward emission helper adds its op to the current block and pushes a closure that adds the op's backward ops. Playing the closures in
// reverse inside a backward block yields the backward list. First contribution to a gradient writes it, later ones accumulate; a residual
// add hands its gradient on without copying (the residual stream has one gradient buffer for the whole step).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/workload.hpp"
#include "models/names.hpp"
#include "models/network.hpp"
#include "models/output.hpp"
#include "models/repeats.hpp"
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
  Tape(Output& out, const Network& network, const Scenario& scenario) : out_(out), network_(network), scenario_(scenario) {}

  Output& out() { return out_; }
  const Network& network() const { return network_; }
  const Scenario& scenario() const { return scenario_; }
  bool training() const { return scenario_.phase == Phase::kTrain; }
  DType act() const { return scenario_.dtype; }

  // Weights are memoised by name within one block kind, so that forward, recomputation and backward name the same tensor.
  Weight weight(const Name& name, std::int64_t rows, std::int64_t cols, bool trainable) { return weight(name, rows, cols, trainable, act()); }
  Weight weight(const Name& name, std::int64_t rows, std::int64_t cols, bool trainable, DType type);
  // Stored type of the matrices inside the layers: training keeps them in the compute type.
  DType matrix_type() const {
    if (training()) return act();
    return scenario_.weight_dtype ? *scenario_.weight_dtype : network_.weight_dtype.value_or(act());
  }
  const std::vector<Weight>& weights() const { return weights_; }
  u128 trained_parameters() const { return trained_; }
  void set_weight_scope(Scope scope) { weight_scope_ = scope; }

  // A new tensor of this block (activations and indices: one instance per layer).
  Value activation(const Name& name, std::int64_t rows, std::int64_t cols, DType dtype, bool needs_grad);
  Value index(const Name& name, std::int64_t rows);
  Operand tensor(const Name& name, Role role, Scope scope, std::int64_t rows, std::int64_t cols, DType dtype);

  template <class Spec>
  void emit(const Name& leaf, Part part, const Spec& spec, const Operands& inputs, const Operands& outputs) {
    out_.op(leaf, part_of(part), pass_, spec, inputs, outputs);
    if (repeats_.active()) repeats_.note(leaf, spec, inputs, outputs, [=, this](const Operands& from, const Operands& to) { out_.op(leaf, part_of(part), Pass::kRecompute, spec, from, to); });
  }
  template <class Spec>
  void emit_backward(const Name& leaf, Part part, const Spec& spec, const Operands& inputs, const Operands& outputs) {
    if (playing_ && repeats_.active())
      out_.op(leaf, part_of(part), Pass::kBackward, spec, repeated(inputs), outputs);
    else
      out_.op(leaf, part_of(part), Pass::kBackward, spec, inputs, outputs);
  }

  // Recording of backward closures.
  template <class Backward>
  void record(Backward&& backward) {
    if (training()) closures_.push_back(std::forward<Backward>(backward));
  }
  // Recomputation of named ops: their outputs are not kept but formed again when the backward pass first reads them (models/repeats.hpp).
  void repeat(RepeatPolicy* policy) { repeats_.follow(policy); }
  void substitute(const Value& value, const Value& again) { substitutes_.set(value.at, again.at); }
  Operand saved(const Value& value) const;

  // Runs the closures, last first, on a fresh set of gradients: `seed` is the gradient of `result`. Can be played again for another variant.
  void play_backward(const Value& result, Operand seed);
  void forget() { closures_.clear(); }
  void forget_since(size_t mark) {
    if (closures_.size() > mark) closures_.erase(closures_.begin() + static_cast<std::ptrdiff_t>(mark), closures_.end());
  }
  // What was recorded since a mark: recomputation records it again without emitting the ops (a router's scores are replayed).
  size_t mark() const { return closures_.size(); }
  std::vector<std::function<void()>> recorded_since(size_t mark) const {
    return {closures_.begin() + static_cast<std::ptrdiff_t>(mark), closures_.end()};
  }
  void set_pass(Pass pass) { pass_ = pass; }
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  // All ops of this tape are reported under one part (multi-token prediction).
  void set_part(Part part) { part_ = part; }
  // Block kinds that serve one weight set (recursion with another capacity per pass) name their weights in one pool.
  struct NamedWeight {
    Name name;
    bool trainable = true;
    Weight weight;
  };
  using WeightPool = std::vector<NamedWeight>;
  void set_weight_pool(std::shared_ptr<WeightPool> pool) { pool_ = std::move(pool); }
  // The first contribution to this value's gradient goes to `target` instead of a new tensor.
  void assign_target(const Value& value, Operand target) { targets_.set(value.at, target); }
  bool base_trainable() const { return !network_.lora; }
  Pass pass() const { return pass_; }
  bool trains_first_norms = false;  // also norms that nothing trainable feeds, where a frozen token table would freeze them
  bool accumulate_weights = false;  // weight gradients add to what is there (shared weights, gradient accumulation)

  // Gradients by value.
  bool has_gradient(const Value& value) const { return gradients_.find(value.at) != nullptr; }
  Operand gradient(const Value& value) const;  // must exist
  void set_gradient(const Value& value, Operand gradient) { gradients_.set(value.at, gradient); }
  // Where to write this value's gradient, and whether a contribution is already there.
  struct Target {
    Operand at;
    bool accumulate = false;
  };
  Target gradient_target(const Value& value, const Name& name, std::int64_t rows, std::int64_t cols);

  // ---- emission helpers; all values are row-major [rows, cols] ----
  // The network's norm over whole rows of `width`.
  Value norm(const Name& leaf, const Value& x, Rows rows, std::int64_t width, const Operand* into = nullptr);
  // RMS norms in place on a part of the rows of x (query and key norms, the latent of latent attention).
  struct InPlaceNorm {
    std::int64_t width = 0;
    std::int64_t groups = 1;
    std::int64_t gains = 1;
    std::int64_t stride = 0;
    std::int64_t offset = 0;
  };
  Value norm_in_place(const Name& leaf, const Value& x, Rows rows, const InPlaceNorm& part);

  // y = x W (+ b).
  struct Linear {
    Rows rows;
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool bias = false;
    DType result = DType::kF32;
    Part part = Part::kProjection;
    const Weight* given = nullptr;  // instead of a weight of this tape (head)
    const Weight* given_bias = nullptr;
    bool transposed = false;        // given, stored [out, in] (tied head)
    bool later_gradient = false;    // given, and another op always writes its gradient first
    std::int64_t experts = 1;
    std::int64_t tokens = 0;
    std::int64_t picks = 0;
    std::int64_t capacity = 0;
    double expected_experts = -1;   // grouped, as in Gemm
    Operand offsets = {};           // grouped only
    std::int64_t in_stride = 0;     // as in Gemm
    std::int64_t batch = 1;
    std::int64_t batch_stride = 0;
    const Value* into = nullptr;    // adds to columns out_offset .. of this tensor instead of making one
    std::int64_t out_offset = 0;
    std::int64_t out_stride = 0;
    bool adapter = false;           // trained although the base is frozen
  };
  Value linear(const Name& leaf, const Value& x, const Linear& spec);
  // Low-rank adapter on columns out_offset .. out_offset + spec.out of y = x W, where the network has one on `target`: y += (x A) B.
  void adapt(std::string_view target, const Name& leaf, const Value& x, Value& y, Linear spec, std::int64_t out_offset, std::int64_t out_stride);
  Value activation_op(const Name& leaf, const Value& x, const Value* up, Rows rows, std::int64_t width, ActivationKind kind, Part part);
  Value add(const Name& leaf, const Value& a, const Value& b, Rows rows, std::int64_t width, const Operand* into = nullptr);

 private:
  // A map of a handful of operands.
  class OperandMap {
   public:
    const Operand* find(const Operand& at) const {
      for (const auto& [key, value] : items_)
        if (key.tensor == at.tensor && key.layer_offset == at.layer_offset) return &value;
      return nullptr;
    }
    void set(const Operand& at, const Operand& value) {
      for (auto& [key, held] : items_)
        if (key.tensor == at.tensor && key.layer_offset == at.layer_offset) {
          held = value;
          return;
        }
      items_.push_back({at, value});
    }
    void clear() { items_.clear(); }

   private:
    std::vector<std::pair<Operand, Operand>> items_;
  };

  // The operands of a backward op: where one names an output that is not kept, the op that makes it comes first and its new output stands in.
  Operands repeated(const Operands& inputs);
  Operand repeated(const Operand& at);

  Part part_of(Part part) const { return part_ ? *part_ : part; }

  Output& out_;
  const Network& network_;
  const Scenario& scenario_;
  Pass pass_ = Pass::kForward;
  std::string prefix_;
  std::optional<Part> part_;
  Scope weight_scope_ = Scope::kWeights;
  std::vector<std::function<void()>> closures_;
  Repeats repeats_;
  bool playing_ = false;
  OperandMap substitutes_;
  WeightPool by_name_;
  std::shared_ptr<WeightPool> pool_;
  std::vector<Weight> weights_;
  u128 trained_ = 0;
  OperandMap gradients_;
  OperandMap targets_;
};

}  // namespace fathom
