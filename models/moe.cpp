// Mixture of experts in place of the MLP, integrated MoDE included.
//
//   router h -> E + E0, select k per token, dispatch to rows sorted by expert, grouped products, combine (+ shared experts)
// Declared rows are all assignments (or all slots under a capacity); no-op picks and dropped tokens are in the expectation.
#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "models/block.hpp"
#include "models/expert_loads.hpp"

namespace fathom {
namespace {

// An expectation as a fraction: exact to a part in 2^30.
Fraction near(double value) {
  constexpr std::int64_t kDenominator = std::int64_t{1} << 30;
  return make_fraction(std::llround(std::min(1.0, std::max(0.0, value)) * kDenominator), kDenominator);
}

// An expectation of rows as a share of them: multiples of 2^-30 rows are exact.
Fraction share_of_rows(double rows, std::int64_t count) {
  std::int64_t scale = std::int64_t{1} << 30;
  while (scale > 1 && count > (std::int64_t{1} << 62) / scale) scale /= 2;
  const std::int64_t den = count * scale;
  return make_fraction(std::clamp<std::int64_t>(std::llround(rows * static_cast<double>(scale)), 0, den), den);
}

Fraction times(const Fraction& a, const Fraction& b) {
  std::int64_t num = 0, den = 0;
  if (__builtin_mul_overflow(a.num, b.num, &num) || __builtin_mul_overflow(a.den, b.den, &den)) return near(a.value() * b.value());
  return make_fraction(num, den);
}

}  // namespace

// Expected distinct experts where they are not those of even loads and rows that come with the rows' own probability; else -1.
double BlockEmitter::distinct_experts(const MoeConfig& e, const Stream& stream) const {
  const bool even = e.skew == 0 && e.loads.empty();
  const bool certain = !stream.rows.routed() && e.noop_share.num == 0;
  if (e.experts == 1 || (even && (!e.capacity || certain))) return -1;
  return expected_distinct(expert_loads(e), stream.rows.count, stream.rows.probability.value());
}

Rows BlockEmitter::assignments(const MoeConfig& e, const Stream& stream, std::int64_t* capacity) const {
  const std::int64_t tokens = stream.rows.count;
  const std::int64_t per_token = std::min(e.picks, e.experts);
  const Fraction taken = times(stream.rows.probability, make_fraction(e.noop_share.den - e.noop_share.num, e.noop_share.den));
  Rows rows;
  *capacity = 0;
  if (e.capacity && tokens > 0) {
    *capacity = expert_slots(e, tokens);
    if (__builtin_mul_overflow(e.experts, *capacity, &rows.count)) refuse("the expert slots are too many", "expert_capacity");
    rows.probability = share_of_rows(expected_kept(expert_loads(e), tokens, stream.rows.probability.value(), *capacity), rows.count);
  } else {
    rows.count = tokens * per_token;
    rows.probability = taken;
    rows.each = per_token;
  }
  if (rows.routed()) rows.source = RowSource::kAssigned;
  return rows;
}

Value BlockEmitter::moe(const Value& x, const Stream& stream) {
  const MoeConfig& e = *config_.mlp->moe;
  const std::int64_t tokens = stream.rows.count;
  std::int64_t capacity = 0;
  const Rows rows = assignments(e, stream, &capacity);

  Tape::Linear router{stream.rows, width(), e.experts + e.noops, e.router_bias, DType::kF32};
  router.part = Part::kRouter;
  const Value logits = tape_.linear("moe/router", x, router);
  ExpertSelect select{stream.rows, e.experts, e.noops, e.picks, e.sigmoid, capacity, e.correction_bias};
  Operands select_inputs = {logits.at};
  const bool e_correction = e.correction_bias;
  Operand correction;
  if (e_correction) select_inputs.push_back(correction = {tape_.weight("moe/correction", 1, e.experts, false).tensor, 0});
  const Value permutation = tape_.index("moe/permutation", rows.count);
  const Value offsets = tape_.index("moe/offsets", e.experts + 1);
  const Value weights = tape_.activation("moe/weights", rows.count, 1, DType::kF32, logits.needs_grad);
  tape_.emit("moe/select", Part::kRouting, select, select_inputs, {permutation.at, weights.at, offsets.at});
  tape_.record([=, this] {
    if (!logits.needs_grad || !tape_.has_gradient(weights)) return;
    const Operand dlogits = tape_.gradient_target(logits, "moe/router/out", tokens, e.experts + e.noops).at;
    Operands sources = {logits.at, permutation.at, offsets.at, tape_.gradient(weights)};
    if (e_correction) sources.push_back(correction);
    tape_.emit_backward("moe/select", Part::kRouting, ExpertSelectBackward{select}, sources, {dlogits});
  });

  const ExpertDispatch dispatch{rows, width(), tape_.act()};
  const Value sorted = tape_.activation("moe/dispatch", rows.count, width(), tape_.act(), x.needs_grad);
  tape_.emit("moe/dispatch", Part::kRouting, dispatch, {x.at, permutation.at}, {sorted.at});
  tape_.record([=, this] {
    if (!x.needs_grad || !tape_.has_gradient(sorted)) return;
    const Tape::Target dx = tape_.gradient_target(x, "moe/in", tokens, width());
    tape_.emit_backward("moe/dispatch", Part::kRouting, ExpertDispatchBackward{dispatch, tokens, dx.accumulate}, {tape_.gradient(sorted), permutation.at}, {dx.at});
  });

  Tape::Linear grouped;
  grouped.rows = rows;
  grouped.part = Part::kExperts;
  grouped.experts = e.experts;
  grouped.tokens = tokens;
  grouped.picks = std::min(e.picks, e.experts);
  grouped.capacity = capacity;
  grouped.expected_experts = distinct_experts(e, stream);
  grouped.offsets = offsets.at;
  const Value out = ffn("moe/gate", "moe/up", "moe/act", "moe/down", sorted, grouped, e.width, true);

  Value shared, gate;
  const bool has_shared = e.shared > 0;
  if (has_shared) {
    Tape::Linear dense;
    dense.rows = stream.rows;
    dense.part = Part::kExperts;
    shared = ffn("moe/shared/gate", "moe/shared/up", "moe/shared/act", "moe/shared/down", x, dense, e.shared * e.shared_width, false);
    if (e.shared_gate) {
      Tape::Linear one{stream.rows, width(), 1, false, DType::kF32};
      one.part = Part::kRouter;
      gate = tape_.linear("moe/shared/score", x, one);
    }
  }
  ExpertCombine combine{rows, tokens, width(), has_shared, tape_.act(), e.shared_gate};
  Operands inputs = {out.at, permutation.at, weights.at};
  if (has_shared) inputs.push_back(shared.at);
  if (e.shared_gate) inputs.push_back(gate.at);
  const Value y = tape_.activation("moe/combine", tokens, width(), tape_.act(), out.needs_grad || shared.needs_grad || weights.needs_grad);
  tape_.emit("moe/combine", Part::kRouting, combine, inputs, {y.at});
  tape_.record([=, this] {
    if (!tape_.has_gradient(y)) return;
    const Operand dy = tape_.gradient(y);
    Operands sources = {dy, out.at, permutation.at, weights.at};
    Operands targets = {tape_.gradient_target(out, "moe/down/out", rows.count, width()).at};
    const Operand dweights = tape_.tensor("moe/weights.d", Role::kActivation, Scope::kLayer, rows.count, 1, DType::kF32);
    tape_.set_gradient(weights, dweights);
    targets.push_back(dweights);
    if (e.shared_gate) {
      sources.push_back(shared.at);
      sources.push_back(gate.at);
      targets.push_back(tape_.gradient_target(shared, "moe/shared/out", tokens, width()).at);
      const Operand dgate = tape_.tensor("moe/shared/score.d", Role::kActivation, Scope::kLayer, tokens, 1, tape_.act());
      tape_.set_gradient(gate, dgate);
      targets.push_back(dgate);
    } else if (has_shared) {
      tape_.set_gradient(shared, dy);
    }
    tape_.emit_backward("moe/combine", Part::kRouting, ExpertCombineBackward{combine}, sources, targets);
  });
  return y;
}

}  // namespace fathom
