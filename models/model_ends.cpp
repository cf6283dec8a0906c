// What stands outside the layers: embedding, head and loss, multi-token prediction modules, optimizer.
#include <fmt/format.h>

#include "lib/error.hpp"
#include "models/model_builder.hpp"

namespace fathom {

void ModelBuilder::emit_embedding() {
  const bool learned = network_.positions == PositionKind::kLearned;
  Tape& tape = embed_tape_;
  tape.set_prefix("embed/");
  table_ = tape.weight("table", network_.table_rows(), network_.width, table_trains());
  embed_ = out_.begin_block("embed", false);
  const Embedding spec{stream_.rows, network_.width, learned, scenario_.dtype};
  Operands inputs = {{tokens_, 0}, {table_.tensor, 0}};
  Weight positions;
  if (learned) {
    positions = tape.weight("positions", network_.max_length, network_.width, positions_train());
    inputs.push_back(stream_.positions.at);
    inputs.push_back({positions.tensor, 0});
  }
  const Operand stream{x_, 0};
  const bool needs_grad = table_trains() || (learned && positions_train());
  const Value rows = network_.embedding_norm ? tape.activation("tokens", stream_.rows.count, network_.width, scenario_.dtype, needs_grad) : Value{stream, needs_grad};
  tape.emit("tokens", Part::kEmbedding, spec, inputs, {rows.at});
  const bool table_written = network_.tied || network_.mtp > 0;  // by the head or the prediction modules, in every micro-step
  tape.record([=, this, &tape] {
    if (!rows.needs_grad) return;
    if (table_.gradient < 0) {  // a frozen table: the positions' own rows are all there is
      const Embedding own{stream_.rows, network_.width, false, scenario_.dtype};
      tape.emit_backward("positions", Part::kEmbedding, EmbeddingBackward{own, tape.accumulate_weights, false}, {stream_.positions.at, tape.gradient(rows)}, {{positions.gradient, 0}});
      return;
    }
    Operands sources = {{tokens_, 0}, tape.gradient(rows)};
    if (learned) sources.push_back(stream_.positions.at);
    Operands targets = {{table_.gradient, 0}};
    if (learned) targets.push_back({positions.gradient, 0});
    tape.emit_backward("tokens", Part::kEmbedding, EmbeddingBackward{spec, tape.accumulate_weights || table_written, tape.accumulate_weights}, sources, targets);
  });
  tape.trains_first_norms = true;  // the embedding's own
  embedded_ = network_.embedding_norm ? tape.norm("norm", rows, stream_.rows, network_.width, &stream) : rows;
}

Value ModelBuilder::logit_rows(Tape& tape, const Value& x, Rows* rows) {
  *rows = stream_.rows;
  const LogitsKind logits = training_ ? LogitsKind::kAll : scenario_.logits;
  if (logits != LogitsKind::kLast || stream_.queries == 1) return x;
  *rows = Rows{scenario_.batch, {1, 1}};
  const Operand last{out_.tensor(std::string(), "last_rows", Role::kInput, Scope::kGlobal, scenario_.batch, 1, DType::kI32), 0};
  const Value gathered = tape.activation("last", scenario_.batch, network_.width, scenario_.dtype, false);
  tape.emit("last", Part::kLogits, GatherRows{*rows, network_.width, scenario_.dtype}, {x.at, last}, {gathered.at});
  return gathered;
}

// All heads of the model are one: the token table where tied, else a matrix of its own. Padded rows are stored and computed.
Value ModelBuilder::emit_logits(Tape& tape, const Name& leaf, const Value& x, Rows rows, bool later_gradient) {
  Tape::Linear spec{rows, network_.width, network_.table_rows(), network_.head_bias, training_ ? scenario_.dtype : DType::kF32};
  spec.part = Part::kLogits;
  spec.given = &head_weight_;
  if (network_.head_bias) spec.given_bias = &head_bias_;
  spec.transposed = network_.tied;
  spec.later_gradient = later_gradient;
  return tape.linear(leaf, x, spec);
}

void ModelBuilder::emit_head(bool needs_grad) {
  Tape& tape = head_tape_;
  tape.set_prefix("head/");
  head_ = out_.begin_block("head", false);
  const bool logits = training_ || scenario_.logits != LogitsKind::kNone;
  if (network_.tied)
    head_weight_ = table_;
  else if (logits)
    head_weight_ = tape.weight("logits/weight", network_.width, network_.table_rows(), tape.base_trainable());
  if (network_.head_bias && logits) head_bias_ = tape.weight("logits/bias", 1, network_.table_rows(), head_weight_.gradient >= 0);  // frozen with its matrix
  Rows rows;
  const Value stream = stream_value(0, needs_grad);
  tape.assign_target(stream, {dstream_, 0});
  Value x = logit_rows(tape, stream, &rows);
  if (network_.final_norm) x = tape.norm("norm", x, rows, network_.width);
  if (!logits) return;
  logits_ = emit_logits(tape, "logits", x, rows, network_.mtp > 0);
  if (!training_) return;
  const Operand loss{out_.tensor(std::string(), "loss", Role::kOutput, Scope::kGlobal, 1, 1, DType::kF32), 0};
  // Loss and gradient in one pass over the logits, which are overwritten (vocabulary-wide rows are the largest tensor of a step).
  tape.emit("loss", Part::kLoss, CrossEntropy{rows, network_.vocab, true, scenario_.dtype, scenario_.micro_weight()}, {logits_.at, {targets_, 0}}, {loss, logits_.at});
  // Played first, so recorded last: the prediction modules, whose backward blocks come before, have already written the stream's gradient.
  if (network_.mtp > 0) tape.record([this, &tape, stream] { tape.set_gradient(stream, {dstream_, 0}); });
}

// Module i predicts one token further from the stream that module i-1 left (DeepSeek-V3): norm(hidden) and norm(embedding of the next token) are
// projected 2h -> h, as two products h -> h and their sum, and pass one more layer of the last kind and the common head. All rows are computed.
// Modules keep their activations: recomputation policies act on the layers.
void ModelBuilder::emit_module(int index, bool needs_grad) {
  modules_.push_back(std::make_unique<Module>(out_, network_, scenario_));
  Module& module = *modules_.back();
  Tape& tape = module.tape;
  if (out_.named()) {
    module.label = index == 0 ? "mtp" : fmt::format("mtp{}", index + 1);
    tape.set_prefix(module.label + "/");
  }
  tape.set_part(Part::kMtp);
  module.forward = out_.begin_block(module.label, true);
  const std::int64_t width = network_.width;
  const Rows all = stream_.rows;
  const bool last = index + 1 == network_.mtp;
  const Value hidden = stream_value(0, needs_grad || index > 0);
  tape.assign_target(hidden, {dstream_, 0});

  const Operand tokens = tape.tensor("tokens", Role::kInput, Scope::kGlobal, all.count, 1, DType::kI32);
  const Embedding spec{all, width, false, scenario_.dtype};
  const Value embedded = tape.activation("embed", all.count, width, scenario_.dtype, table_.gradient >= 0);
  tape.emit("embed", Part::kMtp, spec, {tokens, {table_.tensor, 0}}, {embedded.at});
  tape.record([=, this, &tape] {
    if (!embedded.needs_grad) return;
    // With a tied head this module's logits were the first to write the table's gradient.
    const bool accumulate = tape.accumulate_weights || network_.tied || !last;
    tape.emit_backward("embed", Part::kMtp, EmbeddingBackward{spec, accumulate, false}, {tokens, tape.gradient(embedded)}, {{table_.gradient, 0}});
  });
  const Value hidden_norm = tape.norm("hidden_norm", hidden, all, width);
  const Value embed_norm = tape.norm("embed_norm", embedded, all, width);
  const Tape::Linear square{all, width, width, false, scenario_.dtype};
  const Value hidden_part = tape.linear("hidden_proj", hidden_norm, square);
  const Value embed_part = tape.linear("embed_proj", embed_norm, square);
  const Value x = tape.add("proj", hidden_part, embed_part, all, width);
  module.emitter = std::make_unique<BlockEmitter>(tape, network_.block(network_.layer_count() - 1), stream_, x, Operand{x_, 1});
  const Value y = module.emitter->forward();
  tape.assign_target(y, {dstream_, 0});
  Rows rows;
  Value z = tape.norm("norm", logit_rows(tape, y, &rows), rows, width);
  if (!training_ && scenario_.logits == LogitsKind::kNone) return;
  module.logits = emit_logits(tape, "logits", z, rows, !last);
  if (!training_) return;
  const Operand loss = tape.tensor("loss", Role::kOutput, Scope::kGlobal, 1, 1, DType::kF32);
  const Operand targets = tape.tensor("targets", Role::kInput, Scope::kGlobal, all.count, 1, DType::kI32);
  tape.emit("loss", Part::kMtp, CrossEntropy{rows, network_.vocab, true, scenario_.dtype, scenario_.micro_weight()}, {module.logits.at, targets}, {loss, module.logits.at});
  // Played first: what the next module left in the stream's gradient belongs to this one's output.
  if (!last) tape.record([this, &tape, y] { tape.set_gradient(y, {dstream_, 0}); });
}

void ModelBuilder::optimizer() {
  const int layers = static_cast<int>(network_.layer_count());
  const Operand norm{out_.tensor(std::string(), "gradient_square_sum", Role::kOutput, Scope::kGlobal, 1, 1, DType::kF32), 0};
  struct Group {
    const Tape* tape = nullptr;
    int norm = -1, update = -1;
  };
  const auto emit = [&](const std::string& label, std::initializer_list<const Tape*> tapes, bool layered, bool first) {
    std::vector<Operand> gradients, sources = {norm}, targets;
    u128 sum = 0;
    for (const Tape* tape : tapes) {
      sum += tape->trained_parameters();
      if (out_.counting()) continue;
      for (const Weight& weight : tape->weights()) {
        if (weight.gradient < 0) continue;
        const Tensor tensor = out_.at(weight.tensor);
        gradients.push_back({weight.gradient, 0});
        sources.push_back({weight.gradient, 0});
        targets.push_back({weight.tensor, 0});
        const auto state = [&](const char* suffix) {
          targets.push_back({out_.tensor(tensor.name, suffix, Role::kOptimizerState, tensor.scope, tensor.rows, tensor.cols, DType::kF32), 0});
        };
        state(".m");
        state(".v");
        if (AdamW::keeps_master(tensor.dtype)) state(".master");
      }
    }
    if (sum >> 62) throw_input("more parameters in one block than can be counted");
    const std::int64_t params = static_cast<std::int64_t>(sum);
    Group group{*tapes.begin()};
    if (params == 0 && !first) return group;
    const auto add = [&](const char* leaf, const char* suffix, const auto& spec, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs) {
      const int block = out_.begin_block(layered ? label + suffix : suffix + 1, layered);
      out_.op_list(leaf, Part::kOptimizer, Pass::kOptimizer, spec, inputs, outputs);
      return block;
    };
    group.norm = add("norm", "/optimizer", GradientNorm{params, first, scenario_.grad_dtype}, gradients, {norm});
    if (params == 0) return group;  // nothing outside the layers is trained: the op only clears the sum
    group.update = add("adamw", "/optimizer+", AdamW{params, scenario_.dtype, scenario_.grad_dtype}, sources, targets);
    return group;
  };

  struct Update {
    int block, layer, weights;
  };
  std::vector<Update> updates;
  const Group outer = emit("model", {&head_tape_, &embed_tape_}, false, true);
  out_.step(outer.norm, 0, 0, micro_);
  if (outer.update >= 0) updates.push_back({outer.update, 0, 0});
  std::vector<Group> groups;
  std::vector<bool> seen;
  const auto update = [&](const std::string& label, const Tape& tape, int layer, int weights) {
    Group group;
    for (const Group& known : groups)
      if (known.tape == &tape) group = known;
    if (!group.tape) groups.push_back(group = emit(label, {&tape}, true, false));
    if (group.norm < 0) return;
    out_.step(group.norm, layer, weights, micro_);
    updates.push_back({group.update, layer, weights});
  };
  for (int layer = 0; layer < layers; ++layer) {
    const size_t weights = static_cast<size_t>(weights_of(layer));
    if (seen.size() <= weights) seen.resize(weights + 1);
    if (seen[weights]) continue;
    seen[weights] = true;
    const Kind& kind = *of_layer_[static_cast<size_t>(layer)];
    update(kind.label, kind.tape, layer, static_cast<int>(weights));
  }
  for (size_t i = 0; i < modules_.size(); ++i) {
    const int layer = layers + static_cast<int>(i);
    update(modules_[i]->label, modules_[i]->tape, layer, layer);
  }
  for (const Update& each : updates) out_.step(each.block, each.layer, each.weights, micro_);
}

}  // namespace fathom
