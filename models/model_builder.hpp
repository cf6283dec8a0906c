// The emission of a whole model: embedding, layers, head, prediction modules, and for training the backward blocks and the optimizer.
//
// Internal to models/: builder.cpp walks the layers, model_ends.cpp holds what stands outside them. With a counting Output the same
// walk yields sums instead of a list.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/block.hpp"
#include "models/output.hpp"

namespace fathom {

class ModelBuilder {
 public:
  ModelBuilder(const Network& network, const Scenario& scenario, Output& out)
      : network_(network), scenario_(scenario), training_(scenario.phase == Phase::kTrain), out_(out), embed_tape_(out, network, scenario), head_tape_(out, network, scenario), repeats_(scenario) {}

  void run();

 private:
  // A layer kind with its ops: forward block, and backward blocks by "does it accumulate weight gradients".
  struct Kind {
    Kind(int kind_index, bool gradient, bool accumulates, Output& out, const Network& network, const Scenario& scenario)
        : index(kind_index), needs_grad(gradient), accumulate(accumulates), tape(out, network, scenario) {}
    int index;
    bool needs_grad;
    bool accumulate;  // of gradients formed in the forward block (predictors)
    Tape tape;
    std::unique_ptr<BlockEmitter> emitter;
    Value y;
    std::string label;
    int forward = -1;
    int backward[2] = {-1, -1};
  };
  // A multi-token prediction module.
  struct Module {
    Module(Output& out, const Network& network, const Scenario& scenario) : tape(out, network, scenario) {}
    Tape tape;
    std::unique_ptr<BlockEmitter> emitter;
    Value logits;
    std::string label;
    int forward = -1;
    int backward[2] = {-1, -1};
  };

  void set_up_stream();
  Value stream_value(int offset, bool needs_grad) const { return Value{{x_, static_cast<std::int8_t>(offset)}, needs_grad}; }
  bool positions_train() const { return training_ && !network_.lora; }
  bool table_trains() const { return positions_train() && !network_.freeze_embedding; }
  int weights_of(int layer) const { return network_.weights_of.empty() ? layer : network_.weights_of[static_cast<size_t>(layer)]; }

  void forward();
  void backward();
  Kind& kind_of(int layer, bool needs_grad, bool accumulate);
  std::shared_ptr<Tape::WeightPool> pool_of(int kind);
  void emit_block_backward(Kind& kind, bool accumulate);

  void emit_embedding();
  void emit_head(bool needs_grad);
  // The rows that get logits: x itself, or the gathered last ones.
  Value logit_rows(Tape& tape, const Value& x, Rows* rows);
  Value emit_logits(Tape& tape, const Name& leaf, const Value& x, Rows rows, bool later_gradient);
  void emit_module(int index, bool needs_grad);
  void optimizer();

  const Network& network_;
  const Scenario& scenario_;
  const bool training_;
  Output& out_;
  Tape embed_tape_, head_tape_;
  RepeatPolicy repeats_;
  Stream stream_;
  TensorId x_ = -1, tokens_ = -1, targets_ = -1, dstream_ = -1;
  Weight table_, head_weight_, head_bias_;
  Value embedded_, logits_;
  int embed_ = -1, head_ = -1;
  int head_backward_[2] = {-1, -1};
  int embed_backward_[2] = {-1, -1};
  bool accumulate_ = false;
  int micro_ = 0;
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<Kind*> of_layer_;  // of the current micro-step
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<std::shared_ptr<Tape::WeightPool>> pools_;
};

}  // namespace fathom
