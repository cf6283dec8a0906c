#include "models/builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/error.hpp"
#include "models/fusion.hpp"
#include "models/model_builder.hpp"

namespace fathom {

void ModelBuilder::run() {
  set_up_stream();
  for (std::int64_t micro = 0; micro < (training_ ? scenario_.grad_accumulation : 1); ++micro) {
    micro_ = static_cast<int>(micro);
    accumulate_ = micro > 0;
    forward();
    if (training_) backward();
  }
  if (training_ && scenario_.optimizer) optimizer();
  repeats_.check();
}

void ModelBuilder::set_up_stream() {
  const bool decode = scenario_.phase == Phase::kDecode;
  stream_.sequences = scenario_.batch;
  stream_.queries = decode ? 1 : scenario_.length;
  stream_.past = decode ? scenario_.context - 1 : training_ ? 0 : scenario_.past;
  stream_.cached = decode || stream_.past > 0;
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(scenario_.batch, stream_.queries, &rows)) throw_input("batch x seq is too large");
  stream_.rows = Rows{rows, {1, 1}};
  out_.list().stream({stream_.sequences, stream_.queries, stream_.past, network_.vocab});
  static const std::string none;
  x_ = out_.tensor(none, "stream", Role::kActivation, Scope::kLayer, rows, network_.width, scenario_.dtype);
  tokens_ = out_.tensor(none, "tokens", Role::kInput, Scope::kGlobal, rows, 1, DType::kI32);
  stream_.positions = Value{{out_.tensor(none, "positions", Role::kInput, Scope::kGlobal, rows, 1, DType::kI32), 0}, false};
  if (training_) {
    targets_ = out_.tensor(none, "targets", Role::kInput, Scope::kGlobal, rows, 1, DType::kI32);
    dstream_ = out_.tensor(none, "stream.d", Role::kActivation, Scope::kGlobal, rows, network_.width, scenario_.dtype);
  }
  embed_tape_.set_weight_scope(Scope::kGlobal);
  head_tape_.set_weight_scope(Scope::kGlobal);
  of_layer_.resize(network_.layers.size());
}

void ModelBuilder::forward() {
  const int layers = static_cast<int>(network_.layer_count());
  if (embed_ < 0) emit_embedding();
  out_.step(embed_, 0, 0, micro_);
  bool needs_grad = embedded_.needs_grad;
  std::vector<bool> seen;  // weight sets that received a gradient in this forward pass (predictors only)
  for (int layer = 0; layer < layers; ++layer) {
    const int weights = weights_of(layer);
    bool accumulate = false;
    if (training_ && network_.block(layer).route && network_.block(layer).route->predictor) {
      if (seen.size() <= static_cast<size_t>(weights)) seen.resize(static_cast<size_t>(weights) + 1);
      accumulate = accumulate_ || seen[static_cast<size_t>(weights)];
      seen[static_cast<size_t>(weights)] = true;
    }
    Kind& kind = kind_of(layer, needs_grad, accumulate);
    of_layer_[static_cast<size_t>(layer)] = &kind;
    out_.step(kind.forward, layer, weights, micro_);
    needs_grad = kind.y.needs_grad;
  }
  if (head_ < 0) emit_head(needs_grad);
  out_.step(head_, layers, 0, micro_);
  for (int i = 0; i < network_.mtp; ++i) {
    if (static_cast<int>(modules_.size()) <= i) emit_module(i, needs_grad);
    out_.step(modules_[static_cast<size_t>(i)]->forward, layers + i, layers + i, micro_);
  }
}

ModelBuilder::Kind& ModelBuilder::kind_of(int layer, bool needs_grad, bool accumulate) {
  const int index = network_.layers[static_cast<size_t>(layer)];
  for (const auto& kind : kinds_)
    if (kind->index == index && kind->needs_grad == needs_grad && kind->accumulate == accumulate) return *kind;
  kinds_.push_back(std::make_unique<Kind>(index, needs_grad, accumulate, out_, network_, scenario_));
  Kind& kind = *kinds_.back();
  kind.emitter = std::make_unique<BlockEmitter>(kind.tape, network_.kinds[static_cast<size_t>(index)], stream_, stream_value(0, needs_grad), Operand{x_, 1});
  if (out_.named()) {
    // Two kinds of one sort (say, two capacities) are told apart by a number.
    const std::string sort = kind.emitter->label();
    const auto same = std::count_if(kinds_.begin(), kinds_.end(), [&](const auto& other) { return other->emitter->label() == sort; });
    kind.label = same == 1 ? sort : fmt::format("{}{}", sort, same);
    kind.tape.set_prefix(kind.label + "/");
  }
  // Where every layer has its own weights and is passed once, no instance of a tensor is that of another kind.
  const bool meet = !network_.weights_of.empty() || (training_ && scenario_.grad_accumulation > 1);
  if (out_.named() || (!out_.counting() && meet)) kind.tape.set_weight_pool(pool_of(index));
  kind.tape.accumulate_weights = accumulate;
  if (!repeats_.empty()) kind.tape.repeat(&repeats_);
  kind.forward = out_.begin_block(kind.label, true);
  kind.y = kind.emitter->forward();
  if (scenario_.recompute == Recompute::kFull) kind.tape.forget();
  return kind;
}

// The weight pool of a kind: one for all kinds that serve a common weight set, directly or through others. Their weights have
// the same shapes (validate), so one tensor with an instance per weight set serves them all.
std::shared_ptr<Tape::WeightPool> ModelBuilder::pool_of(int kind) {
  if (pools_.empty()) {
    pools_.resize(network_.kinds.size());
    for (auto& pool : pools_) pool = std::make_shared<Tape::WeightPool>();
    std::map<int, int> first;  // weight set -> the kind that used it first
    for (int layer = 0; layer < network_.layer_count(); ++layer) {
      const int other = network_.layers[static_cast<size_t>(layer)];
      const auto from = pools_[static_cast<size_t>(other)];
      const auto to = pools_[static_cast<size_t>(first.emplace(weights_of(layer), other).first->second)];
      for (auto& member : pools_)
        if (member == from) member = to;
    }
  }
  return pools_[static_cast<size_t>(kind)];
}

void ModelBuilder::backward() {
  const int layers = static_cast<int>(network_.layer_count());
  for (int i = static_cast<int>(network_.mtp) - 1; i >= 0; --i) {
    Module& module = *modules_[static_cast<size_t>(i)];
    int& block = module.backward[accumulate_];
    if (block < 0) {
      block = out_.begin_block(!out_.named() ? std::string() : module.label + (accumulate_ ? "/backward+" : "/backward"), true);
      module.tape.accumulate_weights = accumulate_;
      module.tape.play_backward(module.logits, module.logits.at);
    }
    out_.step(block, layers + i, layers + i, micro_);
  }
  int& head = head_backward_[accumulate_];
  if (head < 0) {
    head = out_.begin_block("head/backward", false);
    head_tape_.accumulate_weights = accumulate_;
    head_tape_.play_backward(logits_, logits_.at);
  }
  out_.step(head, layers, 0, micro_);
  std::vector<bool> seen;  // weight sets that already received a gradient in this micro-step
  for (int layer = layers - 1; layer >= 0; --layer) {
    Kind& kind = *of_layer_[static_cast<size_t>(layer)];
    if (!kind.y.needs_grad) break;  // nothing trainable here or below
    const size_t weights = static_cast<size_t>(weights_of(layer));
    if (seen.size() <= weights) seen.resize(weights + 1);
    const bool accumulate = accumulate_ || seen[weights];
    seen[weights] = true;
    if (kind.backward[accumulate] < 0) emit_block_backward(kind, accumulate);
    out_.step(kind.backward[accumulate], layer, static_cast<int>(weights), micro_);
  }
  if (!embedded_.needs_grad) return;
  int& embed = embed_backward_[accumulate_];
  if (embed < 0) {
    embed = out_.begin_block("embed/backward", false);
    embed_tape_.accumulate_weights = accumulate_;
    embed_tape_.play_backward(embedded_, {dstream_, 0});
  }
  out_.step(embed, 0, 0, micro_);
}

void ModelBuilder::emit_block_backward(Kind& kind, bool accumulate) {
  kind.backward[accumulate] = out_.begin_block(!out_.named() ? std::string() : kind.label + (accumulate ? "/backward+" : "/backward"), true);
  kind.tape.accumulate_weights = accumulate;
  Value y = kind.y;
  if (scenario_.recompute == Recompute::kFull) {
    if (out_.named()) kind.tape.set_prefix(kind.label + "/recompute/");
    kind.tape.set_pass(Pass::kRecompute);
    kind.tape.forget();
    y = kind.emitter->recompute();
    kind.tape.set_pass(Pass::kForward);
  }
  kind.tape.play_backward(y, {dstream_, 0});
}

namespace {

constexpr std::int64_t kMostLayerSteps = 1 << 17;  // the list holds every one of them

void check(const Network& network, const Scenario& scenario) {
  validate(network);
  validate(scenario);
  if (scenario.phase == Phase::kGenerate)
    throw_input("a generation has no single op list: it is a prefill and a number of decode steps", {"", 0, "phase"});
  const std::int64_t micro = scenario.phase == Phase::kTrain ? scenario.grad_accumulation : 1;
  if (micro > 1 && micro > kMostLayerSteps / std::max<std::int64_t>(1, network.layer_count()))
    throw_input(fmt::format("{} micro-steps of {} layers are more than {} layers in one step", micro, network.layer_count(), kMostLayerSteps), {"", 0, "grad-accumulation"},
                "count one micro-step and multiply");
}

}  // namespace

Workload build(const Network& network, const Scenario& scenario) {
  check(network, scenario);
  Output out;
  ModelBuilder(network, scenario, out).run();
  apply_fusions(scenario.fusions, out.list());
  return out.list().finish();
}

const Workload& build_in_place(const Network& network, const Scenario& scenario, WorkloadBuilder& memory) {
  check(network, scenario);
  if (needs_list(scenario.fusions)) return memory.keep(build(network, scenario));  // fusions go by the ops' names
  Output out(memory);
  ModelBuilder(network, scenario, out).run();
  return memory.finish_in_place();
}

namespace {

// Fusions join ops that the running sums see one by one, so the list is made whole. Not affine in the batch: nothing may be derived from it.
ListTotals totals_of_list(const Network& network, const Scenario& scenario, bool expectations) {
  const Workload list = build(network, scenario);
  ListTotals totals;
  totals.total = list.total();
  if (expectations) totals.expected = list.expected_total();
  for (int p = 0; p < kPartCount; ++p) totals.flops_by_part[static_cast<size_t>(p)] = list.total(static_cast<Part>(p)).flops;
  for (int p = 0; p < 4; ++p) totals.flops_by_pass[static_cast<size_t>(p)] = list.total(static_cast<Pass>(p)).flops;
  return totals;
}

}  // namespace

ListTotals count_totals(const Network& network, const Scenario& scenario, bool expectations) {
  check(network, scenario);
  if (needs_list(scenario.fusions)) return totals_of_list(network, scenario, expectations);
  Output out(expectations);
  ModelBuilder(network, scenario, out).run();
  ListTotals totals = out.totals();
  totals.affine_in_batch = out.linear();
  return totals;
}

ListTotals count_totals(const Network& network, const Scenario& scenario, std::vector<BlockExpectation>& blocks, bool* by_rows) {
  check(network, scenario);
  if (needs_list(scenario.fusions)) {
    blocks.clear();
    return totals_of_list(network, scenario, true);
  }
  Output out(true, by_rows ? Output::Keep::kContext : Output::Keep::kBatch);
  ModelBuilder(network, scenario, out).run();
  ListTotals totals = out.totals();
  totals.affine_in_batch = out.linear();
  const bool rows = out.expectations(blocks);
  if (by_rows) *by_rows = rows;
  return totals;
}

}  // namespace fathom
