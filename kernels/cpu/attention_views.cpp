#include "kernels/cpu/attention_views.hpp"

#include <cmath>

#include "kernels/cpu/attention_bf16.hpp"
#include "kernels/cpu/attention_f32.hpp"
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/kv_cache.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

std::int64_t qkv_stride(const fathom::Attention& op) {
  return op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim);
}

AttentionShape f32_shape(const fathom::Attention& op, std::int64_t sequences, std::int64_t rows, const std::int32_t* positions) {
  AttentionShape shape;
  shape.batch = sequences;
  shape.q_rows = rows;
  shape.kv_rows = rows;
  shape.heads = op.heads;
  shape.kv_heads = op.kv_heads;
  shape.d_qk = op.qk_dim;
  shape.d_v = op.v_dim;
  shape.causal = op.mask.kind == MaskKind::kCausal;
  shape.window = op.mask.window;
  shape.chunk = op.mask.chunk;
  // Without window and chunk the order of rows alone decides what is visible.
  if (op.mask.window > 0 || op.mask.chunk > 0) shape.q_positions = shape.kv_positions = positions;
  return shape;
}

AttentionInputs bf16_inputs(const fathom::Attention& op, std::int64_t sequences, std::int64_t rows, const bf16* qkv, const std::int32_t* positions) {
  AttentionInputs in;
  in.batch = sequences;
  in.rows = rows;
  in.heads = static_cast<int>(op.heads);
  in.kv_heads = static_cast<int>(op.kv_heads);
  in.head_dim = static_cast<int>(op.qk_dim);
  in.scale = 1.0f / std::sqrt(static_cast<float>(op.qk_dim));
  in.window = op.mask.window;
  in.positions = op.mask.window > 0 ? positions : nullptr;
  in.q = qkv;
  if (qkv) {  // null when only the scratch size is asked for
    in.k = qkv + op.heads * op.qk_dim;
    in.v = in.k + op.kv_heads * op.qk_dim;
  }
  in.q_stride = in.k_stride = in.v_stride = qkv_stride(op);
  return in;
}

std::int64_t queries_of(const fathom::Attention& op) { return op.sequences > 0 ? op.rows.count / op.sequences : 0; }

// Pairs that a mask leaves of one sequence's selected rows; counted, because a window acts on original positions.
u128 count_pairs(const Mask& mask, const std::int32_t* positions, std::int64_t rows) {
  u128 pairs = 0;
  std::int64_t first = 0;
  for (std::int64_t b = 0; b < rows; ++b) {
    while (mask.window > 0 && positions[b] - positions[first] >= mask.window) ++first;
    while (mask.chunk > 0 && positions[b] / mask.chunk != positions[first] / mask.chunk) ++first;
    pairs += static_cast<u128>(b - first + 1);
  }
  return pairs;
}

// Corrects the executed pairs where a window or chunks act on the positions of selected rows.
void note_pairs(const fathom::Attention& op, const std::int32_t* positions, const Selection* selection, Executed& executed) {
  if (op.mask.kind == MaskKind::kFull || (op.mask.window <= 0 && op.mask.chunk <= 0)) return;
  executed.pairs = 0;
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < op.sequences; ++b) {
    const std::int64_t rows = selection ? selection->per_sequence[static_cast<size_t>(b)] : queries_of(op);
    executed.pairs += count_pairs(op.mask, positions + at, rows);
    at += rows;
  }
}

}  // namespace

Support attention_supported(const fathom::Attention& op) {
  if (op.apart) return {false, "attention with keys of other rows than the queries' has no CPU kernel yet"};
  if (op.sinks) return {false, "attention sinks have no CPU kernel yet"};
  if (op.cached) return cached_attention_supported(op);
  if (op.shared_kv) return {false, "absorbed latent attention has no CPU kernel yet"};
  if (op.act == DType::kBF16) {
    if (op.qk_dim != op.v_dim) return {false, "bf16 attention needs equal key and value head sizes"};
    if (op.mask.kind != MaskKind::kCausal || op.mask.chunk > 0) return {false, "bf16 attention is causal, without chunks"};
  } else if (op.act != DType::kF32) {
    return {false, "attention runs in f32 or bf16"};
  }
  return {};
}

std::int64_t attention_scratch(const fathom::Attention& op, int threads) {
  if (!attention_supported(op).ok) return 0;
  if (op.cached) return cached_attention_scratch(op, threads);
  if (op.act == DType::kF32) {
    const auto bytes = attention_f32_scratch_bytes(f32_shape(op, op.sequences, queries_of(op), nullptr), threads);
    return static_cast<std::int64_t>(bytes);
  }
  return attention_forward_scratch_bytes(bf16_inputs(op, op.sequences, queries_of(op), nullptr, nullptr), threads);
}

std::int64_t attention_backward_scratch(const fathom::Attention& op, int threads) {
  if (!attention_supported(op).ok) return 0;
  if (op.act == DType::kF32) {
    const auto bytes = attention_f32_backward_scratch_bytes(f32_shape(op, op.sequences, queries_of(op), nullptr), threads);
    return static_cast<std::int64_t>(bytes);
  }
  return attention_backward_scratch_bytes(bf16_inputs(op, op.sequences, queries_of(op), nullptr, nullptr), threads);
}

void run_attention(const fathom::Attention& op, const BoundOp& bound, const Selection* selection, Executed& executed, void* scratch, int threads) {
  if (op.cached) return run_cached_attention(op, bound, selection, executed, scratch, threads);
  const std::int32_t* positions = bound.in[1].as<std::int32_t>();
  const std::int64_t stride = qkv_stride(op);
  const std::int64_t out_stride = op.heads * op.v_dim;
  float* lse = op.lse ? bound.out[1].as<float>() : nullptr;
  // Ragged selections run sequence by sequence; equal ones in one call.
  const std::int64_t calls = selection ? op.sequences : 1;
  std::int64_t begin = 0;
  for (std::int64_t call = 0; call < calls; ++call) {
    const std::int64_t rows = selection ? selection->per_sequence[static_cast<size_t>(call)] : queries_of(op);
    const std::int64_t sequences = selection ? 1 : op.sequences;
    float* call_lse = lse ? lse + begin * op.heads : nullptr;
    if (op.act == DType::kF32) {
      const float* qkv = bound.in[0].as<float>() + begin * stride;
      const float* k = qkv + op.heads * op.qk_dim;
      attention_f32(f32_shape(op, sequences, rows, positions + begin), {qkv, stride}, {k, stride}, {k + op.kv_heads * op.qk_dim, stride},
                    View{bound.out[0].as<float>() + begin * out_stride, out_stride}, call_lse, scratch, threads);
    } else {
      const AttentionInputs in = bf16_inputs(op, sequences, rows, bound.in[0].as<bf16>() + begin * stride, positions + begin);
      attention_forward(in, bound.out[0].as<bf16>() + begin * out_stride, out_stride, call_lse, scratch, threads);
    }
    begin += rows * sequences;
  }
  note_pairs(op, positions, selection, executed);
}

void run_attention_backward(const fathom::Attention& op, const BoundOp& bound, Executed& executed, void* scratch, int threads) {
  const std::int32_t* positions = bound.in[1].as<std::int32_t>();
  const std::int64_t stride = qkv_stride(op);
  const std::int64_t out_stride = op.heads * op.v_dim;
  const std::int64_t k_at = op.heads * op.qk_dim;
  const std::int64_t v_at = k_at + op.kv_heads * op.qk_dim;
  const float* lse = bound.in[3].as<float>();
  note_pairs(op, positions, nullptr, executed);
  if (op.act == DType::kF32) {
    const float* qkv = bound.in[0].as<float>();
    float* d = bound.out[0].as<float>();
    attention_f32_backward(f32_shape(op, op.sequences, queries_of(op), positions), {qkv, stride}, {qkv + k_at, stride}, {qkv + v_at, stride},
                           {bound.in[2].as<float>(), out_stride}, lse, {bound.in[4].as<float>(), out_stride}, View{d, stride},
                           View{d + k_at, stride}, View{d + v_at, stride}, scratch, threads);
    return;
  }
  const AttentionInputs in = bf16_inputs(op, op.sequences, queries_of(op), bound.in[0].as<bf16>(), positions);
  AttentionGradInputs grad;
  grad.out = bound.in[2].as<bf16>();
  grad.dout = bound.in[4].as<bf16>();
  grad.out_stride = grad.dout_stride = out_stride;
  grad.lse = lse;
  bf16* d = bound.out[0].as<bf16>();
  attention_backward(in, grad, AttentionGrads{d, d + k_at, d + v_at, stride, stride, stride}, scratch, threads);
}

std::string attention_implementation(const fathom::Attention& op) {
  if (op.cached) return cached_attention_implementation(op);
  const std::string isa_text(isa_name(isa()));
  return op.act == DType::kF32 ? "flash f32 (" + (isa() == Isa::kAmx ? std::string("avx512") : isa_text) + ")" : "flash bf16 (" + isa_text + ")";
}

}  // namespace fathom::cpu
