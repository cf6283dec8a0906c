#include "models/block.hpp"

#include <fmt/format.h>

#include "lib/error.hpp"
#include "models/pairs.hpp"

namespace fathom {

std::string BlockEmitter::label() const {
  const bool moe = config_.mlp && config_.mlp->moe;
  const bool mode = moe && (config_.route || config_.mlp->moe->noops > 0);
  return mode ? "mode" : config_.route ? "mod" : moe ? "moe" : "dense";
}

Value BlockEmitter::forward() { return config_.route ? routed(false) : sublayers(x_, stream_, false, &y_); }

Value BlockEmitter::recompute() {
  if (config_.route) return routed(true);
  Operand scratch{tape_.out().tensor("recompute/" + label() + "/out", Role::kActivation, Scope::kLayer, stream_.rows.count, tape_.network().width, tape_.act()), 0};
  return sublayers(x_, stream_, false, &scratch);
}

Value BlockEmitter::sublayers(const Value& x, const Stream& stream, bool delta, Operand* into) {
  const std::int64_t width = tape_.network().width;
  if (config_.parallel || config_.post_norm_only || config_.norms != 2)
    throw_input("this block's norm arrangement cannot be turned into ops yet", {tape_.network().source, 0, "norms"});
  Value update;  // sum of what attention and MLP add, where the delta is wanted
  Value u = x;
  if (config_.attention) {
    const Value a = attention(tape_.norm("norm1", x, stream.rows, width), stream);
    const bool last = !config_.mlp;
    if (last && delta) return a;
    u = tape_.add("attn/residual", x, a, stream.rows, last ? into : nullptr);
    update = a;
  }
  if (config_.mlp) {
    const Value normed = tape_.norm("norm2", u, stream.rows, width);
    const Value m = config_.mlp->moe ? moe(normed, stream) : mlp(normed, stream);
    if (!delta) {
      u = tape_.add("mlp/residual", u, m, stream.rows, into);
    } else {
      u = config_.attention ? tape_.add("route/delta", update, m, stream.rows) : m;
    }
  }
  return u;
}

Value BlockEmitter::attention(const Value& x, const Stream& stream) {
  const AttentionConfig& a = *config_.attention;
  const Scenario& s = tape_.scenario();
  if (a.mla || a.qk_norm_full || a.sinks) throw_input("this attention cannot be turned into ops yet", {tape_.network().source, 0, "attention"});
  const std::int64_t qkv_width = (a.heads + 2 * a.kv_heads) * a.head_dim;
  const Value qkv = tape_.linear("attn/qkv", x, {stream.rows, tape_.network().width, qkv_width, a.qkv_bias, tape_.act()});
  if (a.qk_norm) throw_input("query/key norms cannot be turned into ops yet", {tape_.network().source, 0, "qk_norm"});
  if (a.rope_dim > 0 && tape_.network().positions == PositionKind::kRope) {
    Rope rope{stream.rows, a.heads + a.kv_heads, a.rope_dim, a.head_dim, qkv_width, tape_.network().rope_base, false, tape_.act()};
    tape_.emit("attn/rope", Part::kCore, rope, {qkv.at, stream.positions.at}, {qkv.at});
    tape_.record([=, this] {
      if (!tape_.has_gradient(qkv)) return;
      Rope inverse = rope;
      inverse.inverse = true;
      const Operand d = tape_.gradient(qkv);
      tape_.emit_backward("attn/rope", Part::kCore, inverse, {d, stream.positions.at}, {d});
    });
  }

  Attention core;
  core.rows = stream.rows;
  core.sequences = stream.sequences;
  core.heads = a.heads;
  core.kv_heads = a.kv_heads;
  core.qk_dim = a.head_dim;
  core.v_dim = a.head_dim;
  core.mask = Mask{s.full_mask ? MaskKind::kFull : MaskKind::kCausal, a.window, a.chunk};
  core.pairs = product(stream.sequences, visible_pairs(core.mask, stream.queries, stream.past));
  core.keys = stream.sequences * visible_keys(core.mask, stream.queries, stream.past);
  core.past = stream.past;
  core.key_share = stream.key_share;
  core.cached = stream.cached;
  core.lse = tape_.training();
  core.act = tape_.act();
  core.kv = s.kv_dtype;

  std::vector<Operand> inputs = {qkv.at, stream.positions.at};
  const std::int64_t kv_width = 2 * a.kv_heads * a.head_dim;
  if (!tape_.training() && (s.write_cache || stream.cached)) {
    WorkloadBuilder& out = tape_.out();
    const std::string name = label() + "/attn/";
    const Operand cache{out.tensor(name + "cache", Role::kKvCache, Scope::kLayer, stream.sequences * (stream.past + stream.queries), kv_width, s.kv_dtype), 0};
    const Operand counts{out.tensor(name + "counts", Role::kKvCache, Scope::kLayer, stream.sequences, 1, DType::kI32), 0};
    std::vector<Operand> sources = {qkv.at};
    if (stream.indices.at.tensor >= 0) sources.push_back(stream.indices.at);
    tape_.emit("attn/kv_append", Part::kKvCache, KvAppend{stream.rows, kv_width, tape_.act(), s.kv_dtype}, sources, {cache, counts});
    if (stream.cached) {
      inputs.push_back(cache);
      inputs.push_back(counts);
      if (stream.indices.at.tensor >= 0) inputs.push_back(stream.indices.at);
    }
  }

  const std::int64_t rows = stream.rows.count;
  const std::int64_t o_width = a.heads * a.head_dim;
  const Value o = tape_.activation("attn/core", rows, o_width, tape_.act(), qkv.needs_grad);
  std::vector<Operand> outputs = {o.at};
  Value lse;
  if (core.lse) {
    lse = tape_.activation("attn/core/lse", rows, a.heads, DType::kF32, false);
    outputs.push_back(lse.at);
  }
  tape_.emit("attn/core", Part::kCore, core, inputs, outputs);
  if (s.recompute == Recompute::kSelective) {
    tape_.record_recompute([=, this] {
      const Value again = tape_.activation("recompute/attn/core", rows, o_width, tape_.act(), true);
      const Value again_lse = tape_.activation("recompute/attn/core/lse", rows, core.heads, DType::kF32, false);
      tape_.emit("attn/core", Part::kCore, core, inputs, {again.at, again_lse.at});
      tape_.substitute(o, again);
      tape_.substitute(lse, again_lse);
    });
  }
  tape_.record([=, this] {
    if (!qkv.needs_grad) return;
    const Operand d = tape_.gradient_target(qkv, "attn/qkv/out").first;
    tape_.emit_backward("attn/core", Part::kCore, AttentionBackward{core},
                        {qkv.at, stream.positions.at, tape_.saved(o), tape_.saved(lse), tape_.gradient(o)}, {d});
  });
  return tape_.linear("attn/out", o, {stream.rows, o_width, tape_.network().width, a.out_bias, tape_.act()});
}

Value BlockEmitter::mlp(const Value& x, const Stream& stream) {
  const MlpConfig& m = *config_.mlp;
  const std::int64_t width = tape_.network().width;
  const auto linear = [&](const std::string& leaf, const Value& from, std::int64_t in, std::int64_t out) {
    Tape::Linear spec{stream.rows, in, out, m.bias, tape_.act()};
    spec.part = Part::kFfn;
    return tape_.linear(leaf, from, spec);
  };
  Value inner;
  if (m.gated) {
    const Value gate = linear("mlp/gate", x, width, m.width);
    const Value up = linear("mlp/up", x, width, m.width);
    inner = tape_.activation_op("mlp/act", gate, &up, stream.rows, m.width, m.activation, Part::kFfn);
  } else {
    inner = tape_.activation_op("mlp/act", linear("mlp/up", x, width, m.width), nullptr, stream.rows, m.width, m.activation, Part::kFfn);
  }
  return linear("mlp/down", inner, m.width, width);
}

Value BlockEmitter::moe(const Value&, const Stream&) {
  throw_input("mixture-of-experts blocks cannot be turned into ops yet", {tape_.network().source, 0, "experts"});
}

}  // namespace fathom
