#include "models/count/activation_formula.hpp"

#include "lib/memory_parts.hpp"
#include "models/builder.hpp"
#include "models/pairs.hpp"

namespace fathom {
namespace {

std::string missing(const Network& network, const Scenario& scenario) {
  if (scenario.phase != Phase::kTrain) return "it describes training";
  if (scenario.recompute != Recompute::kNone) return "it describes a step without recomputation";
  if (network.kinds.size() != 1 || network.has_routes() || network.lora || network.mtp > 0) return "it has one kind of plain layer";
  const BlockConfig& block = network.kinds[0];
  if (!block.attention || !block.mlp || block.mlp->moe || block.attention->mla) return "it has one kind of plain layer";
  return {};
}

// What a network of `count` layers keeps.
Rational saved(Network network, const Scenario& scenario, std::size_t count) {
  network.layers.assign(count, 0);
  network.weights_of.clear();
  return Rational::of(memory_parts(build(network, scenario)).saved.value());
}

}  // namespace

ActivationFormula activation_formula(const Network& network, const Scenario& scenario) {
  ActivationFormula result;
  result.unavailable = missing(network, scenario);
  if (!result.unavailable.empty()) return result;
  const AttentionConfig& a = *network.kinds[0].attention;
  const MlpConfig& mlp = *network.kinds[0].mlp;
  const Rational rows = Rational(scenario.batch) * scenario.length, h = network.width, n = a.heads;
  const Rational square = rows * scenario.length * n;  // scores of all heads
  const Rational width = static_cast<std::int64_t>(dtype_bytes(scenario.dtype));
  result.published = Rational(34) * rows * h + Rational(5) * square;
  result.counted = saved(network, scenario, 2) - saved(network, scenario, 1);
  Rational at = result.published;
  const auto step = [&](const Rational& bytes, std::string text) {
    if (bytes.zero()) return;
    result.reasons.push_back({std::move(text), bytes});
    at += bytes;
  };
  step(-(Rational(2) * rows * h), "no dropout behind attention and MLP: two masks of 1 byte per element");
  step(-(Rational(3) * square), "no dropout of probabilities: a mask of 1 byte and their dropped copy of 2");
  if (scenario.fusions.attention) {
    step(-(Rational(2) * square), "fused attention keeps no probabilities");
    step(Rational(4) * rows * n, "and one f32 log-sum-exp per row and head instead");
  } else {
    const Mask mask{scenario.full_mask ? MaskKind::kFull : MaskKind::kCausal, a.window, a.chunk};
    const Rational pairs = Rational::of(visible_pairs(mask, scenario.length, 0)) * scenario.batch * n;
    step(Rational(2) * (pairs - square), "probabilities of visible pairs alone");
    step((width - Rational(2)) * pairs, "probabilities in the compute type");
  }
  const bool layer_norm = network.norm == NormKind::kLayer;
  step(Rational(layer_norm ? 16 : 8) * rows, "f32 statistics of two norms");
  const Rational nd = n * a.head_dim, md = Rational(a.kv_heads) * a.head_dim;
  step(Rational(2) * rows * (nd + nd + Rational(2) * md - Rational(4) * h), "heads x head size of queries, keys, values and their result in place of 4h");
  step(Rational(2) * rows * (Rational(mlp.gated ? 3 : 2) * mlp.width - Rational(8) * h), mlp.gated ? "gate, up and product of this MLP in place of 8h" : "input and result of this MLP's activation in place of 8h");
  const Rational elements = Rational(4) * h + nd + nd + Rational(2) * md + Rational(mlp.gated ? 3 : 2) * mlp.width;
  step((width - Rational(2)) * rows * elements, "elements of the compute type in place of 2 bytes");
  step(result.counted - at, "further tensors of this architecture (norms of queries and keys, norms behind the parts, shared inputs)");
  return result;
}

}  // namespace fathom
