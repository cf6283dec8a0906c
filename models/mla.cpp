// Multi-head latent attention: keys and values pass through one latent row [c | rotated key d_r] per token.
//
//   naive       the latent is expanded to keys and values of every head, which are what the core reads and the cache holds
//   absorbed    W_uk is applied to the queries and W_uv to the outputs; the core reads, and the cache holds, the latent row itself
//   decompress  the cache holds latent rows and all of them are expanded again in every step; with a window or chunks it holds those in reach
// The naive core over a latent cache would be a fourth thing that no kernel does; it cannot be asked for.
#include "lib/error.hpp"
#include "models/block.hpp"
#include "models/pairs.hpp"

namespace fathom {

Value BlockEmitter::latent_attention(const Value& x, const Stream& stream) {
  const AttentionConfig& a = *config_.attention;
  const Mla& m = *a.mla;
  const std::int64_t n = a.heads;
  const std::int64_t qk = m.nope_dim + m.rope_dim;
  const std::int64_t latent_width = m.kv_rank + m.rope_dim;
  const DType act = tape_.act();
  const MlaStrategy strategy = tape_.scenario().mla;
  const bool absorbed = strategy == MlaStrategy::kAbsorbed;
  if (absorbed && tape_.training()) refuse("absorbed latent attention is a decoding strategy; training uses the naive form", "mla", "leave --mla out, or write --mla naive");
  if (tape_.network().lora)
    for (const std::string& target : tape_.network().lora->targets)
      if (target == "q" || target == "k" || target == "v" || target == "o") refuse("adapters on latent attention are not modelled", "targets", "take q, k, v and o out of [lora] targets");
  const bool all = all_keys(stream);
  const Rows kv_rows = all ? stream_.rows : stream.rows;
  const Value& kv_positions = all ? stream_.positions : stream.positions;
  const bool rotates = m.rope_dim > 0 && tape_.network().positions == PositionKind::kRope;
  const auto rope = [&](Rows rows, std::int64_t heads, std::int64_t head_dim, std::int64_t offset) {
    Rope spec{rows, heads, m.rope_dim, head_dim, heads * head_dim, tape_.network().rope_base, false, act};
    spec.offset = offset;
    return spec;
  };

  Value q;
  if (m.query_rank > 0) {
    Value low = tape_.linear("attn/q_down", x, {stream.rows, width(), m.query_rank, false, act});
    low = tape_.norm_in_place("attn/q_norm", low, stream.rows, {m.query_rank, 1, 1, m.query_rank, 0});
    q = tape_.linear("attn/q_up", low, {stream.rows, m.query_rank, n * qk, false, act});
  } else {
    q = tape_.linear("attn/q", x, {stream.rows, width(), n * qk, false, act});
  }
  if (rotates) rotate("attn/q_rope", q, rope(stream.rows, n, qk, m.nope_dim), stream.positions);

  Value latent = tape_.linear("attn/kv_down", all ? routing_.normed_all : x, {kv_rows, width(), latent_width, false, act});
  latent = tape_.norm_in_place("attn/kv_norm", latent, kv_rows, {m.kv_rank, 1, 1, latent_width, 0});
  if (rotates) rotate("attn/k_rope", latent, rope(kv_rows, 1, latent_width, m.kv_rank), kv_positions);

  LatentHeads assembly{stream.rows, n, m.nope_dim, m.rope_dim, m.v_dim, m.kv_rank, absorbed, act};
  Attention spec = core_spec(stream, n, absorbed ? 1 : n, absorbed ? latent_width : qk, absorbed ? m.kv_rank : m.v_dim);
  Value o;
  if (absorbed) {
    Tape::Linear up{stream.rows, m.nope_dim, m.kv_rank, false, act};
    up.batch = n;
    up.batch_stride = qk;
    up.in_stride = n * qk;
    const Value qa = tape_.linear("attn/q_absorb", q, up);
    const Value rows = tape_.activation("attn/heads", stream.rows.count, assembly.row_width(), act, false);
    tape_.emit("attn/heads", Part::kCore, assembly, {q.at, qa.at}, {rows.at});
    spec.apart = true;
    spec.shared_kv = true;
    spec.scale_dim = qk;
    const Value latent_out = core(spec, {rows, latent, kv_positions, kv_rows, assembly.row_width(), latent_width}, stream, true);
    Tape::Linear down{stream.rows, m.kv_rank, m.v_dim, false, act};
    down.batch = n;
    o = tape_.linear("attn/v_absorb", latent_out, down);
    return tape_.linear("attn/out", o, {stream.rows, n * m.v_dim, width(), false, act});
  }

  // Keys and values of every head. Decompression repeats this for the whole cache.
  Value source = latent;
  Rows expanded = kv_rows;
  Value expanded_positions = kv_positions;
  const bool decompress = strategy == MlaStrategy::kDecompress && !tape_.training();
  const bool again = decompress && stream.cached;
  if (decompress && (tape_.scenario().write_cache || stream.cached)) {
    // Of a list that is expanded whole, only the keys that some new query can see are held.
    const std::int64_t held = again ? visible_keys(spec.mask, stream_.queries, stream.past) : stream.past + (all ? stream_.queries : stream.queries);
    const Cache cache = append_cache(latent, kv_rows, stream, latent_width, held);
    if (again) {
      if (stream.selected && !all) refuse("decompressing the cache of a routed block is not modelled: which rows are needed depends on the selection", "mla", "write --mla naive or absorbed, or kv = all in [route]");
      if (tape_.scenario().kv_dtype != act) refuse("decompression needs a cache in the compute type", "kv_dtype", "leave --kv-dtype out, or write --mla naive or absorbed");
      source = Value{cache.rows, false};
      const std::int64_t rows = stream.sequences * held;
      expanded = Rows{rows, {1, 1}};
      expanded_positions = Value{tape_.tensor("attn/key_positions", Role::kInput, Scope::kGlobal, rows, 1, DType::kI32), false};
    }
  }
  Tape::Linear up{expanded, m.kv_rank, n * (m.nope_dim + m.v_dim), false, act};
  up.in_stride = latent_width;
  const Value kv = tape_.linear(again ? "attn/decompress" : "attn/kv_up", source, up);
  const bool apart = all || again;
  assembly.rows = expanded;
  assembly.queries = !apart;
  const std::int64_t row_width = assembly.row_width();
  const Value rows = tape_.activation("attn/heads", expanded.count, row_width, act, q.needs_grad || latent.needs_grad || kv.needs_grad);
  Operands inputs;
  if (!apart) inputs.push_back(q.at);
  inputs.push_back(source.at);
  inputs.push_back(kv.at);
  tape_.emit("attn/heads", Part::kCore, assembly, inputs, {rows.at});
  tape_.record([=, this] {
    if (!tape_.has_gradient(rows)) return;
    Operands targets;
    if (!apart) targets.push_back(tape_.gradient_target(q, "attn/q/out", stream.rows.count, n * qk).at);
    targets.push_back(tape_.gradient_target(latent, "attn/latent", kv_rows.count, latent_width).at);
    targets.push_back(tape_.gradient_target(kv, "attn/kv_up/out", expanded.count, up.out).at);
    tape_.emit_backward("attn/heads", Part::kCore, LatentHeadsBackward{assembly}, {tape_.gradient(rows)}, targets);
  });
  spec.apart = apart;
  if (again) spec.cached = false;
  const Heads heads = apart ? Heads{q, rows, expanded_positions, expanded, n * qk, row_width} : Heads{rows, rows, {}, stream.rows, row_width, row_width};
  o = core(spec, heads, stream, !decompress);
  return tape_.linear("attn/out", o, {stream.rows, n * m.v_dim, width(), false, act});
}

}  // namespace fathom
