#include "lib/predict/work.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lib/cost_rules.hpp"

namespace fathom {
namespace {

constexpr std::array<std::string_view, kOpClasses> kNames = {"gemm",   "attention", "norm",    "activation", "residual",  "rope", "router",
                                                             "select", "gather",    "scatter", "embedding",  "kv_append", "loss", "optimizer"};

struct ClassOf {
  OpClass operator()(const Embedding&) const { return OpClass::kEmbedding; }
  OpClass operator()(const EmbeddingBackward&) const { return OpClass::kEmbedding; }
  OpClass operator()(const RmsNorm&) const { return OpClass::kNorm; }
  OpClass operator()(const LayerNorm&) const { return OpClass::kNorm; }
  OpClass operator()(const RmsNormBackward&) const { return OpClass::kNorm; }
  OpClass operator()(const LayerNormBackward&) const { return OpClass::kNorm; }
  OpClass operator()(const Gemm&) const { return OpClass::kGemm; }
  OpClass operator()(const Rope&) const { return OpClass::kRope; }
  OpClass operator()(const Attention&) const { return OpClass::kAttention; }
  OpClass operator()(const AttentionBackward&) const { return OpClass::kAttention; }
  OpClass operator()(const KvAppend&) const { return OpClass::kKvAppend; }
  OpClass operator()(const Activation&) const { return OpClass::kActivation; }
  OpClass operator()(const ActivationBackward&) const { return OpClass::kActivation; }
  OpClass operator()(const AddResidual&) const { return OpClass::kResidual; }
  OpClass operator()(const RouterScore&) const { return OpClass::kRouter; }
  OpClass operator()(const RouterScoreBackward&) const { return OpClass::kRouter; }
  OpClass operator()(const Select&) const { return OpClass::kSelect; }
  OpClass operator()(const ExpertSelect&) const { return OpClass::kSelect; }
  OpClass operator()(const ExpertSelectBackward&) const { return OpClass::kSelect; }
  OpClass operator()(const GatherRows&) const { return OpClass::kGather; }
  OpClass operator()(const ExpertDispatch&) const { return OpClass::kGather; }
  OpClass operator()(const ExpertCombineBackward&) const { return OpClass::kGather; }
  OpClass operator()(const LatentHeads&) const { return OpClass::kGather; }
  OpClass operator()(const LatentHeadsBackward&) const { return OpClass::kGather; }
  OpClass operator()(const ScatterAddBackward&) const { return OpClass::kGather; }
  OpClass operator()(const ScatterAddRows&) const { return OpClass::kScatter; }
  OpClass operator()(const GatherBackward&) const { return OpClass::kScatter; }
  OpClass operator()(const ExpertCombine&) const { return OpClass::kScatter; }
  OpClass operator()(const ExpertDispatchBackward&) const { return OpClass::kScatter; }
  OpClass operator()(const CrossEntropy&) const { return OpClass::kLoss; }
  OpClass operator()(const RouterLoss&) const { return OpClass::kLoss; }
  OpClass operator()(const GradientNorm&) const { return OpClass::kOptimizer; }
  OpClass operator()(const AdamW&) const { return OpClass::kOptimizer; }
};

bool has_exponential(ActivationKind kind) { return kind != ActivationKind::kRelu && kind != ActivationKind::kRelu2; }

// Do Details ask for elements of this op? Most do not, and elements that nobody tells apart are counted ten times faster.
struct AsksForElements {
  bool operator()(const Attention&) const { return true; }
  bool operator()(const AttentionBackward&) const { return true; }
  bool operator()(const Activation&) const { return true; }
  bool operator()(const ActivationBackward&) const { return true; }
  bool operator()(const CrossEntropy&) const { return true; }
  bool operator()(const Select&) const { return true; }
  bool operator()(const ExpertSelect&) const { return true; }
  bool operator()(const auto&) const { return false; }
};

// Exponentials, selections, arithmetic type and access pattern: what the cost does not say.
struct Details {
  const Cost* cost;  // null where no element is asked for
  OpWork& work;

  double elements(ElementKind kind) const { return (*cost)[kind].to_double(); }
  void stream(DType act, Access access = Access::kCopy) const {
    work.dtype = act == DType::kF64 ? DType::kF64 : DType::kF32;  // vector kernels compute in f32 whatever they store
    work.access = access;
  }
  void operator()(const Gemm& op) const {
    work.dtype = op.act;
    work.access = Access::kRead;
  }
  void operator()(const Attention& op) const {
    work.dtype = op.act;
    work.access = Access::kRead;
    work.exponentials = elements(ElementKind::kSoftmax);
  }
  void operator()(const AttentionBackward& op) const {
    (*this)(op.forward);
    work.exponentials = elements(ElementKind::kSoftmax);
  }
  void operator()(const Activation& op) const {
    stream(op.act);
    work.exponentials = has_exponential(op.kind) ? elements(ElementKind::kActivation) : 0;
  }
  void operator()(const ActivationBackward& op) const { (*this)(op.forward); }
  void operator()(const CrossEntropy& op) const {
    stream(op.act, op.gradient ? Access::kUpdate : Access::kRead);
    work.exponentials = elements(ElementKind::kCrossEntropy);
  }
  void operator()(const RouterLoss&) const { work.exponentials = work.rows; }
  void operator()(const Select& op) const {
    work.candidates = op.rule == RoutingRule::kTopK ? elements(ElementKind::kSelect) : 0;
    work.lanes = static_cast<double>(op.sequences);
  }
  void operator()(const ExpertSelect& op) const {
    work.exponentials = elements(ElementKind::kRouterProbability);
    work.lanes = static_cast<double>(std::max<std::int64_t>(1, op.rows.count));
  }
  void operator()(const Embedding& op) const { stream(op.act, Access::kGather); }
  void operator()(const GatherRows& op) const { stream(op.act, Access::kGather); }
  void operator()(const ExpertDispatch& op) const { stream(op.act, Access::kGather); }
  void operator()(const LatentHeads& op) const { stream(op.act); }
  void operator()(const LatentHeadsBackward& op) const { stream(op.forward.act); }
  void operator()(const ExpertCombine& op) const { stream(op.act, Access::kGather); }
  void operator()(const Rope& op) const { stream(op.act, Access::kUpdate); }
  void operator()(const ScatterAddRows& op) const { stream(op.act, Access::kUpdate); }
  void operator()(const GatherBackward& op) const { stream(op.forward.act, Access::kUpdate); }
  void operator()(const AdamW& op) const { stream(op.weight, Access::kUpdate); }
  void operator()(const GradientNorm& op) const { stream(op.grad, Access::kRead); }
  void operator()(const RouterScore& op) const { stream(op.act, Access::kRead); }
  void operator()(const auto&) const {}
};

}  // namespace

std::string_view op_class_name(OpClass c) { return kNames[static_cast<size_t>(c)]; }

OpClass op_class(const OpSpec& spec) { return std::visit(ClassOf{}, spec); }

OpWork work_of(const OpSpec& spec, const Executed& executed) {
  OpWork work;
  work.rows = static_cast<double>(executed.rows);
  const auto take = [&](const auto& cost, const Cost* elements) {
    work.flops = cost.flops.to_double() + cost.flops_recompute.to_double();
    work.read = cost.read.to_double();
    work.written = cost.written.to_double();
    std::visit(Details{elements, work}, spec);
  };
  if (std::visit(AsksForElements{}, spec)) {
    const Cost cost = cost_at(spec, executed);
    take(cost, &cost);
  } else {
    take(plain_cost_at(spec, executed), nullptr);
  }
  return work;
}

Executed sized(const OpSpec& spec, std::int64_t rows) {
  Executed size = declared(spec);
  const std::int64_t all = rows_of(spec).count;
  if (rows >= all || all == 0) return size;
  size.rows = std::max<std::int64_t>(rows, 0);
  if (size.rows == 0) {
    size.pairs = 0;
    size.keys = size.experts = 0;
    return size;
  }
  if (const auto* gemm = std::get_if<Gemm>(&spec); gemm && gemm->experts > 1) {
    const std::int64_t picks = std::max<std::int64_t>(1, gemm->picks);
    double distinct = expected_distinct_experts(gemm->experts, picks, std::max<std::int64_t>(1, rows / picks));
    if (gemm->expected_experts >= 0) distinct = std::min(distinct, gemm->expected_experts);  // uneven loads
    size.experts = std::clamp<std::int64_t>(std::llround(distinct), 1, std::min(gemm->experts, rows));
  }
  const Attention* attention = std::get_if<Attention>(&spec);
  if (const auto* backward = std::get_if<AttentionBackward>(&spec)) attention = &backward->forward;
  if (attention) {
    // `rows` queries spread over the sequences; each sees itself, the executed ones before it, and its share of the past.
    const double sequences = static_cast<double>(std::max<std::int64_t>(1, attention->sequences));
    const double queries = static_cast<double>(all) / sequences;
    const double n = static_cast<double>(rows), share = n / static_cast<double>(all);
    const double each = n / sequences;
    double pairs = n;
    if (queries > 1) pairs = attention->mask.kind == MaskKind::kFull ? n * each : n * (each + 1) / 2;
    double keys = n;
    if (attention->cached) {
      const double past = static_cast<double>(attention->past) * attention->key_share.value();
      const double any = queries <= 1 ? n : sequences * (1 - std::pow(1 - share, queries));
      pairs += n * past;
      keys += any * past;
    }
    // With a window or chunk, no more than the declared share per query.
    size.pairs = static_cast<u128>(std::llround(std::min(pairs, to_double(size.pairs))));
    size.keys = std::llround(std::min(keys, static_cast<double>(size.keys)));
  }
  return size;
}

}  // namespace fathom
