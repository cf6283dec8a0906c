#include "lib/cost.hpp"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

using E = ElementKind;

u128 size_of(DType type) { return static_cast<u128>(dtype_bytes(type)); }
constexpr u128 kF32Bytes = 4;
constexpr u128 kIndexBytes = 4;

// Cost rule of each op kind at an executed size. `n` is the executed row count as u128.
struct Rule {
  const Executed& x;
  u128 n = static_cast<u128>(x.rows);

  Cost operator()(const Embedding& op) const {
    Cost cost;
    const u128 cells = checked_mul(n, static_cast<u128>(op.width));
    cost[E::kEmbedding] = Elements(op.learned_positions ? 2 * cells : cells);
    // Rows of the table are an upper bound on distinct rows: tokens may repeat (SPEC_COUNT 8).
    cost.read = Bytes(n * kIndexBytes + cells * size_of(op.act) * (op.learned_positions ? 2 : 1));
    cost.written = Bytes(cells * size_of(op.act));
    return cost;
  }
  Cost norm(u128 cells, u128 stats, bool has_stats, u128 parameters, DType act) const {
    Cost cost;
    cost[E::kNorm] = Elements(cells);
    cost.read = Bytes((cells + (n ? parameters : 0)) * size_of(act));
    cost.written = Bytes(cells * size_of(act) + (has_stats ? stats * kF32Bytes : 0));
    return cost;
  }
  Cost operator()(const RmsNorm& op) const {
    return norm(product(n, op.groups, op.width), product(n, op.groups), op.stats, static_cast<u128>(op.width), op.act);
  }
  Cost operator()(const LayerNorm& op) const {
    return norm(product(n, op.width), 2 * n, op.stats, static_cast<u128>(op.width) * (op.bias ? 2 : 1), op.act);
  }
  Cost operator()(const Gemm& op) const {
    Cost cost;
    const u128 in = static_cast<u128>(op.in);
    const u128 out = static_cast<u128>(op.out);
    cost.flops = Flops(checked_mul(2, product(n, in, out)));
    const u128 sets = op.experts > 1 ? static_cast<u128>(x.experts) : (n ? 1 : 0);
    const u128 weight = checked_mul(sets, checked_mul(in, out));
    const u128 x_cells = checked_mul(n, in);
    const u128 y_cells = checked_mul(n, out);
    switch (op.role) {
      case GemmRole::kForward:
        cost.read = Bytes(x_cells * size_of(op.act) + weight * size_of(op.weight) + (op.bias ? sets * out * size_of(op.weight) : 0));
        cost.written = Bytes(y_cells * size_of(op.result));
        if (op.accumulate) cost.read += cost.written;
        if (op.bias) cost[E::kBias] = Elements(y_cells);
        break;
      case GemmRole::kInputGradient:
        cost.read = Bytes(y_cells * size_of(op.act) + weight * size_of(op.weight));
        cost.written = Bytes(x_cells * size_of(op.result));
        if (op.accumulate) cost.read += cost.written;
        break;
      case GemmRole::kWeightGradient:
        cost.read = Bytes((x_cells + y_cells) * size_of(op.act));
        cost.written = Bytes((weight + (op.bias ? sets * out : 0)) * size_of(op.result));
        if (op.accumulate) cost.read += cost.written;
        if (op.bias) cost[E::kBias] = Elements(y_cells);
        break;
    }
    return cost;
  }
  Cost operator()(const Rope& op) const {
    Cost cost;
    const u128 cells = product(n, op.heads, op.width);
    cost[E::kRope] = Elements(cells);
    cost.read = Bytes(cells * size_of(op.act) + n * kIndexBytes);
    cost.written = Bytes(cells * size_of(op.act));
    return cost;
  }
  // Key and value elements per cached row and KV head.
  static u128 kv_width(const Attention& op) {
    return checked_mul(static_cast<u128>(op.kv_heads), static_cast<u128>(op.shared_kv ? op.qk_dim : op.qk_dim + op.v_dim));
  }
  Cost operator()(const Attention& op) const {
    Cost cost;
    const u128 per_pair = 2 * static_cast<u128>(op.heads) * static_cast<u128>(op.qk_dim + op.v_dim);
    cost.flops = Flops(checked_mul(per_pair, x.pairs));
    cost[E::kSoftmax] = Elements(checked_mul(static_cast<u128>(op.heads), x.pairs));
    cost.read = Bytes(product(n, op.heads, op.qk_dim) * size_of(op.act) +
                      checked_mul(static_cast<u128>(x.keys), kv_width(op)) * size_of(op.cached ? op.kv : op.act));
    cost.written = Bytes(product(n, op.heads, op.v_dim) * size_of(op.act) + (op.lse ? product(n, op.heads) * kF32Bytes : 0));
    return cost;
  }
  Cost operator()(const KvAppend& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    cost[E::kKvAppend] = Elements(cells);
    cost.read = Bytes(cells * size_of(op.act));
    cost.written = Bytes(cells * size_of(op.kv));
    return cost;
  }
  Cost operator()(const Activation& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    cost[E::kActivation] = Elements(cells);
    if (op.gated) cost[E::kGateProduct] = Elements(cells);
    cost.read = Bytes(cells * size_of(op.act) * (op.gated ? 2 : 1));
    cost.written = Bytes(cells * size_of(op.act));
    return cost;
  }
  Cost operator()(const AddResidual& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    cost[E::kResidual] = Elements(cells);
    cost.read = Bytes(2 * cells * size_of(op.act));
    cost.written = Bytes(cells * size_of(op.act));
    return cost;
  }
  Cost operator()(const RouterScore& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    cost.flops = Flops(2 * cells);
    cost[E::kRouterProbability] = Elements(n);
    if (op.bias) cost[E::kBias] = Elements(n);
    cost.read = Bytes(cells * size_of(op.act) + (n ? static_cast<u128>(op.width) * size_of(op.act) : 0) + (op.bias && n ? kF32Bytes : 0));
    cost.written = Bytes(n * kF32Bytes);
    return cost;
  }
  Cost operator()(const Select& op) const {
    Cost cost;
    const u128 candidates = product(op.sequences, op.length);
    cost[E::kSelect] = Elements(candidates);
    cost.read = Bytes(candidates * kF32Bytes);
    cost.written = Bytes(2 * n * kIndexBytes);  // row indices and original positions
    return cost;
  }
  Cost operator()(const GatherRows& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    cost[E::kGather] = Elements(cells);
    cost.read = Bytes(cells * size_of(op.act) + n * kIndexBytes);
    cost.written = Bytes(cells * size_of(op.act));
    return cost;
  }
  Cost operator()(const ScatterAddRows& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    if (op.gate.kind != GateKind::kNone) cost[E::kGate] = Elements(cells);
    cost[E::kScatter] = Elements(cells);
    cost.read = Bytes(2 * cells * size_of(op.act) + n * (kIndexBytes + kF32Bytes));
    cost.written = Bytes(cells * size_of(op.act));
    return cost;
  }
  Cost operator()(const ExpertSelect& op) const {
    Cost cost;
    const u128 logits = product(n, op.experts + op.noops);
    cost[E::kRouterProbability] = Elements(logits);
    cost[E::kSelect] = Elements(logits);
    cost.read = Bytes(logits * kF32Bytes);
    cost.written = Bytes(product(n, op.picks) * (2 * kIndexBytes) + static_cast<u128>(op.experts + 1) * kIndexBytes);
    return cost;
  }
  Cost operator()(const ExpertDispatch& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    cost[E::kGather] = Elements(cells);
    cost.read = Bytes(cells * size_of(op.act) + n * kIndexBytes);
    cost.written = Bytes(cells * size_of(op.act));
    return cost;
  }
  Cost operator()(const ExpertCombine& op) const {
    Cost cost;
    const u128 cells = product(n, op.width);
    const u128 result = product(op.tokens, op.width);
    cost[E::kGate] = Elements(cells);
    cost[E::kScatter] = Elements(cells);
    cost.read = Bytes((cells + (op.shared ? result : 0)) * size_of(op.act) + n * (kIndexBytes + kF32Bytes));
    cost.written = Bytes(result * size_of(op.act));
    return cost;
  }
  Cost operator()(const CrossEntropy& op) const {
    Cost cost;
    const u128 cells = product(n, op.vocab);
    cost[E::kCrossEntropy] = Elements(cells);
    cost.read = Bytes(cells * size_of(op.act) + n * kIndexBytes);
    cost.written = Bytes(kF32Bytes + (op.gradient ? cells * size_of(op.act) : 0));
    return cost;
  }
  Cost operator()(const RouterLoss&) const {
    Cost cost;
    cost[E::kRouterProbability] = Elements(n);
    cost.read = Bytes(n * (kF32Bytes + kIndexBytes));
    cost.written = Bytes(n * kF32Bytes + kF32Bytes);
    return cost;
  }

  // Backward of a norm: reads x, dy (and dx when it accumulates), writes dx and the parameter gradients.
  Cost norm_backward(u128 cells, u128 stats, u128 parameters, bool accumulate, DType act) const {
    Cost cost;
    cost[E::kNorm] = Elements(cells);
    cost.read = Bytes(cells * size_of(act) * (accumulate ? 3 : 2) + stats * kF32Bytes + parameters * size_of(act));
    cost.written = Bytes((cells + parameters) * size_of(act));
    return cost;
  }
  Cost operator()(const RmsNormBackward& op) const {
    const RmsNorm& f = op.forward;
    return norm_backward(product(n, f.groups, f.width), product(n, f.groups), static_cast<u128>(f.width), op.accumulate, f.act);
  }
  Cost operator()(const LayerNormBackward& op) const {
    const LayerNorm& f = op.forward;
    return norm_backward(product(n, f.width), 2 * n, static_cast<u128>(f.width) * (f.bias ? 2 : 1), op.accumulate, f.act);
  }
  Cost operator()(const AttentionBackward& op) const {
    const Attention& f = op.forward;
    Cost cost = (*this)(f);
    // dV, dP, dQ, dK: twice the forward; a fused kernel repeats QK^T (SPEC_COUNT 6).
    cost.flops = cost.flops * 2;
    cost.flops_recompute = Flops(product(2, f.heads, f.qk_dim, x.pairs));
    const u128 q = product(n, f.heads, f.qk_dim);
    const u128 o = product(n, f.heads, f.v_dim);
    const u128 kv = checked_mul(static_cast<u128>(x.keys), kv_width(f));
    cost.read = Bytes((q + kv + 2 * o) * size_of(f.act) + product(n, f.heads) * kF32Bytes);
    cost.written = Bytes((q + kv) * size_of(f.act));
    return cost;
  }
  Cost operator()(const ActivationBackward& op) const {
    const Activation& f = op.forward;
    Cost cost;
    const u128 cells = product(n, f.width);
    cost[E::kActivation] = Elements(cells);
    if (f.gated) cost[E::kGateProduct] = Elements(cells);
    cost.read = Bytes(cells * size_of(f.act) * (f.gated ? 3 : 2));
    cost.written = Bytes(cells * size_of(f.act) * (f.gated ? 2 : 1));
    return cost;
  }
  Cost operator()(const ScatterAddBackward& op) const {
    const ScatterAddRows& f = op.forward;
    Cost cost;
    const u128 cells = product(n, f.width);
    if (f.gate.kind != GateKind::kNone) cost[E::kGate] = Elements(2 * cells);  // df = g dy, and ds = <dy, f>
    cost[E::kGather] = Elements(cells);
    cost.read = Bytes(2 * cells * size_of(f.act) + n * (kIndexBytes + kF32Bytes));
    cost.written = Bytes(cells * size_of(f.act) + n * kF32Bytes);
    return cost;
  }
  Cost operator()(const GatherBackward& op) const {
    const GatherRows& f = op.forward;
    Cost cost;
    const u128 cells = product(n, f.width);
    cost[E::kScatter] = Elements(cells);
    cost.read = Bytes(2 * cells * size_of(f.act) + n * kIndexBytes);
    cost.written = Bytes(cells * size_of(f.act));
    return cost;
  }
  Cost operator()(const RouterScoreBackward& op) const {
    const u128 width = static_cast<u128>(op.forward.width);
    const u128 inputs = op.input_rows == op.weight_rows ? n : static_cast<u128>(op.input_rows.count);
    Cost cost;
    cost.flops = Flops(checked_mul(2 * width, checked_add(n, inputs)));
    cost.read = Bytes((checked_mul(n, width) + checked_mul(inputs, width) + width) * size_of(op.forward.act) +
                      (n + (op.detached_lambda > 0 ? inputs : 0)) * kF32Bytes);
    cost.written = Bytes((checked_mul(inputs, width) + width) * size_of(op.forward.act));
    return cost;
  }
  Cost operator()(const ExpertSelectBackward& op) const {
    const ExpertSelect& f = op.forward;
    Cost cost;
    const u128 logits = product(n, f.experts + f.noops);
    cost[E::kRouterProbability] = Elements(logits);
    cost.read = Bytes((logits + product(n, f.picks)) * kF32Bytes);
    cost.written = Bytes(logits * kF32Bytes);
    return cost;
  }
  Cost operator()(const ExpertCombineBackward& op) const {
    const ExpertCombine& f = op.forward;
    Cost cost;
    const u128 cells = product(n, f.width);
    cost[E::kGate] = Elements(2 * cells);
    cost[E::kGather] = Elements(cells);
    cost.read = Bytes((cells + product(f.tokens, f.width)) * size_of(f.act) + n * (kIndexBytes + kF32Bytes));
    cost.written = Bytes(cells * size_of(f.act) + n * kF32Bytes);
    return cost;
  }
  Cost operator()(const ExpertDispatchBackward& op) const {
    const ExpertDispatch& f = op.forward;
    Cost cost;
    const u128 cells = product(n, f.width);
    const u128 result = product(op.tokens, f.width);
    cost[E::kScatter] = Elements(cells);
    cost.read = Bytes((cells + (op.accumulate ? result : 0)) * size_of(f.act) + n * kIndexBytes);
    cost.written = Bytes(result * size_of(f.act));
    return cost;
  }
  Cost operator()(const EmbeddingBackward& op) const {
    const Embedding& f = op.forward;
    Cost cost;
    const u128 cells = product(n, f.width);
    const u128 targets = f.learned_positions ? 2 : 1;
    cost[E::kEmbedding] = Elements(cells * targets);
    cost.read = Bytes(cells * size_of(f.act) * (1 + targets) + n * kIndexBytes);
    cost.written = Bytes(cells * size_of(f.act) * targets);
    return cost;
  }
  Cost operator()(const GradientNorm& op) const {
    Cost cost;
    cost[E::kOptimizer] = Elements(static_cast<u128>(op.params));
    cost.read = Bytes(static_cast<u128>(op.params) * size_of(op.grad));
    cost.written = Bytes(kF32Bytes);
    return cost;
  }
  Cost operator()(const AdamW& op) const {
    Cost cost;
    const u128 p = static_cast<u128>(op.params);
    cost[E::kOptimizer] = Elements(checked_mul(15, p));  // SPEC_COUNT 6
    const bool master = op.weight != DType::kF32;
    cost.read = Bytes(checked_mul(p, size_of(op.grad) + 12));
    cost.written = Bytes(checked_mul(p, 12 + (master ? size_of(op.weight) : 0)));
    return cost;
  }
};

// E[n (n+1) / 2] for n ~ Binomial(count, p): pairs of a causally masked, randomly selected subset of one sequence.
double expected_causal_pairs(double count, double p) { return (count * p * (1 - p) + count * p * count * p + count * p) / 2; }

}  // namespace

std::string_view element_name(ElementKind kind) {
  constexpr std::array<std::string_view, kElementKinds> kNames = {
      "norm", "softmax", "activation", "gate_product", "bias", "residual", "rope", "router_probability",
      "select", "gather", "gate", "scatter", "embedding", "kv_append", "cross_entropy", "optimizer"};
  return kNames[static_cast<size_t>(kind)];
}

Elements Cost::elements_total() const {
  Elements sum;
  for (const Elements& each : elements) sum += each;
  return sum;
}

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  flops_recompute += other.flops_recompute;
  for (int i = 0; i < kElementKinds; ++i) elements[static_cast<size_t>(i)] += other.elements[static_cast<size_t>(i)];
  read += other.read;
  written += other.written;
  return *this;
}

Cost operator*(const Cost& cost, u128 times) {
  Cost result = cost;
  result.flops = cost.flops * times;
  result.flops_recompute = cost.flops_recompute * times;
  for (Elements& each : result.elements) each = each * times;
  result.read = cost.read * times;
  result.written = cost.written * times;
  return result;
}

Executed declared(const OpSpec& spec) {
  Executed executed;
  executed.rows = rows_of(spec).count;
  const auto attention = [&](const Attention& op) {
    executed.pairs = op.pairs;
    executed.keys = op.keys;
  };
  if (const auto* op = std::get_if<Attention>(&spec)) attention(*op);
  if (const auto* op = std::get_if<AttentionBackward>(&spec)) attention(op->forward);
  if (const auto* op = std::get_if<Gemm>(&spec)) executed.experts = std::min(op->experts, op->rows.count);
  return executed;
}

Cost declared_cost(const OpSpec& spec) { return cost_at(spec, declared(spec)); }

Cost cost_at(const OpSpec& spec, const Executed& executed) { return std::visit(Rule{executed}, spec); }

ExpectedCost& ExpectedCost::operator+=(const ExpectedCost& other) {
  rows += other.rows;
  flops += other.flops;
  flops_recompute += other.flops_recompute;
  elements += other.elements;
  read += other.read;
  written += other.written;
  return *this;
}

ExpectedCost operator*(ExpectedCost cost, double times) {
  cost.rows *= times;
  cost.flops *= times;
  cost.flops_recompute *= times;
  cost.elements *= times;
  cost.read *= times;
  cost.written *= times;
  return cost;
}

double expected_distinct_experts(std::int64_t experts, std::int64_t picks, std::int64_t tokens) {
  if (experts <= 0) return 0;
  const double share = static_cast<double>(picks) / static_cast<double>(experts);
  // -expm1(T log1p(-share)) keeps digits when share * T is tiny.
  return share >= 1 ? static_cast<double>(tokens > 0 ? experts : 0)
                    : -static_cast<double>(experts) * std::expm1(static_cast<double>(tokens) * std::log1p(-share));
}

ExpectedCost expected_cost(const OpSpec& spec) {
  const Executed all = declared(spec);
  const auto as_double = [](const Cost& cost, double rows) {
    return ExpectedCost{rows, cost.flops.to_double(), cost.flops_recompute.to_double(), cost.elements_total().to_double(),
                        cost.read.to_double(), cost.written.to_double()};
  };
  const Rows rows = rows_of(spec);
  const auto* gemm = std::get_if<Gemm>(&spec);
  const bool grouped = gemm && gemm->experts > 1;
  if (!rows.routed() && !grouped) return as_double(cost_at(spec, all), static_cast<double>(all.rows));

  // Every rule is affine in (rows, pairs, keys, experts) once at least one row runs: cost = fixed * [n > 0] + slopes * sizes.
  const double p = rows.probability.value();
  const double count = static_cast<double>(rows.count);
  const double any = rows.count == 0 ? 0.0 : (p >= 1 ? 1.0 : -std::expm1(count * std::log1p(-p)));
  const ExpectedCost none = as_double(cost_at(spec, Executed{}), 0);
  const ExpectedCost one = as_double(cost_at(spec, Executed{1, 0, 0, 0}), 1);
  const ExpectedCost two = as_double(cost_at(spec, Executed{2, 0, 0, 0}), 2);
  const ExpectedCost slope = {1, two.flops - one.flops, two.flops_recompute - one.flops_recompute, two.elements - one.elements,
                              two.read - one.read, two.written - one.written};
  ExpectedCost result = none;
  result.rows = 0;
  const auto add = [&](const ExpectedCost& unit, double times) { result += unit * times; };
  add(slope, count * p);
  const ExpectedCost fixed = {0, one.flops - slope.flops - none.flops, one.flops_recompute - slope.flops_recompute - none.flops_recompute,
                              one.elements - slope.elements - none.elements, one.read - slope.read - none.read,
                              one.written - slope.written - none.written};
  add(fixed, any);
  if (grouped) {
    const ExpectedCost expert = as_double(cost_at(spec, Executed{1, 0, 0, 1}), 0);
    const ExpectedCost unit = {0, 0, 0, 0, expert.read - one.read, expert.written - one.written};
    const double tokens = gemm->tokens > 0 ? static_cast<double>(gemm->tokens) : count / std::max<double>(1, static_cast<double>(gemm->picks));
    const double share = static_cast<double>(gemm->picks) * p / static_cast<double>(gemm->experts);
    const double distinct = share >= 1 ? static_cast<double>(gemm->experts)
                                       : -static_cast<double>(gemm->experts) * std::expm1(tokens * std::log1p(-share));
    add(unit, gemm->picks > 0 ? distinct : static_cast<double>(all.experts));
  }
  const Attention* attention = std::get_if<Attention>(&spec);
  if (const auto* backward = std::get_if<AttentionBackward>(&spec)) attention = &backward->forward;
  if (attention) {
    const ExpectedCost pair = as_double(cost_at(spec, Executed{0, 1, 0, 0}), 0);
    const ExpectedCost key = as_double(cost_at(spec, Executed{0, 0, 1, 0}), 0);
    const double sequences = static_cast<double>(attention->sequences);
    const double queries = count / std::max(1.0, sequences);
    double pairs = sequences * expected_causal_pairs(queries, p);
    double keys = sequences * queries * p;
    if (attention->cached) {  // each executed query also sees the share of the past that this block holds
      const double past = static_cast<double>(attention->past) * attention->key_share.value();
      const double any_query = p >= 1 ? 1.0 : -std::expm1(queries * std::log1p(-p));
      pairs += sequences * queries * p * past;
      keys += sequences * any_query * past;
    }
    add(pair, pairs);
    add(key, keys);
  }
  return result;
}

}  // namespace fathom
