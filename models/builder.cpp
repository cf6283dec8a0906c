#include "models/builder.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "lib/error.hpp"
#include "models/block.hpp"
#include "models/pairs.hpp"
#include "models/tape.hpp"

namespace fathom {
namespace {

// Builds the whole list: embedding, layers, head, and for training the backward blocks and the optimizer.
class ModelBuilder {
 public:
  ModelBuilder(const Network& network, const Scenario& scenario)
      : network_(network), scenario_(scenario), training_(scenario.phase == Phase::kTrain), outer_(out_, network_, scenario_) {}

  Workload build() {
    set_up_stream();
    for (std::int64_t micro = 0; micro < (training_ ? scenario_.grad_accumulation : 1); ++micro) {
      micro_ = static_cast<int>(micro);
      accumulate_ = micro > 0;
      forward();
      if (training_) backward();
    }
    if (training_ && scenario_.optimizer) optimizer();
    return out_.finish();
  }

 private:
  // A layer kind with its ops: forward block, backward blocks by "does it accumulate weight gradients", optimizer blocks.
  struct Kind {
    std::unique_ptr<Tape> tape;
    std::unique_ptr<BlockEmitter> emitter;
    Stream stream;
    Value y;
    int forward = -1;
    int backward[2] = {-1, -1};
  };

  void set_up_stream() {
    const bool decode = scenario_.phase == Phase::kDecode;
    stream_.sequences = scenario_.batch;
    stream_.queries = decode ? 1 : scenario_.length;
    stream_.past = decode ? scenario_.context - 1 : scenario_.past;
    stream_.cached = decode || stream_.past > 0;
    std::int64_t rows = 0;
    if (__builtin_mul_overflow(scenario_.batch, stream_.queries, &rows)) throw_input("batch x seq is too large");
    stream_.rows = Rows{rows, {1, 1}};
    out_.stream({stream_.sequences, stream_.queries, stream_.past, network_.vocab});
    x_ = out_.tensor("stream", Role::kActivation, Scope::kLayer, rows, network_.width, scenario_.dtype);
    tokens_ = out_.tensor("tokens", Role::kInput, Scope::kGlobal, rows, 1, DType::kI32);
    const TensorId positions = out_.tensor("positions", Role::kInput, Scope::kGlobal, rows, 1, DType::kI32);
    stream_.positions = Value{{positions, 0}, false};
    if (training_) {
      targets_ = out_.tensor("targets", Role::kInput, Scope::kGlobal, rows, 1, DType::kI32);
      dstream_ = out_.tensor("stream.d", Role::kActivation, Scope::kGlobal, rows, network_.width, scenario_.dtype);
    }
    outer_.set_weight_scope(Scope::kGlobal);
  }

  Value stream_value(int offset, bool needs_grad) const { return Value{{x_, static_cast<std::int8_t>(offset)}, needs_grad}; }
  bool embedding_trains() const { return training_ && !network_.lora && !network_.freeze_embedding; }

  void forward() {
    if (embed_ < 0) emit_embedding();
    out_.step(embed_, 0, 0, micro_);
    bool needs_grad = embedding_trains();
    for (int layer = 0; layer < network_.layer_count(); ++layer) {
      Kind& kind = kind_of(layer, needs_grad);
      out_.step(kind.forward, layer, weights_of(layer), micro_);
      needs_grad_in_.resize(static_cast<size_t>(layer) + 1);
      needs_grad_in_[static_cast<size_t>(layer)] = needs_grad;
      needs_grad = needs_grad || training_;  // every block holds trainable weights or adapters
    }
    if (head_ < 0) emit_head(needs_grad);
    out_.step(head_, static_cast<int>(network_.layer_count()), 0, micro_);
  }

  int weights_of(int layer) const { return network_.weights_of.empty() ? layer : network_.weights_of[static_cast<size_t>(layer)]; }

  Kind& kind_of(int layer, bool needs_grad) {
    const int index = network_.layers[static_cast<size_t>(layer)];
    const auto key = std::make_pair(index, needs_grad);
    const auto found = kinds_.find(key);
    if (found != kinds_.end()) return found->second;
    Kind& kind = kinds_[key];
    kind.tape = std::make_unique<Tape>(out_, network_, scenario_);
    if (!network_.weights_of.empty()) kind.tape->set_weight_pool(pool_of(key));
    kind.stream = stream_;
    kind.emitter = std::make_unique<BlockEmitter>(*kind.tape, network_.kinds[static_cast<size_t>(index)], kind.stream, stream_value(0, needs_grad),
                                                  Operand{x_, 1});
    const std::string label = unique_label(kind.emitter->label());
    kind.tape->set_prefix(label + "/");
    kind.forward = out_.begin_block(label, true);
    labels_by_block_[kind.forward] = label;
    kind.y = kind.emitter->forward();
    if (scenario_.recompute == Recompute::kFull) kind.tape->forget();
    return kind;
  }

  // The weight pool of a kind: one for all kinds that serve a common weight set, directly or through others. Their weights have
  // the same shapes (validate), so one tensor with an instance per weight set serves them all.
  using KindKey = std::pair<int, bool>;
  std::shared_ptr<Tape::WeightPool> pool_of(const KindKey& key) {
    if (pools_.empty()) {
      std::map<int, KindKey> first;  // of each weight set
      for (int layer = 0; layer < network_.layer_count(); ++layer) {
        const KindKey other{network_.layers[static_cast<size_t>(layer)], layer == 0 ? embedding_trains() : training_};
        auto& pool = pools_[other];
        if (!pool) pool = std::make_shared<Tape::WeightPool>();
        const auto [it, fresh] = first.emplace(weights_of(layer), other);
        const auto from = pool;
        const auto to = pools_[it->second];
        if (!fresh && from != to)
          for (auto& [unused, member] : pools_)
            if (member == from) member = to;
      }
    }
    return pools_.at(key);
  }

  // Two kinds of one sort (say, two capacities) are told apart by a number.
  std::string unique_label(const std::string& label) {
    const int count = ++labels_[label];
    return count == 1 ? label : fmt::format("{}{}", label, count);
  }

  void emit_embedding() {
    const bool learned = network_.positions == PositionKind::kLearned;
    const DType act = scenario_.dtype;
    outer_.set_prefix("embed/");
    table_ = outer_.weight("table", network_.table_rows(), network_.width, embedding_trains());
    embed_ = out_.begin_block("embed", false);
    Embedding spec{stream_.rows, network_.width, learned, act};
    std::vector<Operand> inputs = {{tokens_, 0}, {table_.tensor, 0}};
    Weight positions;
    if (learned) {
      positions = outer_.weight("positions", network_.max_length, network_.width, embedding_trains());
      inputs.push_back(stream_.positions.at);
      inputs.push_back({positions.tensor, 0});
    }
    if (network_.embedding_norm) throw_input("an embedding norm cannot be turned into ops yet", {network_.source, 0, "embedding_norm"});
    outer_.emit("tokens", Part::kEmbedding, spec, inputs, {{x_, 0}});
    embed_backward_ = [this, spec, positions, learned](bool accumulate) {
      std::vector<Operand> sources = {{tokens_, 0}, {dstream_, 0}};
      if (learned) sources.push_back(stream_.positions.at);
      std::vector<Operand> targets = {{table_.gradient, 0}};
      if (learned) targets.push_back({positions.gradient, 0});
      outer_.emit_backward("tokens", Part::kEmbedding, EmbeddingBackward{spec, accumulate || network_.tied, accumulate}, sources, targets);
    };
  }

  void emit_head(bool needs_grad) {
    head_ = out_.begin_block("head", false);
    outer_.set_prefix("head/");
    Rows rows = stream_.rows;
    Value x = stream_value(0, needs_grad);
    outer_.assign_target(x, {dstream_, 0});
    const LogitsKind logits = training_ ? LogitsKind::kAll : scenario_.logits;
    if (logits == LogitsKind::kLast && stream_.queries > 1) {
      rows = Rows{scenario_.batch, {1, 1}};
      const Value last{{out_.tensor("last_rows", Role::kInput, Scope::kGlobal, scenario_.batch, 1, DType::kI32), 0}, false};
      const Value gathered = outer_.activation("last", scenario_.batch, network_.width, scenario_.dtype, false);
      outer_.emit("last", Part::kLogits, GatherRows{rows, network_.width, scenario_.dtype}, {x.at, last.at}, {gathered.at});
      x = gathered;
    }
    if (network_.final_norm) x = outer_.norm("norm", x, rows, network_.width);
    if (logits == LogitsKind::kNone) return;
    Tape::Linear spec{rows, network_.width, network_.table_rows(), network_.head_bias, training_ ? scenario_.dtype : DType::kF32};
    spec.part = Part::kLogits;
    if (network_.tied) spec.tied = &table_;
    logits_ = outer_.linear("logits", x, spec);
    if (!training_) return;
    const Operand loss{out_.tensor("loss", Role::kOutput, Scope::kGlobal, 1, 1, DType::kF32), 0};
    // Loss and gradient in one pass over the logits, which are overwritten (vocabulary-wide rows are the largest tensor of a step).
    outer_.emit("loss", Part::kLoss, CrossEntropy{rows, network_.vocab, true, scenario_.dtype}, {logits_.at, {targets_, 0}}, {loss, logits_.at});
  }

  void backward() {
    const int layers = static_cast<int>(network_.layer_count());
    int& head = head_backward_[accumulate_];
    if (head < 0) {
      head = out_.begin_block("head/backward", false);
      outer_.set_prefix("head/");
      outer_.accumulate_weights = accumulate_;
      outer_.play_backward(logits_, logits_.at);
    }
    out_.step(head, layers, 0, micro_);
    std::map<int, bool> seen;  // weight sets that already received a gradient in this micro-step
    for (int layer = layers - 1; layer >= 0; --layer) {
      Kind& kind = kind_of(layer, needs_grad_in_[static_cast<size_t>(layer)]);
      const bool accumulate = accumulate_ || seen[weights_of(layer)];
      seen[weights_of(layer)] = true;
      if (kind.backward[accumulate] < 0) emit_block_backward(kind, accumulate);
      out_.step(kind.backward[accumulate], layer, weights_of(layer), micro_);
    }
    if (!embedding_trains()) return;
    int& embed = embed_backward_block_[accumulate_];
    if (embed < 0) {
      embed = out_.begin_block("embed/backward", false);
      embed_backward_(accumulate_);
    }
    out_.step(embed, 0, 0, micro_);
  }

  void emit_block_backward(Kind& kind, bool accumulate) {
    const std::string label = block_label(kind.forward);
    kind.backward[accumulate] = out_.begin_block(label + (accumulate ? "/backward+" : "/backward"), true);
    kind.tape->accumulate_weights = accumulate;
    Value y = kind.y;
    if (scenario_.recompute == Recompute::kFull) {
      kind.tape->set_prefix(label + "/recompute/");
      kind.tape->set_pass(Pass::kRecompute);
      kind.tape->forget();
      y = kind.emitter->recompute();
      kind.tape->set_pass(Pass::kForward);
    }
    kind.tape->play_backward(y, {dstream_, 0});
  }

  std::string block_label(int block) const { return labels_by_block_.at(block); }

  void optimizer() {
    const TensorId norm = out_.tensor("gradient_square_sum", Role::kOutput, Scope::kGlobal, 1, 1, DType::kF32);
    struct Group {
      int norm = -1, update = -1;
    };
    const auto emit = [&](const std::string& label, const Tape& tape, bool layered, bool first) {
      std::vector<Operand> gradients, sources = {{norm, 0}}, targets;
      std::int64_t params = 0;
      for (const Weight& weight : tape.weights()) {
        if (weight.gradient < 0) continue;
        const Tensor tensor = out_.at(weight.tensor);
        params += tensor.rows * tensor.cols;
        gradients.push_back({weight.gradient, 0});
        sources.push_back({weight.gradient, 0});
        targets.push_back({weight.tensor, 0});
        const auto state = [&](const char* suffix) {
          targets.push_back({out_.tensor(tensor.name + suffix, Role::kOptimizerState, tensor.scope, tensor.rows, tensor.cols, DType::kF32), 0});
        };
        state(".m");
        state(".v");
        if (tensor.dtype != DType::kF32) state(".master");
      }
      Group group;
      if (params == 0 && !first) return group;
      group.norm = out_.begin_block(layered ? label + "/optimizer" : "optimizer", layered);
      out_.op("norm", Part::kOptimizer, Pass::kOptimizer, GradientNorm{params, first, scenario_.grad_dtype}, gradients, {{norm, 0}});
      if (params == 0) return group;  // nothing outside the layers is trained: the op only clears the sum
      group.update = out_.begin_block(layered ? label + "/optimizer+" : "optimizer+", layered);
      out_.op("adamw", Part::kOptimizer, Pass::kOptimizer, AdamW{params, scenario_.dtype, scenario_.grad_dtype}, sources, targets);
      return group;
    };
    std::vector<std::pair<int, std::pair<int, int>>> updates;
    const Group outer = emit("model", outer_, false, true);
    out_.step(outer.norm, 0, 0, micro_);
    if (outer.update >= 0) updates.push_back({outer.update, {0, 0}});
    std::map<const Kind*, Group> groups;
    std::map<int, bool> seen;
    for (int layer = 0; layer < network_.layer_count(); ++layer) {
      if (seen[weights_of(layer)]) continue;
      seen[weights_of(layer)] = true;
      const Kind& kind = kind_of(layer, needs_grad_in_[static_cast<size_t>(layer)]);
      auto found = groups.find(&kind);
      if (found == groups.end()) found = groups.emplace(&kind, emit(block_label(kind.forward), *kind.tape, true, false)).first;
      if (found->second.norm < 0) continue;
      out_.step(found->second.norm, layer, weights_of(layer), micro_);
      updates.push_back({found->second.update, {layer, weights_of(layer)}});
    }
    for (const auto& [block, at] : updates) out_.step(block, at.first, at.second, micro_);
  }

  const Network& network_;
  const Scenario& scenario_;
  const bool training_;
  WorkloadBuilder out_;
  Tape outer_;  // embedding and head: one of each per model
  Stream stream_;
  TensorId x_ = -1, tokens_ = -1, targets_ = -1, dstream_ = -1;
  Weight table_;
  Value logits_;
  std::function<void(bool)> embed_backward_;
  int embed_ = -1, head_ = -1;
  int head_backward_[2] = {-1, -1};
  int embed_backward_block_[2] = {-1, -1};
  bool accumulate_ = false;
  int micro_ = 0;
  std::map<std::pair<int, bool>, Kind> kinds_;
  std::map<KindKey, std::shared_ptr<Tape::WeightPool>> pools_;
  std::map<std::string, int> labels_;
  std::map<int, std::string> labels_by_block_;
  std::vector<bool> needs_grad_in_;
};

}  // namespace

Workload build(const Network& network, const Scenario& scenario) {
  validate(network);
  validate(scenario);
  if (scenario.phase == Phase::kGenerate)
    throw_input("a generation has no single op list: it is a prefill and a number of decode steps", {"", 0, "phase"});
  return ModelBuilder(network, scenario).build();
}

}  // namespace fathom
