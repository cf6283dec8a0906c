#include "kernels/cpu/attention_general.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/columns.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/pieces.hpp"

namespace fathom::cpu {
namespace {

// Columns of rows in the compute type.
struct Columns {
  std::byte* data = nullptr;
  std::int64_t stride = 0;  // elements
  Columns from(std::int64_t row, DType type) const { return {data + row * stride * dtype_bytes(type), stride}; }
};

// Where queries, keys and values (or their gradients) stand.
struct Heads {
  Columns q, k, v;
};
Heads heads_of(const fathom::Attention& op, const OperandView& q, const OperandView& kv) {
  const std::int64_t size = dtype_bytes(op.act);
  const std::int64_t k_at = op.apart ? 0 : op.heads * op.qk_dim;
  const std::int64_t v_at = op.shared_kv ? k_at : k_at + op.kv_heads * op.qk_dim;
  return {{q.data, q.cols}, {kv.data + k_at * size, kv.cols}, {kv.data + v_at * size, kv.cols}};
}

std::int64_t keys_of(const fathom::Attention& op, std::int64_t key_rows) {
  return op.apart ? (op.sequences > 0 ? key_rows / op.sequences : 0) : queries_of(op);
}

AttentionShape shape_of(const fathom::Attention& op, std::int64_t queries, std::int64_t keys, const std::int32_t* q_positions, const std::int32_t* kv_positions) {
  AttentionShape shape = attention_shape(op, queries, keys);
  shape.q_positions = q_positions;
  shape.kv_positions = kv_positions;
  return shape;
}

// f32 rows of one sequence: the operands themselves, or widened copies.
struct Wide {
  float *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *d_o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* lse = nullptr;
  std::byte* rest = nullptr;
  std::int64_t bytes = 0;
  Wide(const fathom::Attention& op, std::int64_t keys, bool backward, std::byte* base) {
    Pieces pieces(base);
    const std::int64_t queries = queries_of(op);
    lse = pieces.take<float>(backward || op.lse ? 0 : queries * op.heads);
    if (op.act != DType::kF32) {
      q = pieces.take<float>(queries * op.heads * op.qk_dim);
      k = pieces.take<float>(keys * op.kv_heads * op.qk_dim);
      v = pieces.take<float>(keys * op.kv_heads * op.v_dim);
      o = pieces.take<float>(queries * op.heads * op.v_dim);
      if (backward) {
        d_o = pieces.take<float>(queries * op.heads * op.v_dim);
        dq = pieces.take<float>(queries * op.heads * op.qk_dim);
        dk = pieces.take<float>(keys * op.kv_heads * op.qk_dim);
        dv = pieces.take<float>(keys * op.kv_heads * op.v_dim);
      }
    }
    bytes = pieces.bytes();
    rest = base ? base + bytes : nullptr;
  }
};

// A view of f32 columns, widened into `copy` where they are bf16.
ConstView wide(DType type, const Columns& from, std::int64_t rows, std::int64_t cols, float* copy, int threads) {
  if (type == DType::kF32) return {reinterpret_cast<const float*>(from.data), from.stride};
  over_ranges(rows, threads, 6 * cols, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) bf16_to_f32(reinterpret_cast<const bf16*>(from.data) + r * from.stride, copy + r * cols, cols, 1);
  });
  return {copy, cols};
}
View target(DType type, const Columns& to, std::int64_t cols, float* copy) {
  if (type == DType::kF32) return {reinterpret_cast<float*>(to.data), to.stride};
  return {copy, cols};
}
void narrow(DType type, const float* copy, const Columns& to, std::int64_t rows, std::int64_t cols, int threads) {
  if (type == DType::kF32) return;
  over_ranges(rows, threads, 6 * cols, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) f32_to_bf16(copy + r * cols, reinterpret_cast<bf16*>(to.data) + r * to.stride, cols, 1);
  });
}

// Rows of one sequence after the other: queries by the selection, keys all of them, or those of the queries themselves.
struct Sequences {
  const fathom::Attention& op;
  const std::int32_t *positions, *key_positions;
  const Selection* selection;
  std::int64_t keys_each;  // of keys that stand apart
  bool own_keys;           // one key per query

  Sequences(const fathom::Attention& attention, const BoundOp& bound, size_t kv_at, const Selection* chosen)
      : op(attention), positions(bound.in[1].as<std::int32_t>()), key_positions(positions), selection(chosen), own_keys(true) {
    keys_each = queries_of(op);
    if (!op.apart) return;
    key_positions = bound.in[kv_at + 1].as<std::int32_t>();
    own_keys = bound.in[kv_at + 1].at == bound.in[1].at;
    keys_each = bound.in[kv_at].rows / std::max<std::int64_t>(1, op.sequences);
  }
  // visit(first query row, queries, first key row, keys)
  template <class Visit>
  void each(const Visit& visit) const {
    std::int64_t row = 0, key = 0;
    for (std::int64_t b = 0; b < op.sequences; ++b) {
      const std::int64_t rows = selection ? selection->per_sequence[static_cast<size_t>(b)] : queries_of(op);
      const std::int64_t keys = own_keys ? rows : keys_each;
      visit(row, rows, key, keys);
      row += rows, key += keys;
    }
  }
};

void note(const Sequences& sequences, Executed& executed) {
  executed.pairs = 0;
  executed.keys = 0;
  sequences.each([&](std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys) {
    const AttentionExtent own = attention_extent(sequences.op.mask, {sequences.positions + row, static_cast<size_t>(rows)}, {sequences.key_positions + key, static_cast<size_t>(keys)});
    executed.pairs += own.pairs, executed.keys += own.keys;
  });
}

float value_at(const OperandView& v, std::int64_t i) { return v.dtype == DType::kF32 ? v.as<float>()[i] : static_cast<float>(v.as<bf16>()[i]); }

}  // namespace

AttentionShape attention_shape(const fathom::Attention& op, std::int64_t queries, std::int64_t keys) {
  AttentionShape shape;
  shape.q_rows = queries;
  shape.kv_rows = keys;
  shape.heads = op.heads;
  shape.kv_heads = op.kv_heads;
  shape.d_qk = op.qk_dim;
  shape.d_v = op.v_dim;
  shape.causal = op.mask.kind == MaskKind::kCausal;
  shape.window = shape.causal ? op.mask.window : 0;
  shape.chunk = shape.causal ? op.mask.chunk : 0;
  shape.scale = static_cast<float>(attention_scale(op));
  return shape;
}

AttentionExtent attention_extent(const Mask& mask, std::span<const std::int32_t> queries, std::span<const std::int32_t> keys) {
  AttentionExtent extent;
  if (mask.kind == MaskKind::kFull) {
    extent.pairs = product(static_cast<std::int64_t>(queries.size()), static_cast<std::int64_t>(keys.size()));
    extent.keys = queries.empty() ? 0 : static_cast<std::int64_t>(keys.size());
    return extent;
  }
  size_t first = 0, past = 0, seen = 0;  // visible keys are [first, past); seen: behind the last key counted
  for (const std::int32_t query : queries) {
    const auto hidden = [&](std::int32_t key) {
      return (mask.window > 0 && query - key >= mask.window) || (mask.chunk > 0 && key / mask.chunk != query / mask.chunk);
    };
    while (past < keys.size() && keys[past] <= query) ++past;
    while (first < past && hidden(keys[first])) ++first;
    extent.pairs += past - first;
    extent.keys += static_cast<std::int64_t>(past - std::max(first, std::min(seen, past)));
    seen = past;
  }
  return extent;
}

std::int64_t general_attention_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads) {
  const std::int64_t keys = keys_of(op, key_rows);
  return Wide(op, keys, false, nullptr).bytes + static_cast<std::int64_t>(attention_f32_scratch_bytes(shape_of(op, queries_of(op), keys, nullptr, nullptr), threads));
}

std::int64_t general_attention_backward_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads) {
  const std::int64_t keys = keys_of(op, key_rows);
  return Wide(op, keys, true, nullptr).bytes +
         static_cast<std::int64_t>(attention_f32_backward_scratch_bytes(shape_of(op, queries_of(op), keys, nullptr, nullptr), threads));
}

void run_general_attention(const fathom::Attention& op, const BoundOp& bound, const Selection* selection, Executed& executed, void* scratch, int threads) {
  const OperandView& kv = bound.in[op.apart ? 2 : 0];
  const Heads heads = heads_of(op, bound.in[0], kv);
  const Columns out{bound.out[0].data, op.heads * op.v_dim};
  const Sequences sequences(op, bound, 2, selection);
  const Wide w(op, keys_of(op, kv.rows), false, static_cast<std::byte*>(scratch));
  const std::int64_t q_cols = op.heads * op.qk_dim, k_cols = op.kv_heads * op.qk_dim, v_cols = op.kv_heads * op.v_dim, o_cols = op.heads * op.v_dim;
  sequences.each([&](std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys) {
    if (rows == 0) return;
    float* lse = op.lse ? bound.out[1].as<float>() + row * op.heads : op.sinks ? w.lse : nullptr;
    const AttentionShape shape = shape_of(op, rows, keys, sequences.positions + row, sequences.key_positions + key);
    const ConstView q = wide(op.act, heads.q.from(row, op.act), rows, q_cols, w.q, threads), k = wide(op.act, heads.k.from(key, op.act), keys, k_cols, w.k, threads);
    const ConstView v = wide(op.act, heads.v.from(key, op.act), keys, v_cols, w.v, threads);
    const Columns to = out.from(row, op.act);
    attention_f32(shape, q, k, v, target(op.act, to, o_cols, w.o), lse, w.rest, threads);
    narrow(op.act, w.o, to, rows, o_cols, threads);
    if (op.sinks) add_sinks(op, bound.in.back(), rows, to.data, lse, threads);
  });
  note(sequences, executed);
}

void run_general_attention_backward(const fathom::Attention& op, const BoundOp& bound, Executed& executed, void* scratch, int threads) {
  const OperandView& kv = bound.in[op.apart ? 5 : 0];
  const Heads heads = heads_of(op, bound.in[0], kv), gradients = heads_of(op, bound.out[0], bound.out[op.apart ? 1 : 0]);
  const Columns out{bound.in[2].data, op.heads * op.v_dim}, d_out{bound.in[4].data, op.heads * op.v_dim};
  const Sequences sequences(op, bound, 5, nullptr);
  const Wide w(op, keys_of(op, kv.rows), true, static_cast<std::byte*>(scratch));
  const std::int64_t q_cols = op.heads * op.qk_dim, k_cols = op.kv_heads * op.qk_dim, v_cols = op.kv_heads * op.v_dim, o_cols = op.heads * op.v_dim;
  sequences.each([&](std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys) {
    const AttentionShape shape = shape_of(op, rows, keys, sequences.positions + row, sequences.key_positions + key);
    const ConstView q = wide(op.act, heads.q.from(row, op.act), rows, q_cols, w.q, threads), k = wide(op.act, heads.k.from(key, op.act), keys, k_cols, w.k, threads);
    const ConstView v = wide(op.act, heads.v.from(key, op.act), keys, v_cols, w.v, threads);
    const ConstView o = wide(op.act, out.from(row, op.act), rows, o_cols, w.o, threads), d_o = wide(op.act, d_out.from(row, op.act), rows, o_cols, w.d_o, threads);
    const Columns dq = gradients.q.from(row, op.act), dk = gradients.k.from(key, op.act), dv = gradients.v.from(key, op.act);
    attention_f32_backward(shape, q, k, v, o, bound.in[3].as<float>() + row * op.heads, d_o, target(op.act, dq, q_cols, w.dq), target(op.act, dk, k_cols, w.dk),
                           target(op.act, dv, v_cols, w.dv), w.rest, threads);
    narrow(op.act, w.dq, dq, rows, q_cols, threads);
    narrow(op.act, w.dk, dk, keys, k_cols, threads);
    narrow(op.act, w.dv, dv, keys, v_cols, threads);
  });
  note(sequences, executed);
}

void add_sinks(const fathom::Attention& op, const OperandView& sinks, std::int64_t rows, std::byte* o, float* lse, int threads) {
  const std::int64_t size = dtype_bytes(op.act);
  over_ranges(rows, threads, 2 * op.heads * op.v_dim * size, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t h = 0; h < op.heads; ++h) {
        const float sink = value_at(sinks, h);
        float& l = lse[r * op.heads + h];
        // A query that saw nothing has l = -infinity: its output is zero and stays so.
        const float over = std::isinf(l) ? 0.0f : 1.0f / (1.0f + std::exp(sink - l));
        l = std::isinf(l) ? sink : std::max(l, sink) + std::log1p(std::exp(-std::abs(l - sink)));
        std::byte* at = o + (r * op.heads + h) * op.v_dim * size;
        scaled_copy(op.act, at, over, at, op.v_dim, 1);
      }
  });
}

void sink_gradient(const fathom::Attention& op, const OperandView& sinks, std::int64_t rows, const std::byte* o, const float* lse, const std::byte* d_o,
                   bool accumulate, const OperandView& dsinks) {
  const auto at = [&](const std::byte* base, std::int64_t i) {
    return op.act == DType::kF32 ? reinterpret_cast<const float*>(base)[i] : static_cast<float>(reinterpret_cast<const bf16*>(base)[i]);
  };
  for (std::int64_t h = 0; h < op.heads; ++h) {
    const double sink = static_cast<double>(value_at(sinks, h));
    double sum = accumulate ? static_cast<double>(value_at(dsinks, h)) : 0.0;
    for (std::int64_t r = 0; r < rows; ++r) {
      double dot = 0;
      const std::int64_t first = (r * op.heads + h) * op.v_dim;
      for (std::int64_t i = 0; i < op.v_dim; ++i) dot += static_cast<double>(at(d_o, first + i)) * static_cast<double>(at(o, first + i));
      sum -= std::exp(sink - static_cast<double>(lse[r * op.heads + h])) * dot;
    }
    const float value = static_cast<float>(sum);
    store_values({&value, 1}, dsinks.dtype, dsinks.data + h * dtype_bytes(dsinks.dtype));
  }
}

}  // namespace fathom::cpu
