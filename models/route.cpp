// The routing around a block: scores, selection, gather, gated scatter, the router's losses and their gradients (arXiv 2404.02258, section 3).
//
// Which rows take part is decided once per block; what runs on them is a piece of it (the whole update, attention, or the MLP). Closures are
// recorded so that in reverse the gated scatter comes first, then the piece, then the gathers, and the router last, when dscores is complete.
#include "lib/error.hpp"
#include "models/block.hpp"

namespace fathom {
namespace {

Fraction complement(const Fraction& p) { return make_fraction(p.den - p.num, p.den); }

}  // namespace

Value BlockEmitter::router_scores(const Value& x, const Operand& block_output) {
  const Route& route = *config_.route;
  // Without a gate and an auxiliary loss no gradient ever reaches the router.
  const bool trainable = tape_.base_trainable() && (route.aux_lambda > 0 || score_gradient());
  const bool mlp = route.router == RouterKind::kMlp;
  const bool aux = route.aux_lambda > 0;
  const std::int64_t rows = stream_.rows.count;
  const std::int64_t score_width = mlp ? route.router_hidden : width();
  Value input = x;
  Weight up, up_bias;
  if (mlp) {
    Tape::Linear hidden{stream_.rows, width(), route.router_hidden, route.router_bias, tape_.act()};
    hidden.part = Part::kRouter;
    up = tape_.weight("route/hidden/weight", width(), route.router_hidden, trainable);
    hidden.given = &up;
    if (route.router_bias) up_bias = tape_.weight("route/hidden/bias", 1, route.router_hidden, trainable);
    hidden.given_bias = &up_bias;
    const size_t mark = tape_.mark();
    routing_.hidden = tape_.linear("route/hidden", x, hidden);
    routing_.act = input = tape_.activation_op("route/act", routing_.hidden, nullptr, stream_.rows, route.router_hidden, ActivationKind::kGeluTanh, Part::kRouter);
    if (router_by_selected()) tape_.forget_since(mark);  // not of all rows
  }
  const Weight w = tape_.weight("route/score/weight", 1, score_width, trainable);
  const Weight b = route.router_bias ? tape_.weight("route/score/bias", 1, 1, trainable) : Weight{};
  const bool learns = route.aux_lambda > 0 || score_gradient();
  const Value scores = tape_.activation("route/score", rows, 1, DType::kF32, learns && (w.gradient >= 0 || x.needs_grad));
  Operands inputs = {input.at, {w.tensor, 0}};
  if (route.router_bias) inputs.push_back({b.tensor, 0});
  const RouterScore spec{stream_.rows, score_width, route.router_bias, tape_.act()};
  tape_.emit("route/score", Part::kRouter, spec, inputs, {scores.at});

  if (!tape_.training() || (!aux && !score_gradient())) return scores;  // no gradient ever reaches this router
  if (mlp && aux && route.aux_detached && x.needs_grad)
    refuse("an MLP router with a detached auxiliary loss would need two backward passes through it", "aux_detached", "write aux_detached = no, router = linear, or aux_lambda = 0");
  tape_.record([=, this] {
    Operands targets;
    if (w.gradient >= 0) targets.push_back({w.gradient, 0});
    if (b.gradient >= 0) targets.push_back({b.gradient, 0});
    RouterScoreBackward back{spec, {}, {}, tape_.accumulate_weights};
    if (mlp) {
      if (!scores.needs_grad) return;
      if (router_by_selected()) return router_by_selected_backward(x, spec, up, up_bias, w, b);
      back.plain = true;
      if (w.gradient >= 0) back.weight_rows = stream_.rows;
      back.input_rows = stream_.rows;
      targets.push_back(tape_.gradient_target(input, "route/act/out", rows, score_width).at);
      tape_.emit_backward("route/score", Part::kRouter, back, {input.at, {w.tensor, 0}, routing_.dscores.at}, targets);
      return;
    }
    const Rows language = score_gradient() ? routing_.selected.rows : Rows{};
    if (w.gradient >= 0) back.weight_rows = aux ? stream_.rows : language;
    back.input_rows = !x.needs_grad ? Rows{} : aux && !route.aux_detached ? stream_.rows : language;
    if (w.gradient < 0 && !x.needs_grad) return;
    if (x.needs_grad) targets.push_back(tape_.gradient(x));
    // Rows that were not selected left the block unchanged, unless a bypass adapter or later sub-block changed them.
    const bool unchanged = route.adapter == 0 && route.part != RoutedPart::kAttention;
    // Without an auxiliary loss they have no gradient, and nothing of them is kept.
    const Operand rest = !aux ? routing_.gathered.at : unchanged ? block_output : tape_.saved(x);
    Operands sources = {rest, routing_.gathered.at, {w.tensor, 0}, routing_.dscores.at, routing_.indices.at};
    if (aux && route.aux_detached && back.input_rows.count > 0) {
      back.detached_lambda = route.aux_lambda * tape_.scenario().micro_weight();
      sources.push_back(routing_.scores.at);
    }
    tape_.emit_backward("route/score", Part::kRouter, back, sources, targets);
  });
  return scores;
}

// Scores of rows that were not selected have no gradient without an auxiliary loss: dW and dX run on the C rows, whose hidden values route() kept.
void BlockEmitter::router_by_selected_backward(const Value& x, const RouterScore& spec, const Weight& hidden, const Weight& hidden_bias, const Weight& w, const Weight& b) {
  const Rows rows = routing_.selected.rows;
  const std::int64_t inner = spec.width;
  const DType act = tape_.act();
  const auto made = [&](const Name& name, std::int64_t cols, DType type) { return tape_.tensor(name, Role::kActivation, Scope::kLayer, rows.count, cols, type); };
  const Operand dscores = made("route/dscores/selected", 1, DType::kF32);
  tape_.emit_backward("route/dscores/gather", Part::kRouting, GatherRows{rows, 1, DType::kF32}, {routing_.dscores.at, routing_.indices.at}, {dscores});

  RouterScoreBackward score{spec, w.gradient >= 0 ? rows : Rows{}, rows, tape_.accumulate_weights};
  score.forward.rows = rows;
  score.plain = true;
  Operands targets;
  if (w.gradient >= 0) targets.push_back({w.gradient, 0});
  if (b.gradient >= 0) targets.push_back({b.gradient, 0});
  const Operand dact = made("route/act/out", inner, act);
  targets.push_back(dact);
  tape_.emit_backward("route/score", Part::kRouter, score, {routing_.act.at, {w.tensor, 0}, dscores}, targets);
  const Operand dhidden = made("route/hidden/out", inner, act);
  tape_.emit_backward("route/act", Part::kRouter, ActivationBackward{Activation{rows, inner, ActivationKind::kGeluTanh, false, act}}, {routing_.hidden.at, dact}, {dhidden});

  Gemm gemm;
  gemm.rows = rows;
  gemm.in = width();
  gemm.out = inner;
  gemm.act = gemm.weight = gemm.result = act;
  if (hidden.gradient >= 0) {
    Gemm dw = gemm;
    dw.role = GemmRole::kWeightGradient;
    dw.bias = hidden_bias.gradient >= 0;
    dw.accumulate = tape_.accumulate_weights;
    dw.result = tape_.scenario().grad_dtype;
    Operands sums = {{hidden.gradient, 0}};
    if (dw.bias) sums.push_back({hidden_bias.gradient, 0});
    tape_.emit_backward("route/hidden/dw", Part::kRouter, dw, {routing_.gathered.at, dhidden}, sums);
  }
  if (!x.needs_grad) return;
  gemm.role = GemmRole::kInputGradient;
  const Operand dx = made("route/hidden/in", width(), act);
  tape_.emit_backward("route/hidden/dx", Part::kRouter, gemm, {dhidden, {hidden.tensor, 0}}, {dx});
  tape_.emit_backward("route/hidden/scatter", Part::kRouting, GatherBackward{GatherRows{rows, width(), act}}, {dx, routing_.indices.at}, {tape_.gradient(x)});
}

// The sampling-time predictor g(stop-gradient(x)). In training its loss and its whole backward follow at once: nothing goes into x, so nothing
// has to be kept for later.
Value BlockEmitter::predictor_scores(const Value& x) {
  const Predictor& p = *config_.route->predictor;
  const std::int64_t rows = stream_.rows.count;
  const bool trainable = tape_.base_trainable();
  const std::int64_t score_width = p.hidden > 0 ? p.hidden : width();
  Weight up;
  Value hidden, input{x.at, false};
  Gemm gemm;
  const Activation act{stream_.rows, p.hidden, ActivationKind::kGeluTanh, false, tape_.act()};
  if (p.hidden > 0) {
    up = tape_.weight("predict/hidden/weight", width(), p.hidden, trainable);
    hidden = tape_.activation("predict/hidden", rows, p.hidden, tape_.act(), false);
    gemm.rows = stream_.rows;
    gemm.in = width();
    gemm.out = p.hidden;
    gemm.act = gemm.weight = gemm.result = tape_.act();
    tape_.emit("predict/hidden", Part::kPredictor, gemm, {x.at, {up.tensor, 0}}, {hidden.at});
    input = tape_.activation("predict/act", rows, p.hidden, tape_.act(), false);
    tape_.emit("predict/act", Part::kPredictor, act, {hidden.at}, {input.at});
  }
  const Weight w = tape_.weight("predict/score/weight", 1, score_width, trainable);
  const Value scores = tape_.activation("predict/score", rows, 1, DType::kF32, false);
  const RouterScore score{stream_.rows, score_width, false, tape_.act()};
  tape_.emit("predict/score", Part::kPredictor, score, {input.at, {w.tensor, 0}}, {scores.at});
  if (!tape_.training() || w.gradient < 0) return scores;

  const Operand loss = tape_.tensor("predict/loss", Role::kOutput, Scope::kLayer, 1, 1, DType::kF32);
  const Operand dscores = tape_.tensor("predict/dscores", Role::kActivation, Scope::kLayer, rows, 1, DType::kF32);
  tape_.emit("predict/loss", Part::kLoss, RouterLoss{stream_.rows, tape_.scenario().micro_weight()}, {scores.at, routing_.indices.at, routing_.counts.at}, {loss, dscores});
  RouterScoreBackward back{score, stream_.rows, p.hidden > 0 ? stream_.rows : Rows{}, tape_.accumulate_weights};
  back.plain = true;
  Operands targets = {{w.gradient, 0}};
  Operand dinput;
  if (p.hidden > 0) {
    dinput = tape_.tensor("predict/act.d", Role::kActivation, Scope::kLayer, rows, p.hidden, tape_.act());
    targets.push_back(dinput);
  }
  tape_.emit_backward("predict/score", Part::kPredictor, back, {input.at, {w.tensor, 0}, dscores}, targets);
  if (p.hidden > 0) {
    const Operand dhidden = tape_.tensor("predict/hidden.d", Role::kActivation, Scope::kLayer, rows, p.hidden, tape_.act());
    tape_.emit_backward("predict/act", Part::kPredictor, ActivationBackward{act}, {hidden.at, dinput}, {dhidden});
    gemm.role = GemmRole::kWeightGradient;
    gemm.accumulate = tape_.accumulate_weights;
    gemm.result = tape_.scenario().grad_dtype;
    tape_.emit_backward("predict/hidden/dw", Part::kPredictor, gemm, {x.at, dhidden}, {{up.gradient, 0}});
  }
  return scores;
}

// Which rows take part: how many, or with what chance.
void BlockEmitter::choose_rows() {
  const Route& route = *config_.route;
  const Scenario& s = tape_.scenario();
  const RoutingRule rule = s.rule();
  const std::int64_t sequences = stream_.sequences;
  const std::int64_t length = stream_.queries;
  const std::int64_t total = stream_.past + length;
  Stream& selected = routing_.selected;
  selected = stream_;
  selected.selected = true;
  selected.candidates = length;
  // Top-k needs the whole sequence: a decode step that asks for it decides by threshold.
  const bool ranks = rule == RoutingRule::kTopK || rule == RoutingRule::kRandom;
  const bool ranked = ranks && s.phase != Phase::kDecode;
  const Fraction declared = route.capacity ? *route.capacity : make_fraction(slots_of(route, total), total);
  const Fraction share = s.participation.value_or(declared);
  // A block that every token takes, or none, needs no threshold: all rows are selected, or none.
  const bool everyone = !ranked && share == Fraction{1, 1};
  const bool nobody = !ranked && share.num == 0;
  if (ranked || everyone || nobody) {
    selected.queries = everyone ? length : nobody ? 0 : slots_of(route, length);
    selected.rows = Rows{sequences * selected.queries, {1, 1}};
    routing_.rest_rows = Rows{sequences * (length - selected.queries), {1, 1}};
  } else {
    // Threshold modes hold at most every row; each is taken with probability p.
    selected.queries = length;
    selected.rows = Rows{sequences * length, share};
    routing_.rest_rows = Rows{sequences * length, complement(share), RowSource::kRest};
  }
  if (route.kv == KvPolicy::kSelected && stream_.past > 0) selected.key_share = share;
  routing_.rule = everyone || nobody ? RoutingRule::kTopK : ranks && !ranked ? RoutingRule::kThreshold : rule;
}

void BlockEmitter::select(const Value& scores) {
  Stream& selected = routing_.selected;
  const std::int64_t sequences = stream_.sequences;
  routing_.indices = tape_.index("route/indices", selected.rows.count);
  routing_.positions = tape_.index("route/positions", selected.rows.count);
  routing_.counts = tape_.index("route/counts", sequences);
  selected.indices = routing_.indices;
  selected.positions = routing_.positions;
  Select spec{sequences, stream_.queries, selected.rows, routing_.rule};
  Operands outputs = {routing_.indices.at, routing_.positions.at, routing_.counts.at};
  if (config_.route->adapter > 0) {
    spec.rest = true;
    routing_.rest = tape_.index("route/rest", routing_.rest_rows.count);
    outputs.push_back(routing_.rest.at);
  }
  tape_.emit("route/select", Part::kRouting, spec, {scores.at, stream_.positions.at}, outputs);
}

void BlockEmitter::route(const Value& x, const Operand& block_output) {
  const Route& route = *config_.route;
  const RoutingRule rule = tape_.scenario().rule();
  if (rule == RoutingRule::kPredictor && !route.predictor) refuse("routing by predictor needs a predictor in every routed block", "predictor", "add predictor = linear to [route], or write --routing threshold");
  if (rule == RoutingRule::kPredictor && tape_.training()) refuse("training routes by the main router; the predictor only learns from it", "routing", "leave --routing out, or write --routing topk");
  if (tape_.training()) routing_.dscores = tape_.activation("route/dscores", stream_.rows.count, 1, DType::kF32, false);
  choose_rows();
  // Scored before the gathered rows exist, but its gradient refers to them.
  routing_.gathered = tape_.activation("route/gather", routing_.selected.rows.count, width(), tape_.act(), x.needs_grad);
  const size_t mark = tape_.mark();
  routing_.input = x;
  routing_.scores = router_scores(x, block_output);
  routing_.backward = tape_.recorded_since(mark);
  if (rule == RoutingRule::kPredictor) {
    select(predictor_scores(x));
  } else {
    select(routing_.scores);
    if (route.predictor && tape_.training()) predictor_scores(x);
  }
  if (!tape_.training()) return;
  if (router_by_selected() && routing_.scores.needs_grad) {
    const auto keep = [&](const char* leaf, Value& of_all) {
      const Value kept = tape_.activation(leaf, routing_.selected.rows.count, route.router_hidden, tape_.act(), false);
      tape_.emit(leaf, Part::kRouting, GatherRows{routing_.selected.rows, route.router_hidden, tape_.act()}, {of_all.at, routing_.indices.at}, {kept.at});
      of_all = kept;
    };
    keep("route/hidden/gather", routing_.hidden);
    keep("route/act/gather", routing_.act);
  }
  if (route.aux_lambda > 0) {
    const Operand loss = tape_.tensor("route/loss", Role::kOutput, Scope::kLayer, 1, 1, DType::kF32);
    tape_.emit("route/loss", Part::kLoss, RouterLoss{stream_.rows, route.aux_lambda * tape_.scenario().micro_weight()}, {routing_.scores.at, routing_.indices.at, routing_.counts.at},
               {loss, routing_.dscores.at});
  }
}

// Recomputation repeats neither scores nor selection. Where the router read a recomputed value, that one stands in for it.
void BlockEmitter::replay_router(const Value& x) {
  for (const auto& closure : routing_.backward) tape_.record(closure);
  if (x.at.tensor == routing_.input.at.tensor) return;
  tape_.record([=, this] {
    if (tape_.has_gradient(x)) tape_.set_gradient(routing_.input, tape_.gradient(x));
    tape_.substitute(routing_.input, x);
  });
}

Value BlockEmitter::gather(const Name& leaf, const Value& x, Rows rows, const Value& indices) {
  const GatherRows spec{rows, width(), tape_.act()};
  const Value y = tape_.activation(leaf, rows.count, width(), tape_.act(), x.needs_grad);
  tape_.emit(leaf, Part::kRouting, spec, {x.at, indices.at}, {y.at});
  tape_.record([=, this] {
    if (!tape_.has_gradient(y)) return;
    tape_.emit_backward(leaf, Part::kRouting, GatherBackward{spec}, {tape_.gradient(y), indices.at}, {tape_.gradient(x)});
  });
  return y;
}

Value BlockEmitter::scatter(const Name& leaf, const Value& x, const Value& f, Rows rows, const Value& indices, const Gate& gate, bool replace, bool emits, const Operand* into) {
  ScatterAddRows spec{rows, width(), gate, tape_.act(), replace};
  const bool gated = gate.kind != GateKind::kNone;
  const bool scored = gated && routing_.scores.needs_grad;
  const bool needs_grad = x.needs_grad || f.needs_grad || scored;
  const Value y = into ? Value{*into, needs_grad} : tape_.activation(leaf, stream_.rows.count, width(), tape_.act(), needs_grad);
  Operands inputs = {x.at, f.at, indices.at};
  if (gated) inputs.push_back(routing_.scores.at);
  if (emits) tape_.emit(leaf, Part::kRouting, spec, inputs, {y.at});
  const bool accumulate = config_.route->aux_lambda > 0;
  tape_.record([=, this] {
    if (!tape_.has_gradient(y)) return;
    const Operand dy = tape_.gradient(y);
    if (x.needs_grad) tape_.set_gradient(x, dy);  // bypass: the stream's gradient passes unchanged
    if (!f.needs_grad && !scored) return;
    Operands sources = {dy, gated ? f.at : dy, indices.at};  // without a gate f need not be kept: the op does not read its second input
    Operands targets = {tape_.gradient_target(f, leaf + "/in", rows.count, width()).at};
    if (gated) {
      sources.push_back(routing_.scores.at);
      targets.push_back(routing_.dscores.at);
    }
    if (replace) targets.push_back(dy);
    tape_.emit_backward(leaf, Part::kRouting, ScatterAddBackward{spec, accumulate}, sources, targets);
  });
  return y;
}

Value BlockEmitter::piece(Piece piece, const Value& x, const Stream& stream) {
  switch (piece) {
    case Piece::kDelta: return block(x, stream, true, nullptr);
    case Piece::kWhole: return block(x, stream, false, nullptr);
    case Piece::kAttention: return attention_update(x, stream);
    case Piece::kMlp: return mlp_update(x, stream);
  }
  return {};
}

Value BlockEmitter::routed(const Name& leaf, const Value& x, Piece what, bool gated, bool replay, bool first, const Operand* into) {
  const Route& route = *config_.route;
  const Stream& selected = routing_.selected;
  const bool replace = what == Piece::kWhole;
  const bool adapter = route.adapter > 0 && first;
  const Gate gate = gated ? route.gate : Gate{GateKind::kNone};
  const bool emits = !replay || !into;

  Value gathered;
  if (first) {
    // The gathered rows are what a routed block keeps of its input: recomputation starts from them and replays the saved indices.
    gathered = routing_.gathered;
    gathered.needs_grad = x.needs_grad;
    const GatherRows spec{selected.rows, width(), tape_.act()};
    if (!replay) tape_.emit(leaf + "/gather", Part::kRouting, spec, {x.at, routing_.indices.at}, {gathered.at});
    tape_.record([=, this] {
      if (!tape_.has_gradient(gathered)) return;
      tape_.emit_backward(leaf + "/gather", Part::kRouting, GatherBackward{spec}, {tape_.gradient(gathered), routing_.indices.at}, {tape_.gradient(x)});
    });
  } else {
    gathered = gather(leaf + "/gather", x, selected.rows, routing_.indices);
  }
  Value skipped;
  if (adapter) skipped = gather("adapter/gather", x, routing_.rest_rows, routing_.rest);

  const Value f = piece(what, gathered, selected);
  if (!adapter) return scatter(leaf + "/scatter", x, f, selected.rows, routing_.indices, gate, replace, emits, into);

  Tape::Linear down{routing_.rest_rows, width(), route.adapter, false, tape_.act()};
  down.part = Part::kAdapter;
  const Value low = tape_.activation_op("adapter/act", tape_.linear("adapter/down", skipped, down), nullptr, routing_.rest_rows, route.adapter,
                                        ActivationKind::kGeluTanh, Part::kAdapter);
  Tape::Linear up{routing_.rest_rows, route.adapter, width(), false, tape_.act()};
  up.part = Part::kAdapter;
  const Value bypass = tape_.linear("adapter/up", low, up);
  const Value y = scatter(leaf + "/scatter", x, f, selected.rows, routing_.indices, gate, replace, true, nullptr);
  return scatter("adapter/scatter", y, bypass, routing_.rest_rows, routing_.rest, Gate{GateKind::kNone}, false, emits, into);
}

Value BlockEmitter::routed_block(bool replay, const Operand* into) {
  const Route& route = *config_.route;
  const auto decide = [&](bool again, const Value& x) {
    if (again)
      replay_router(x);
    else
      this->route(x, y_);
  };
  const bool whole = route.gate_on == GateOn::kWhole;
  if (route.part != RoutedPart::kBlock && config_.parallel) refuse("the sub-blocks of a parallel block are not routed apart", "part", "write part = block, or parallel = no");
  if (route.part == RoutedPart::kBlock) {
    decide(replay, x_);
    const bool apart = route.gate_on == GateOn::kMlp || route.gate_on == GateOn::kAttention;
    if (!apart) return routed("route", x_, whole ? Piece::kWhole : Piece::kDelta, true, replay, true, into);
    // A gate on one sub-block only: two routed steps with one selection.
    if (config_.parallel) refuse("the sub-blocks of a parallel block are not gated apart", "gate_on", "write gate_on = delta, or parallel = no");
    if (!config_.attention || !config_.mlp) return routed("route", x_, Piece::kDelta, true, replay, true, into);
    const Value u = routed("route/attn", x_, Piece::kAttention, route.gate_on == GateOn::kAttention, replay, true, nullptr);
    return routed("route/mlp", u, Piece::kMlp, route.gate_on == GateOn::kMlp, replay, false, into);
  }
  if (whole) refuse("a gate on the whole row needs the whole block routed", "gate_on", "write part = block, or gate_on = delta");
  if (route.part == RoutedPart::kAttention) {
    decide(replay, x_);
    if (!config_.mlp) return routed("route", x_, Piece::kAttention, true, replay, true, into);
    const Value u = routed("route", x_, Piece::kAttention, true, replay, true, nullptr);
    return tape_.add("mlp/residual", u, mlp_update(u, stream_), stream_.rows, width(), into);
  }
  Value u = x_;
  if (config_.attention) u = tape_.add("attn/residual", x_, attention_update(x_, stream_), stream_.rows, width());
  decide(replay, u);
  return routed("route", u, Piece::kMlp, true, replay, true, into);
}

}  // namespace fathom
