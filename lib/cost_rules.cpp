// The cost rule of every op kind: FLOPs, elements and bytes, forward and backward.
#include "lib/cost_rules.hpp"

#include <algorithm>

namespace fathom {
namespace {

using E = ElementKind;

u128 size_of(DType type) { return static_cast<u128>(dtype_bytes(type)); }
constexpr u128 kF32Bytes = 4;
constexpr u128 kIndexBytes = 4;

// Cost rule of each op kind at an executed size, added `times` times to a sum. `n` is the executed row count.
template <class Sum>
struct Rule {
  const Executed& x;
  u128 times;
  Sum& sum;
  u128 n = static_cast<u128>(x.rows);

  void flops(u128 value) const { sum.flops += Flops(checked_mul(value, times)); }
  void flops_recompute(u128 value) const { sum.flops_recompute += Flops(checked_mul(value, times)); }
  void elements(ElementKind kind, u128 value) const { sum[kind] += Elements(checked_mul(value, times)); }
  void read(u128 value) const { sum.read += Bytes(checked_mul(value, times)); }
  void written(u128 value) const { sum.written += Bytes(checked_mul(value, times)); }

  void operator()(const Embedding& op) const {
    const u128 cells = checked_mul(n, static_cast<u128>(op.width));
    elements(E::kEmbedding, op.learned_positions ? 2 * cells : cells);
    // Rows of the table are an upper bound on distinct rows: tokens may repeat.
    read(n * kIndexBytes + cells * size_of(op.act) * (op.learned_positions ? 2 : 1));
    written(cells * size_of(op.act));
  }
  void norm(u128 cells, u128 stats, bool has_stats, u128 parameters, DType act) const {
    elements(E::kNorm, cells);
    read((cells + (n ? parameters : 0)) * size_of(act));
    written(cells * size_of(act) + (has_stats ? stats * kF32Bytes : 0));
  }
  void operator()(const RmsNorm& op) const {
    norm(product(n, op.groups, op.width), product(n, op.groups), op.stats, product(op.gains, op.width), op.act);
    if (op.stride > 0 && op.stats) written(product(n, op.groups, op.width) * size_of(op.act));  // the copy for the backward pass
  }
  void operator()(const LayerNorm& op) const {
    norm(product(n, op.width), 2 * n, op.stats, product(op.width, op.gain + op.bias), op.act);
  }
  void operator()(const Gemm& op) const {
    const u128 in = product(op.batch, op.in);
    const u128 out = product(op.batch, op.out);
    flops(checked_mul(2, product(n, in, op.out)));
    const u128 sets = op.experts > 1 ? static_cast<u128>(x.experts) : (n ? 1 : 0);
    const u128 weight = checked_mul(sets, checked_mul(in, static_cast<u128>(op.out)));
    const u128 bias = op.bias ? checked_mul(sets, out) : 0;  // in the compute type where matrices are narrower
    const u128 x_cells = checked_mul(n, in);
    const u128 y_cells = checked_mul(n, out);
    u128 result = 0;
    switch (op.role) {
      case GemmRole::kForward:
        read((x_cells + bias) * size_of(op.act) + weight * size_of(op.weight));
        result = y_cells * size_of(op.result);
        break;
      case GemmRole::kInputGradient:
        read(y_cells * size_of(op.act) + weight * size_of(op.weight));
        result = x_cells * size_of(op.result);
        break;
      case GemmRole::kWeightGradient:
        read((x_cells + y_cells) * size_of(op.act));
        result = (weight + bias) * size_of(op.result);
        break;
    }
    written(result);
    if (op.accumulate) read(result);
    if (op.bias && op.role != GemmRole::kInputGradient) elements(E::kBias, y_cells);
  }
  void operator()(const Rope& op) const {
    const u128 cells = product(n, op.heads, op.width);
    elements(E::kRope, cells);
    read(cells * size_of(op.act) + n * kIndexBytes);
    written(cells * size_of(op.act));
  }
  // Key and value elements per cached row and KV head.
  static u128 kv_width(const Attention& op) {
    return checked_mul(static_cast<u128>(op.kv_heads), static_cast<u128>(op.shared_kv ? op.qk_dim : op.qk_dim + op.v_dim));
  }
  void operator()(const Attention& op) const { attention(op, 1); }
  // `passes`: products of the forward pass that this op amounts to.
  void attention(const Attention& op, u128 passes) const {
    const u128 per_pair = 2 * passes * static_cast<u128>(op.heads) * static_cast<u128>(op.qk_dim + op.v_dim);
    flops(checked_mul(per_pair, x.pairs));
    elements(E::kSoftmax, checked_mul(static_cast<u128>(op.heads), x.pairs));
    if (passes > 1) return;
    read(product(n, op.heads, op.qk_dim) * size_of(op.act) + checked_mul(static_cast<u128>(x.keys), kv_width(op)) * size_of(op.cached ? op.kv : op.act) +
         (op.sinks && n ? product(op.heads) * size_of(op.act) : 0) + (op.kept_positions ? static_cast<u128>(x.keys) * kIndexBytes : 0));
    written(product(n, op.heads, op.v_dim) * size_of(op.act) + (op.lse ? product(n, op.heads) * kF32Bytes : 0));
    if (op.fused) return;
    // Scores are written and read by the softmax, probabilities written and read by the second product.
    const u128 square = 2 * score_bytes(op);
    read(square);
    written(square);
  }
  // One matrix of scores, in the compute type.
  u128 score_bytes(const Attention& op) const { return checked_mul(checked_mul(static_cast<u128>(op.heads), x.pairs), size_of(op.act)); }
  // Copies: every output element is read once, the rotated key once for all heads.
  void latent_heads(const LatentHeads& op) const {
    const u128 width = static_cast<u128>(op.row_width());
    const u128 repeated = op.absorbed ? 0 : product(op.heads - 1, op.rope_dim);
    elements(E::kGather, checked_mul(n, width));
    read(checked_mul(n, checked_sub(width, repeated)) * size_of(op.act));
    written(checked_mul(n, width) * size_of(op.act));
  }
  void operator()(const LatentHeads& op) const { latent_heads(op); }
  void operator()(const LatentHeadsBackward& op) const {
    const LatentHeads& f = op.forward;
    const u128 width = static_cast<u128>(f.row_width());
    elements(E::kGather, checked_mul(n, width));
    read(checked_mul(n, width) * size_of(f.act));
    written(checked_mul(n, width - product(f.heads - 1, f.rope_dim) + product(f.rank)) * size_of(f.act));
  }
  void operator()(const KvAppend& op) const {
    const u128 cells = product(n, op.width);
    elements(E::kKvAppend, cells);
    const u128 positions = op.positions ? n * kIndexBytes : 0;
    read(cells * size_of(op.act) + positions);
    written(cells * size_of(op.kv) + positions);
  }
  void operator()(const Activation& op) const {
    const u128 cells = product(n, op.width);
    elements(E::kActivation, cells);
    if (op.gated) elements(E::kGateProduct, cells);
    read(cells * size_of(op.act) * (op.gated ? 2 : 1));
    written(cells * size_of(op.act));
  }
  void operator()(const AddResidual& op) const {
    const u128 cells = product(n, op.width);
    elements(E::kResidual, cells);
    read(2 * cells * size_of(op.act));
    written(cells * size_of(op.act));
  }
  void operator()(const RouterScore& op) const {
    const u128 cells = product(n, op.width);
    flops(2 * cells);
    elements(E::kRouterProbability, n);
    if (op.bias) elements(E::kBias, n);
    read(cells * size_of(op.act) + (n ? static_cast<u128>(op.width) * size_of(op.act) : 0) + (op.bias && n ? kF32Bytes : 0));
    written(n * kF32Bytes);
  }
  void operator()(const Select& op) const {
    const u128 candidates = product(op.sequences, op.length);
    elements(E::kSelect, candidates);
    read(candidates * kF32Bytes);
    // Row indices and original positions; with the rest, the indices of all candidates.
    written((op.rest ? candidates + n : 2 * n) * kIndexBytes);
  }
  // Rows copied by their indices.
  void gathered(std::int64_t width, DType type) const {
    const u128 cells = product(n, width);
    elements(E::kGather, cells);
    read(cells * size_of(type) + n * kIndexBytes);
    written(cells * size_of(type));
  }
  void operator()(const GatherRows& op) const { gathered(op.width, op.act); }
  void operator()(const ScatterAddRows& op) const {
    const u128 cells = product(n, op.width);
    if (op.gate.kind != GateKind::kNone) elements(E::kGate, cells);
    elements(E::kScatter, cells);
    read((op.replace ? 1 : 2) * cells * size_of(op.act) + n * (kIndexBytes + (op.gate.kind != GateKind::kNone ? kF32Bytes : 0)));
    written(cells * size_of(op.act));
  }
  void operator()(const ExpertSelect& op) const {
    const u128 logits = product(n, op.experts + op.noops);
    elements(E::kRouterProbability, logits);
    elements(E::kSelect, logits);
    read((logits + (op.correction && n ? product(op.experts) : 0)) * kF32Bytes);
    written(product(n, op.picks) * (2 * kIndexBytes) + static_cast<u128>(op.experts + 1) * kIndexBytes);
  }
  void operator()(const ExpertDispatch& op) const { gathered(op.width, op.act); }
  void operator()(const ExpertCombine& op) const {
    const u128 cells = product(n, op.width);
    const u128 result = product(op.tokens, op.width);
    elements(E::kGate, cells);
    elements(E::kScatter, cells);
    read((cells + (op.shared ? result : 0)) * size_of(op.act) + n * (kIndexBytes + kF32Bytes) + (op.shared_gate ? product(op.tokens) * kF32Bytes : 0));
    written(result * size_of(op.act));
    if (op.shared_gate) elements(E::kGate, result);
  }
  void operator()(const CrossEntropy& op) const {
    const u128 cells = product(n, op.vocab);
    elements(E::kCrossEntropy, cells);
    read(cells * size_of(op.act) + n * kIndexBytes);
    written(kF32Bytes + (op.gradient ? cells * size_of(op.act) : 0));
  }
  void operator()(const RouterLoss&) const {
    elements(E::kRouterProbability, n);
    read(n * (kF32Bytes + kIndexBytes));
    written(n * kF32Bytes + kF32Bytes);
  }

  // Backward of a norm: reads x, dy (and dx when it accumulates), writes dx and the parameter gradients.
  void norm_backward(u128 cells, u128 stats, u128 parameters, bool accumulate, DType act) const {
    elements(E::kNorm, cells);
    read(cells * size_of(act) * (accumulate ? 3 : 2) + stats * kF32Bytes + parameters * size_of(act));
    written((cells + parameters) * size_of(act));
  }
  void operator()(const RmsNormBackward& op) const {
    const RmsNorm& f = op.forward;
    norm_backward(product(n, f.groups, f.width), product(n, f.groups), product(f.gains, f.width), op.accumulate, f.act);
  }
  void operator()(const LayerNormBackward& op) const {
    const LayerNorm& f = op.forward;
    norm_backward(product(n, f.width), 2 * n, product(f.width, f.gain + f.bias), op.accumulate, f.act);
  }
  void operator()(const AttentionBackward& op) const {
    const Attention& f = op.forward;
    // dV, dP, dQ, dK: twice the forward; a fused kernel repeats QK^T.
    attention(f, 2);
    if (f.fused) flops_recompute(product(2, f.heads, f.qk_dim, x.pairs));
    const u128 q = product(n, f.heads, f.qk_dim);
    const u128 o = product(n, f.heads, f.v_dim);
    const u128 kv = checked_mul(static_cast<u128>(x.keys), kv_width(f));
    written((q + kv) * size_of(f.act));
    if (f.fused) {
      read((q + kv + 2 * o) * size_of(f.act) + product(n, f.heads) * kF32Bytes);
      return;
    }
    // dV reads the probabilities; dP is written; the softmax reads both and writes dS, which dQ and dK read.
    read((q + kv + o) * size_of(f.act) + checked_mul(5, score_bytes(f)));
    written(checked_mul(2, score_bytes(f)));
  }
  void operator()(const ActivationBackward& op) const {
    const Activation& f = op.forward;
    const u128 cells = product(n, f.width);
    elements(E::kActivation, cells);
    if (f.gated) elements(E::kGateProduct, cells);
    read(cells * size_of(f.act) * (f.gated ? 3 : 2));
    written(cells * size_of(f.act) * (f.gated ? 2 : 1));
  }
  void operator()(const ScatterAddBackward& op) const {
    const ScatterAddRows& f = op.forward;
    const u128 cells = product(n, f.width);
    const bool gated = f.gate.kind != GateKind::kNone;
    if (gated) elements(E::kGate, 2 * cells);  // df = g dy, and ds = <dy, f>
    elements(E::kGather, cells);
    read((gated ? 2 : 1) * cells * size_of(f.act) + n * (kIndexBytes + (gated ? kF32Bytes : 0)));
    written((f.replace ? 2 : 1) * cells * size_of(f.act) + (gated ? n * kF32Bytes : 0));
  }
  void operator()(const GatherBackward& op) const {
    const GatherRows& f = op.forward;
    const u128 cells = product(n, f.width);
    elements(E::kScatter, cells);
    read(2 * cells * size_of(f.act) + n * kIndexBytes);
    written(cells * size_of(f.act));
  }
  void operator()(const RouterScoreBackward& op) const {
    const u128 width = static_cast<u128>(op.forward.width);
    const u128 inputs = op.input_rows == op.weight_rows ? n : static_cast<u128>(op.input_rows.count);
    flops(checked_mul(2 * width, checked_add(n, inputs)));
    const u128 reads_inputs = op.plain ? 0 : checked_mul(inputs, width);  // adds to dx, or overwrites it
    read((checked_mul(n, width) + reads_inputs + width) * size_of(op.forward.act) + (n + (op.detached_lambda > 0 ? inputs : 0)) * kF32Bytes);
    written((checked_mul(inputs, width) + (n ? width : 0)) * size_of(op.forward.act));
  }
  void operator()(const ExpertSelectBackward& op) const {
    const ExpertSelect& f = op.forward;
    const u128 logits = product(n, f.experts + f.noops);
    elements(E::kRouterProbability, logits);
    read((logits + product(n, f.picks)) * kF32Bytes);
    written(logits * kF32Bytes);
  }
  void operator()(const ExpertCombineBackward& op) const {
    const ExpertCombine& f = op.forward;
    const u128 cells = product(n, f.width);
    elements(E::kGate, 2 * cells);
    elements(E::kGather, cells);
    const u128 result = product(f.tokens, f.width);
    read((cells + (f.shared_gate ? 2 : 1) * result) * size_of(f.act) + n * (kIndexBytes + kF32Bytes));
    written((cells + (f.shared_gate ? result : 0)) * size_of(f.act) + n * kF32Bytes);
    if (f.shared_gate) elements(E::kGate, 2 * result);
  }
  void operator()(const ExpertDispatchBackward& op) const {
    const ExpertDispatch& f = op.forward;
    const u128 cells = product(n, f.width);
    const u128 result = product(op.tokens, f.width);
    elements(E::kScatter, cells);
    read((cells + (op.accumulate ? result : 0)) * size_of(f.act) + n * kIndexBytes);
    written(result * size_of(f.act));
  }
  void operator()(const EmbeddingBackward& op) const {
    const Embedding& f = op.forward;
    const u128 cells = product(n, f.width);
    const u128 targets = f.learned_positions ? 2 : 1;
    elements(E::kEmbedding, cells * targets);
    read(cells * size_of(f.act) * (1 + targets) + n * kIndexBytes);
    written(cells * size_of(f.act) * targets);
  }
  void operator()(const GradientNorm& op) const {
    elements(E::kOptimizer, static_cast<u128>(op.params));
    read(static_cast<u128>(op.params) * size_of(op.grad));
    written(kF32Bytes);
  }
  void operator()(const AdamW& op) const {
    const u128 p = static_cast<u128>(op.params);
    elements(E::kOptimizer, checked_mul(15, p));  // touched once each by one fused update
    // The values it works on, a master copy or the weights themselves, and two f32 moments.
    const u128 updated = (op.master() ? kF32Bytes : size_of(op.weight)) + 2 * kF32Bytes;
    read(checked_mul(p, size_of(op.grad) + updated));
    written(checked_mul(p, updated + (op.master() ? size_of(op.weight) : 0)));
  }
};

}  // namespace

void add_cost(const OpSpec& spec, const Executed& executed, u128 times, Cost& sum) { std::visit(Rule<Cost>{executed, times, sum}, spec); }

PlainCost plain_cost_at(const OpSpec& spec, const Executed& executed) {
  PlainCost cost;
  std::visit(Rule<PlainCost>{executed, 1, cost}, spec);
  return cost;
}

template <class Op>
void add_declared(const Op& op, Cost& sum) {
  Executed size;
  if constexpr (std::is_same_v<Op, Attention>) {
    size = {op.rows.count, op.pairs, op.keys, 0};
  } else if constexpr (std::is_same_v<Op, AttentionBackward>) {
    size = {op.forward.rows.count, op.forward.pairs, op.forward.keys, 0};
  } else if constexpr (std::is_same_v<Op, Gemm>) {
    size = {op.rows.count, 0, 0, std::min(op.experts, op.rows.count)};
  } else if constexpr (std::is_same_v<Op, Select>) {
    size.rows = op.selected.count;
  } else if constexpr (std::is_same_v<Op, RouterScoreBackward>) {
    size.rows = op.weight_rows.count;
  } else if constexpr (requires { op.forward; }) {
    size.rows = op.forward.rows.count;
  } else if constexpr (requires { op.rows; }) {
    size.rows = op.rows.count;
  }
  Rule<Cost>{size, 1, sum}(op);
}

template void add_declared<Embedding>(const Embedding&, Cost&);
template void add_declared<RmsNorm>(const RmsNorm&, Cost&);
template void add_declared<LayerNorm>(const LayerNorm&, Cost&);
template void add_declared<Gemm>(const Gemm&, Cost&);
template void add_declared<Rope>(const Rope&, Cost&);
template void add_declared<Attention>(const Attention&, Cost&);
template void add_declared<KvAppend>(const KvAppend&, Cost&);
template void add_declared<Activation>(const Activation&, Cost&);
template void add_declared<AddResidual>(const AddResidual&, Cost&);
template void add_declared<RouterScore>(const RouterScore&, Cost&);
template void add_declared<Select>(const Select&, Cost&);
template void add_declared<GatherRows>(const GatherRows&, Cost&);
template void add_declared<ScatterAddRows>(const ScatterAddRows&, Cost&);
template void add_declared<ExpertSelect>(const ExpertSelect&, Cost&);
template void add_declared<ExpertDispatch>(const ExpertDispatch&, Cost&);
template void add_declared<ExpertCombine>(const ExpertCombine&, Cost&);
template void add_declared<CrossEntropy>(const CrossEntropy&, Cost&);
template void add_declared<RouterLoss>(const RouterLoss&, Cost&);
template void add_declared<RmsNormBackward>(const RmsNormBackward&, Cost&);
template void add_declared<LayerNormBackward>(const LayerNormBackward&, Cost&);
template void add_declared<AttentionBackward>(const AttentionBackward&, Cost&);
template void add_declared<ActivationBackward>(const ActivationBackward&, Cost&);
template void add_declared<ScatterAddBackward>(const ScatterAddBackward&, Cost&);
template void add_declared<GatherBackward>(const GatherBackward&, Cost&);
template void add_declared<RouterScoreBackward>(const RouterScoreBackward&, Cost&);
template void add_declared<ExpertSelectBackward>(const ExpertSelectBackward&, Cost&);
template void add_declared<ExpertCombineBackward>(const ExpertCombineBackward&, Cost&);
template void add_declared<ExpertDispatchBackward>(const ExpertDispatchBackward&, Cost&);
template void add_declared<EmbeddingBackward>(const EmbeddingBackward&, Cost&);
template void add_declared<GradientNorm>(const GradientNorm&, Cost&);
template void add_declared<AdamW>(const AdamW&, Cost&);
template void add_declared<LatentHeads>(const LatentHeads&, Cost&);
template void add_declared<LatentHeadsBackward>(const LatentHeadsBackward&, Cost&);

Cost cost_at(const OpSpec& spec, const Executed& executed) {
  Cost cost;
  add_cost(spec, executed, 1, cost);
  return cost;
}

}  // namespace fathom
