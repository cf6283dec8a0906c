#include "kernels/cpu/attention_views.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_bf16.hpp"
#include "kernels/cpu/attention_f32.hpp"
#include "kernels/cpu/attention_general.hpp"
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/kv_cache.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

std::int64_t qkv_stride(const fathom::Attention& op) {
  return op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim);
}

AttentionShape f32_shape(const fathom::Attention& op, std::int64_t sequences, std::int64_t rows, const std::int32_t* positions) {
  AttentionShape shape = attention_shape(op, rows, rows);
  shape.batch = sequences;
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
  in.scale = static_cast<float>(attention_scale(op));
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

// Whether the kernels that read one [q | k | v] buffer in the compute type do it; else general_attention with views and conversions.
bool plain(const fathom::Attention& op) {
  if (op.apart || op.shared_kv) return false;
  if (op.act == DType::kF32) return true;
  // Without AMX the f32 kernel on widened rows is the faster one: 12 cores of gpt2-124m, 1024 tokens, one and a half threads of an EPYC (family 26),
  // f32 47 ms forward and 215 backward, bf16 on its own f32 tiles 133 and 500.
  if (isa() == Isa::kAvx512) return false;
  return op.qk_dim == op.v_dim && op.mask.kind == MaskKind::kCausal && op.mask.chunk == 0;
}

// Pairs and keys of a plain core: they depend on the positions where a window or chunks act.
void note_extent(const fathom::Attention& op, const std::int32_t* positions, const Selection* selection, Executed& executed) {
  AttentionExtent sum;
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < op.sequences; ++b) {
    const std::int64_t rows = selection ? selection->per_sequence[static_cast<size_t>(b)] : queries_of(op);
    const AttentionExtent own = attention_extent(op.mask, {positions + at, static_cast<size_t>(rows)}, {positions + at, static_cast<size_t>(rows)});
    sum.pairs += own.pairs, sum.keys += own.keys;
    at += rows;
  }
  executed.pairs = sum.pairs;
  executed.keys = sum.keys;
}

}  // namespace

Support attention_supported(const fathom::Attention& op) {
  const auto known = [](DType type) { return type == DType::kF32 || type == DType::kBF16; };
  if (!known(op.act) || !known(op.kv)) return {false, "attention runs in f32 or bf16, with a cache of f32 or bf16"};
  return op.cached ? cached_attention_supported(op) : Support{};
}

std::int64_t attention_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads) {
  if (!attention_supported(op).ok) return 0;
  if (op.cached) return cached_attention_scratch(op, key_rows, threads);
  if (!plain(op)) return general_attention_scratch(op, key_rows, threads);
  const std::int64_t lse = op.sinks && !op.lse ? 4 * op.rows.count * op.heads + 64 : 0;
  if (op.act == DType::kF32) {
    const auto bytes = attention_f32_scratch_bytes(f32_shape(op, op.sequences, queries_of(op), nullptr), threads);
    return lse + static_cast<std::int64_t>(bytes);
  }
  return lse + attention_forward_scratch_bytes(bf16_inputs(op, op.sequences, queries_of(op), nullptr, nullptr), threads);
}

std::int64_t attention_backward_scratch(const fathom::Attention& op, std::int64_t key_rows, int threads) {
  if (!attention_supported(op).ok) return 0;
  if (!plain(op)) return general_attention_backward_scratch(op, key_rows, threads);
  if (op.act == DType::kF32) {
    const auto bytes = attention_f32_backward_scratch_bytes(f32_shape(op, op.sequences, queries_of(op), nullptr), threads);
    return static_cast<std::int64_t>(bytes);
  }
  return attention_backward_scratch_bytes(bf16_inputs(op, op.sequences, queries_of(op), nullptr, nullptr), threads);
}

void run_attention(const fathom::Attention& op, const BoundOp& bound, const Selection* selection, Executed& executed, void* scratch, int threads) {
  if (op.cached) return run_cached_attention(op, bound, selection, executed, scratch, threads);
  if (!plain(op)) return run_general_attention(op, bound, selection, executed, scratch, threads);
  const std::int32_t* positions = bound.in[1].as<std::int32_t>();
  const std::int64_t stride = qkv_stride(op);
  const std::int64_t out_stride = op.heads * op.v_dim;
  float* lse = op.lse ? bound.out[1].as<float>() : nullptr;
  if (op.sinks && !lse) {  // the sink joins the sum that the kernel leaves
    lse = static_cast<float*>(scratch);
    scratch = static_cast<std::byte*>(scratch) + (4 * op.rows.count * op.heads + 63) / 64 * 64;
  }
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
  if (op.sinks) add_sinks(op, bound.in.back(), begin, bound.out[0].data, lse, threads);
  note_extent(op, positions, selection, executed);
}

void run_attention_backward(const fathom::AttentionBackward& backward, const BoundOp& bound, Executed& executed, void* scratch, int threads) {
  const fathom::Attention& op = backward.forward;
  const size_t last = op.apart ? 2 : 1;
  // With a sink in lse and o the gradients of queries, keys and values are those of the plain formula; the sink's own stands beside them.
  if (op.sinks && bound.out.size() > last) {
    const std::int64_t rows = bound.in[0].rows;
    sink_gradient(op, bound.in.back(), rows, bound.in[2].data, bound.in[3].as<float>(), bound.in[4].data, backward.accumulate_weights, bound.out[last]);
  }
  if (!plain(op)) return run_general_attention_backward(op, bound, executed, scratch, threads);
  const std::int32_t* positions = bound.in[1].as<std::int32_t>();
  const std::int64_t stride = qkv_stride(op);
  const std::int64_t out_stride = op.heads * op.v_dim;
  const std::int64_t k_at = op.heads * op.qk_dim;
  const std::int64_t v_at = k_at + op.kv_heads * op.qk_dim;
  const float* lse = bound.in[3].as<float>();
  note_extent(op, positions, nullptr, executed);
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
  if (!plain(op) && op.act != DType::kF32) return "flash f32 on widened rows (" + std::string(isa_name(std::min(isa(), Isa::kAvx512))) + ")";
  const std::string isa_text(isa_name(isa()));
  return op.act == DType::kF32 ? "flash f32 (" + (isa() == Isa::kAmx ? std::string("avx512") : isa_text) + ")" : "flash bf16 (" + isa_text + ")";
}

}  // namespace fathom::cpu
