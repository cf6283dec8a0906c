// Multi-head, grouped-query and multi-query attention: projections, query/key norms, rotation, cache and core.
#include <algorithm>

#include "lib/error.hpp"
#include "models/block.hpp"
#include "models/pairs.hpp"

namespace fathom {

Attention BlockEmitter::core_spec(const Stream& stream, std::int64_t heads, std::int64_t kv_heads, std::int64_t qk_dim, std::int64_t v_dim) const {
  const AttentionConfig& a = *config_.attention;
  Attention core;
  core.rows = stream.rows;
  core.sequences = stream.sequences;
  core.heads = heads;
  core.kv_heads = kv_heads;
  core.qk_dim = qk_dim;
  core.v_dim = v_dim;
  core.mask = Mask{tape_.scenario().full_mask ? MaskKind::kFull : MaskKind::kCausal, a.window, a.chunk};
  core.past = stream.past;
  core.key_share = stream.key_share;
  core.cached = stream.cached;
  core.fused = tape_.scenario().fusions.attention;
  core.lse = tape_.training() && core.fused;
  core.act = tape_.act();
  core.kv = tape_.scenario().kv_dtype;
  core.sinks = a.sinks;
  core.apart = all_keys(stream);
  core.kept_positions = core.cached && keeps_positions(stream);

  const Mask& mask = core.mask;
  const std::int64_t length = core.apart || stream.selected ? stream.candidates : stream.queries;
  const u128 all = visible_pairs(mask, length, stream.past);
  if (core.apart) {
    // A query sees as many keys as its position allows: on average those of all queries. Declared: that mean, rounded up.
    const u128 divisor = static_cast<u128>(std::max<std::int64_t>(1, length));
    core.pairs = checked_mul(product(stream.sequences), (checked_mul(all, product(stream.queries)) + divisor - 1) / divisor);
    core.keys = stream.queries > 0 ? stream.sequences * visible_keys(mask, length, stream.past) : 0;
  } else {
    core.pairs = product(stream.sequences, visible_pairs(mask, stream.queries, stream.past));
    core.keys = stream.sequences * visible_keys(mask, stream.queries, stream.past);
  }
  if (!stream.selected) return core;

  const bool random_rows = stream.rows.routed();
  const bool positions_matter = mask.window > 0 || mask.chunk > 0 || stream.past > 0 || core.apart;
  if ((!random_rows && !positions_matter) || length == 0) return core;
  const ChosenCore chosen{mask, length, stream.queries, random_rows ? stream.rows.probability.value() : -1, stream.key_share.value(), static_cast<double>(stream.sequences), core.apart};
  const ExpectedReach reach = expected_reach(chosen, stream.past);
  core.expected_pairs = reach.pairs;
  core.expected_keys = reach.keys;
  return core;
}

void BlockEmitter::query_key_norm(const Name& leaf, Value& x, Rows rows, std::int64_t heads, std::int64_t stride, std::int64_t offset) {
  const AttentionConfig& a = *config_.attention;
  if (!a.qk_norm && !a.qk_norm_full) return;
  Tape::InPlaceNorm norm;
  norm.stride = stride;
  norm.offset = offset;
  if (a.qk_norm_full) {
    norm.width = heads * a.head_dim;
  } else {
    norm.width = a.head_dim;
    norm.groups = heads;
    norm.gains = a.qk_gain == QkGain::kShared ? 1 : a.qk_gain == QkGain::kPerHead ? heads : 0;
  }
  x = tape_.norm_in_place(leaf, x, rows, norm);
}

void BlockEmitter::rotate(const Name& leaf, const Value& x, const Rope& spec, const Value& positions) {
  tape_.emit(leaf, Part::kCore, spec, {x.at, positions.at}, {x.at});
  tape_.record([=, this] {
    if (!tape_.has_gradient(x)) return;
    Rope inverse = spec;
    inverse.inverse = true;
    const Operand d = tape_.gradient(x);
    tape_.emit_backward(leaf, Part::kCore, inverse, {d, positions.at}, {d});
  });
}

BlockEmitter::Cache BlockEmitter::append_cache(const Value& source, const Rows& rows, const Stream& stream, std::int64_t cached_width, std::int64_t held) {
  const DType kv = tape_.scenario().kv_dtype;
  const bool all = all_keys(stream);
  const std::int64_t room = stream.sequences * held;
  Cache cache{tape_.tensor("attn/cache", Role::kKvCache, Scope::kLayer, room, cached_width, kv),
              tape_.tensor("attn/counts", Role::kKvCache, Scope::kLayer, stream.sequences, 1, DType::kI32), {}};
  const bool kept = keeps_positions(stream);
  Operands sources = {source.at};
  if (stream.indices.at.tensor >= 0 && !all) sources.push_back(stream.indices.at);
  Operands outputs = {cache.rows, cache.counts};
  if (kept) {
    cache.positions = tape_.tensor("attn/cache/positions", Role::kKvCache, Scope::kLayer, room, 1, DType::kI32);
    sources.push_back(stream.positions.at);
    outputs.push_back(cache.positions);
  }
  tape_.emit("attn/kv_append", Part::kKvCache, KvAppend{rows, cached_width, tape_.act(), kv, kept}, sources, outputs);
  return cache;
}

Value BlockEmitter::core(const Attention& spec, const Heads& heads, const Stream& stream, bool append) {
  const Scenario& s = tape_.scenario();
  Operands inputs = {heads.q.at, stream.positions.at};
  if (spec.apart) {
    inputs.push_back(heads.kv.at);
    inputs.push_back(heads.kv_positions.at);
  }
  // Elements that one token leaves in the cache: keys and values, or the one latent row that is both.
  const std::int64_t cached_width = spec.shared_kv ? spec.qk_dim : spec.kv_heads * (spec.qk_dim + spec.v_dim);
  if (append && !tape_.training() && (s.write_cache || stream.cached)) {
    const Cache cache = append_cache(heads.kv, heads.kv_rows, stream, cached_width, stream.past + (all_keys(stream) ? stream_.queries : stream.queries));
    if (spec.cached) {
      inputs.push_back(cache.rows);
      inputs.push_back(cache.counts);
      if (stream.indices.at.tensor >= 0) inputs.push_back(stream.indices.at);
      if (spec.kept_positions) inputs.push_back(cache.positions);
    }
  }
  Weight sinks;
  if (spec.sinks) {
    sinks = tape_.weight("attn/sinks", 1, spec.heads, tape_.base_trainable());
    inputs.push_back({sinks.tensor, 0});
  }

  const std::int64_t rows = stream.rows.count;
  const std::int64_t o_width = spec.heads * spec.v_dim;
  const bool needs_grad = heads.q.needs_grad || heads.kv.needs_grad || sinks.gradient >= 0;
  const Value o = tape_.activation("attn/core", rows, o_width, tape_.act(), needs_grad);
  Operands outputs = {o.at};
  Value lse;
  if (spec.lse) {
    lse = tape_.activation("attn/core/lse", rows, spec.heads, DType::kF32, false);
    outputs.push_back(lse.at);
  }
  Value probabilities;
  if (!spec.fused) {
    if (spec.pairs >> 46) refuse("the scores of unfused attention are too many to hold", "fusion", "leave attention among the fused groups (--fusion qkv,attention), or take a smaller batch or length");
    const auto pairs = static_cast<std::int64_t>(spec.pairs);
    probabilities = tape_.activation("attn/core/probabilities", pairs, spec.heads, tape_.act(), false);
    outputs.push_back(probabilities.at);
    outputs.push_back(tape_.activation("attn/core/scores", pairs, spec.heads, tape_.act(), false).at);
  }
  tape_.emit("attn/core", Part::kCore, spec, inputs, outputs);
  if (!o.needs_grad) return o;
  tape_.record([=, this] {
    Operands sources = {heads.q.at, stream.positions.at};
    if (spec.fused) sources.push_back(tape_.saved(o)), sources.push_back(tape_.saved(lse));
    if (!spec.fused) sources.push_back(probabilities.at);
    sources.push_back(tape_.gradient(o));
    Operands targets = {tape_.gradient_target(heads.q, "attn/q/out", rows, heads.q_width).at};
    if (spec.apart) {
      sources.push_back(heads.kv.at);
      sources.push_back(heads.kv_positions.at);
      targets.push_back(tape_.gradient_target(heads.kv, "attn/kv/out", heads.kv_rows.count, heads.kv_width).at);
    }
    if (spec.sinks) {
      sources.push_back({sinks.tensor, 0});
      if (sinks.gradient >= 0) targets.push_back({sinks.gradient, 0});
    }
    for (const char* name : {"attn/core/probabilities.d", "attn/core/scores.d"})
      if (!spec.fused) targets.push_back(tape_.tensor(name, Role::kActivation, Scope::kLayer, static_cast<std::int64_t>(spec.pairs), spec.heads, tape_.act()));
    tape_.emit_backward("attn/core", Part::kCore, AttentionBackward{spec, tape_.accumulate_weights}, sources, targets);
  });
  return o;
}

Value BlockEmitter::attention(const Value& x, const Stream& stream) {
  const AttentionConfig& a = *config_.attention;
  const std::int64_t q_width = a.heads * a.head_dim;
  const std::int64_t k_width = a.kv_heads * a.head_dim;
  const bool rope = a.rope_dim > 0 && tape_.network().positions == PositionKind::kRope;
  const Attention spec = core_spec(stream, a.heads, a.kv_heads, a.head_dim, a.head_dim);
  const auto project = [&](const Name& leaf, const Value& from, Rows rows, std::int64_t out) {
    Tape::Linear linear{rows, width(), out, a.qkv_bias, tape_.act()};
    return tape_.linear(leaf, from, linear);
  };
  const auto adapt = [&](const char* target, const Name& leaf, const Value& from, Value& y, Rows rows, std::int64_t columns, std::int64_t offset, std::int64_t stride) {
    Tape::Linear linear{rows, width(), columns, false, tape_.act()};
    tape_.adapt(target, leaf, from, y, linear, offset, stride == columns ? 0 : stride);
  };
  const auto rope_spec = [&](Rows rows, std::int64_t heads, std::int64_t stride) {
    return Rope{rows, heads, a.rope_dim, a.head_dim, stride, tape_.network().rope_base, false, tape_.act()};
  };

  Heads heads;
  const std::int64_t row = q_width + 2 * k_width;
  if (!spec.apart) {
    Value qkv = project("attn/qkv", x, stream.rows, row);
    adapt("q", "attn/q", x, qkv, stream.rows, q_width, 0, row);
    adapt("k", "attn/k", x, qkv, stream.rows, k_width, q_width, row);
    adapt("v", "attn/v", x, qkv, stream.rows, k_width, q_width + k_width, row);
    query_key_norm("attn/q_norm", qkv, stream.rows, a.heads, row, 0);
    query_key_norm("attn/k_norm", qkv, stream.rows, a.kv_heads, row, q_width);
    if (rope) rotate("attn/rope", qkv, rope_spec(stream.rows, a.heads + a.kv_heads, row), stream.positions);
    heads = {qkv, qkv, {}, stream.rows, row, row};
  } else {
    // Queries first: in reverse, the keys' product writes the whole gradient of the normed rows before the queries' part is added.
    const Value& all = routing_.normed_all;
    Value q = project("attn/q", x, stream.rows, q_width);
    adapt("q", "attn/q", x, q, stream.rows, q_width, 0, q_width);
    query_key_norm("attn/q_norm", q, stream.rows, a.heads, q_width, 0);
    if (rope) rotate("attn/q_rope", q, rope_spec(stream.rows, a.heads, q_width), stream.positions);
    Value kv = project("attn/kv", all, stream_.rows, 2 * k_width);
    adapt("k", "attn/k", all, kv, stream_.rows, k_width, 0, 2 * k_width);
    adapt("v", "attn/v", all, kv, stream_.rows, k_width, k_width, 2 * k_width);
    query_key_norm("attn/k_norm", kv, stream_.rows, a.kv_heads, 2 * k_width, 0);
    if (rope) rotate("attn/k_rope", kv, rope_spec(stream_.rows, a.kv_heads, 2 * k_width), stream_.positions);
    heads = {q, kv, stream_.positions, stream_.rows, q_width, 2 * k_width};
  }
  const Value o = core(spec, heads, stream, true);
  Tape::Linear out{stream.rows, q_width, width(), a.out_bias, tape_.act()};
  Value y = tape_.linear("attn/out", o, out);
  out.bias = false;
  tape_.adapt("o", "attn/out", o, y, out, 0, 0);
  return y;
}

}  // namespace fathom
