// The routing around a block: scores, selection, gather, gated scatter, the router's losses and their gradients (SPEC_MOD 2-6).
#include "models/block.hpp"

#include "lib/error.hpp"

namespace fathom {

Value BlockEmitter::router_scores() {
  const Route& route = *config_.route;
  Value x = x_;
  std::int64_t width = tape_.network().width;
  if (route.router == RouterKind::kMlp) throw_input("MLP routers cannot be turned into ops yet", {tape_.network().source, 0, "router"});
  const Weight w = tape_.weight("route/score/weight", 1, width, tape_.base_trainable());
  const Weight b = route.router_bias ? tape_.weight("route/score/bias", 1, 1, tape_.base_trainable()) : Weight{};
  const Value scores = tape_.activation("route/score", stream_.rows.count, 1, DType::kF32, w.gradient >= 0);
  std::vector<Operand> inputs = {x.at, {w.tensor, 0}};
  if (route.router_bias) inputs.push_back({b.tensor, 0});
  const RouterScore spec{stream_.rows, width, route.router_bias, tape_.act()};
  tape_.emit("route/score", Part::kRouter, spec, inputs, {scores.at});
  return scores;
}

void BlockEmitter::route() {
  const Route& route = *config_.route;
  const Scenario& s = tape_.scenario();
  const RoutingRule rule = s.rule();
  if (route.gate_on != GateOn::kDelta || route.part != RoutedPart::kBlock || route.kv != KvPolicy::kSelected || route.adapter > 0)
    throw_input("this kind of route cannot be turned into ops yet", {tape_.network().source, 0, "route"});
  routing_.scores = router_scores();

  const std::int64_t sequences = stream_.sequences;
  const std::int64_t length = stream_.queries;
  Stream& selected = routing_.selected;
  selected = stream_;
  const bool fixed = rule == RoutingRule::kTopK || rule == RoutingRule::kRandom;
  // Top-k needs the whole sequence: a decode step that asks for it decides by threshold.
  const bool by_count = fixed && s.phase != Phase::kDecode;
  if (by_count) {
    selected.queries = slots_of(route, length);
    selected.rows = Rows{sequences * selected.queries, {1, 1}};
  } else {
    // Threshold modes hold at most every row; each is taken with probability p.
    const Fraction declared = route.capacity ? *route.capacity : make_fraction(slots_of(route, stream_.past + length), stream_.past + length);
    selected.queries = length;
    selected.rows = Rows{sequences * length, s.participation.value_or(declared)};
    selected.key_share = selected.rows.probability;
  }
  const std::int64_t rows = selected.rows.count;
  routing_.indices = tape_.index("route/indices", rows);
  routing_.positions = tape_.index("route/positions", rows);
  routing_.counts = tape_.index("route/counts", sequences);
  selected.indices = routing_.indices;
  selected.positions = routing_.positions;
  tape_.emit("route/select", Part::kRouting, Select{sequences, length, selected.rows, fixed && !by_count ? RoutingRule::kThreshold : rule},
             {routing_.scores.at, stream_.positions.at}, {routing_.indices.at, routing_.positions.at, routing_.counts.at});

  if (tape_.training()) {
    routing_.dscores = tape_.activation("route/dscores", stream_.rows.count, 1, DType::kF32, false);
    if (route.aux_lambda > 0) {
      const Operand loss{tape_.out().tensor(label() + "/route/loss", Role::kOutput, Scope::kLayer, 1, 1, DType::kF32), 0};
      tape_.emit("route/loss", Part::kLoss, RouterLoss{stream_.rows, route.aux_lambda},
                 {routing_.scores.at, routing_.indices.at, routing_.counts.at}, {loss, routing_.dscores.at});
    }
  }
  if (route.predictor && (tape_.training() || rule == RoutingRule::kPredictor))
    throw_input("predictors cannot be turned into ops yet", {tape_.network().source, 0, "predictor"});
}

Value BlockEmitter::routed(bool replay) {
  if (!replay) route();
  const Route& route = *config_.route;
  const std::int64_t width = tape_.network().width;
  const Stream& selected = routing_.selected;
  const bool aux = route.aux_lambda > 0;
  // The gathered rows are what a routed block keeps of its input: recomputation starts from them and replays the saved indices.
  if (!replay) routing_.gathered = tape_.activation("route/gather", selected.rows.count, width, tape_.act(), x_.needs_grad || tape_.base_trainable());
  const Value gathered = routing_.gathered;
  const Value y{y_, true};

  // The router's gradient comes last in reverse order, when dscores is complete.
  tape_.record([=, this] {
    const Weight w = tape_.weight("route/score/weight", 1, width, true);
    const Weight b = route.router_bias ? tape_.weight("route/score/bias", 1, 1, true) : Weight{};
    if (w.gradient < 0) return;
    RouterScoreBackward spec{RouterScore{stream_.rows, width, route.router_bias, tape_.act()}, {}, {}, tape_.accumulate_weights};
    spec.weight_rows = aux ? stream_.rows : selected.rows;
    spec.input_rows = aux && !route.aux_detached ? stream_.rows : selected.rows;
    std::vector<Operand> targets = {{w.gradient, 0}};
    if (b.gradient >= 0) targets.push_back({b.gradient, 0});
    targets.push_back(tape_.gradient(x_));
    std::vector<Operand> sources = {y_, gathered.at, {w.tensor, 0}, routing_.dscores.at, routing_.indices.at};
    if (aux && route.aux_detached) {
      spec.detached_lambda = route.aux_lambda;
      sources.push_back(routing_.scores.at);
    }
    tape_.emit_backward("route/score", Part::kRouter, spec, sources, targets);
  });

  const GatherRows gather{selected.rows, width, tape_.act()};
  if (!replay) tape_.emit("route/gather", Part::kRouting, gather, {x_.at, routing_.indices.at}, {gathered.at});
  tape_.record([=, this] {
    tape_.emit_backward("route/gather", Part::kRouting, GatherBackward{gather}, {tape_.gradient(gathered), routing_.indices.at}, {tape_.gradient(x_)});
  });

  const Value delta = sublayers(gathered, selected, true, nullptr);
  const ScatterAddRows scatter{selected.rows, width, route.gate, tape_.act()};
  if (!replay) tape_.emit("route/scatter", Part::kRouting, scatter, {x_.at, delta.at, routing_.indices.at, routing_.scores.at}, {y_});
  tape_.record([=, this] {
    const Operand dy = tape_.gradient(y);
    tape_.set_gradient(x_, dy);  // bypass: the stream's gradient passes unchanged
    const Operand df = tape_.gradient_target(delta, "route/delta/out").first;
    tape_.emit_backward("route/scatter", Part::kRouting, ScatterAddBackward{scatter, aux}, {dy, delta.at, routing_.indices.at, routing_.scores.at},
                        {df, routing_.dscores.at});
  });
  return y;
}

}  // namespace fathom
