#include "models/block.hpp"

#include <fmt/format.h>

#include "lib/error.hpp"

namespace fathom {

const char* BlockEmitter::label() const {
  const bool moe = config_.mlp && config_.mlp->moe;
  const bool mode = moe && (config_.route || config_.mlp->moe->noops > 0);
  return mode ? "mode" : config_.route ? "mod" : moe ? "moe" : "dense";
}

void BlockEmitter::refuse(const char* what, const char* key, const char* hint) const { throw_input(what, {tape_.network().source, 0, key}, hint); }

Value BlockEmitter::forward() { return config_.route ? routed_block(false, &y_) : block(x_, stream_, false, &y_); }

Value BlockEmitter::recompute() {
  const Operand scratch = tape_.tensor("out", Role::kActivation, Scope::kLayer, stream_.rows.count, width(), tape_.act());
  return config_.route ? routed_block(true, &scratch) : block(x_, stream_, false, &scratch);
}

Value BlockEmitter::attention_update(const Value& x, const Stream& stream) {
  const bool before = !config_.post_norm_only;
  Value normed = x;
  if (all_keys(stream)) {
    // Norm and keys of every token; the queries' rows are gathered from the normed ones.
    routing_.normed_all = before ? tape_.norm("norm1", x_, stream_.rows, width()) : x_;
    if (before) normed = gather("attn/gather", routing_.normed_all, stream.rows, stream.indices);
  } else if (before) {
    normed = tape_.norm("norm1", x, stream.rows, width());
  }
  const Value a = config_.attention->mla ? latent_attention(normed, stream) : attention(normed, stream);
  const bool after = config_.post_norm_only || config_.norms == 4;
  return after ? tape_.norm("attn/post_norm", a, stream.rows, width()) : a;
}

Value BlockEmitter::mlp_update(const Value& x, const Stream& stream) {
  const Value normed = config_.post_norm_only ? x : tape_.norm("norm2", x, stream.rows, width());
  const Value m = config_.mlp->moe ? moe(normed, stream) : mlp(normed, stream);
  const bool after = config_.post_norm_only || config_.norms == 4;
  return after ? tape_.norm("mlp/post_norm", m, stream.rows, width()) : m;
}

Value BlockEmitter::block(const Value& x, const Stream& stream, bool delta, const Operand* into) {
  if (config_.parallel) {
    if (all_keys(stream)) refuse("a parallel block whose unrouted tokens keep keys and values is not modelled", "parallel", "write kv = selected in [route], or parallel = no");
    // Both norms first and both sums last: in reverse, both branches read the output's gradient before anything adds to it.
    const Value first = tape_.norm("norm1", x, stream.rows, width());
    const Value second = config_.parallel_norms == 2 ? tape_.norm("norm2", x, stream.rows, width()) : first;
    const Value a = config_.attention->mla ? latent_attention(first, stream) : attention(first, stream);
    const Value m = config_.mlp->moe ? moe(second, stream) : mlp(second, stream);
    if (delta) return tape_.add("route/delta", a, m, stream.rows, width());
    return tape_.add("mlp/residual", tape_.add("attn/residual", x, a, stream.rows, width()), m, stream.rows, width(), into);
  }
  Value update;  // sum of what attention and MLP add, where the delta is wanted
  Value u = x;
  if (config_.attention) {
    const Value a = attention_update(x, stream);
    if (delta && !config_.mlp) return a;
    u = tape_.add("attn/residual", x, a, stream.rows, width(), config_.mlp ? nullptr : into);
    update = a;
  }
  if (!config_.mlp) return u;
  const Value m = mlp_update(u, stream);
  if (!delta) return tape_.add("mlp/residual", u, m, stream.rows, width(), into);
  return config_.attention ? tape_.add("route/delta", update, m, stream.rows, width()) : m;
}

// gate(x) * up(x), then down; or act(up(x)), then down. `rows` carries what is common to the products.
Value BlockEmitter::ffn(const Name& gate, const Name& up, const Name& act, const Name& down, const Value& x, Tape::Linear rows, std::int64_t ffn_width, bool adapters) {
  const MlpConfig& m = *config_.mlp;
  const auto linear = [&](const char* target, const Name& leaf, const Value& from, std::int64_t in, std::int64_t out) {
    Tape::Linear spec = rows;
    spec.in = in;
    spec.out = out;
    spec.bias = m.bias;
    spec.result = tape_.act();
    Value y = tape_.linear(leaf, from, spec);
    if (adapters) tape_.adapt(target, leaf, from, y, spec, 0, 0);
    return y;
  };
  Value inner;
  if (m.gated) {
    const Value g = linear("gate", gate, x, width(), ffn_width);
    const Value u = linear("up", up, x, width(), ffn_width);
    inner = tape_.activation_op(act, g, &u, rows.rows, ffn_width, m.activation, rows.part);
  } else {
    inner = tape_.activation_op(act, linear("up", up, x, width(), ffn_width), nullptr, rows.rows, ffn_width, m.activation, rows.part);
  }
  return linear("down", down, inner, ffn_width, width());
}

Value BlockEmitter::mlp(const Value& x, const Stream& stream) {
  Tape::Linear rows;
  rows.rows = stream.rows;
  rows.part = Part::kFfn;
  return ffn("mlp/gate", "mlp/up", "mlp/act", "mlp/down", x, rows, config_.mlp->width, true);
}

}  // namespace fathom
