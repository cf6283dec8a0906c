// Checks, window starts and the choice of twin for attention_bf16.hpp.
#include "kernels/cpu/attention_bf16.hpp"

#include <algorithm>
#include <string>

#include "kernels/cpu/attention_bf16_detail.hpp"
#include "lib/error.hpp"

#if FATHOM_CPU

namespace fathom::cpu {
namespace {

using detail::AttentionCall;

void require(bool ok, const char* what) {
  if (!ok) throw_internal(std::string("attention_bf16: ") + what);
}

AttentionCall make_call(const AttentionInputs& in, int threads) {
  require(in.batch >= 0 && in.rows >= 0, "batch and rows must not be negative");
  require(in.heads > 0 && in.kv_heads > 0 && in.heads % in.kv_heads == 0, "heads must be a multiple of kv_heads");
  require(in.head_dim > 0, "head_dim must be positive");
  require(in.scale > 0.0f, "scale must be positive");
  require(in.window >= 0, "window must not be negative");
  require(threads > 0, "threads must be positive");
  AttentionCall call;
  call.in = in;
  call.threads = threads;
  for (std::int64_t s = 0; s < in.batch; ++s) {
    const std::int64_t rows = in.begin(s + 1) - in.begin(s);
    require(rows >= 0, "sequence_begin must ascend");
    call.max_rows = std::max(call.max_rows, rows);
  }
  call.total_rows = in.total_rows();
  require(call.total_rows < (std::int64_t{1} << 31), "too many rows");
  call.total_padded = detail::padded_begin(call.total_rows, in.batch) + 32;
  return call;
}

bool use_amx(const AttentionInputs& in, Isa level) { return level >= Isa::kAmx && in.head_dim <= detail::kMaxAmxHead; }

std::int64_t first_key_bytes(const AttentionCall& call) {
  return call.in.window > 0 ? (call.total_rows * std::int64_t{sizeof(std::int32_t)} + 63) / 64 * 64 : 0;
}

// Aligns scratch and fills the window starts at its front: two pointers, one pass per sequence.
void prepare(AttentionCall& call, void* scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch);
  call.scratch = reinterpret_cast<char*>((address + 63) / 64 * 64);
  if (call.in.window == 0) return;
  auto* first_key = reinterpret_cast<std::int32_t*>(call.scratch);
  for (std::int64_t s = 0; s < call.in.batch; ++s) {
    const std::int64_t begin = call.in.begin(s), end = call.in.begin(s + 1);
    const auto position = [&](std::int64_t row) { return call.in.positions ? std::int64_t{call.in.positions[row]} : row - begin; };
    std::int64_t first = begin;
    for (std::int64_t row = begin; row < end; ++row) {
      while (position(row) - position(first) >= call.in.window) ++first;
      first_key[row] = static_cast<std::int32_t>(first - begin);
    }
  }
  call.first_key = first_key;
  call.scratch += first_key_bytes(call);
}

}  // namespace

namespace detail {

std::int64_t group_partial_bytes(const AttentionCall& call, int dp) {
  return call.in.heads == call.in.kv_heads ? 0 : std::int64_t{8} * call.in.heads * call.total_padded * dp;
}

void write_group_gradients(const AttentionCall& call, const float* partials, int dp, const AttentionGrads& out) {
  const AttentionInputs& in = call.in;
  const int group = in.heads / in.kv_heads;
  const std::int64_t part = call.total_padded * dp;
#pragma omp parallel for schedule(static) num_threads(call.threads)
  for (std::int64_t task = 0; task < in.batch * in.kv_heads; ++task) {
    const std::int64_t s = task / in.kv_heads, head = task % in.kv_heads, begin = in.begin(s);
    for (std::int64_t r = 0; r < in.begin(s + 1) - begin; ++r) {
      const float* from = partials + 2 * head * group * part + (padded_begin(begin, s) + r) * dp;
      bf16* const dk = out.dk + (begin + r) * out.dk_stride + head * in.head_dim;
      bf16* const dv = out.dv + (begin + r) * out.dv_stride + head * in.head_dim;
      for (int d = 0; d < in.head_dim; ++d) {
        float k = 0, v = 0;
        for (int g = 0; g < group; ++g) {
          k += from[2 * g * part + d];
          v += from[(2 * g + 1) * part + d];
        }
        dk[d] = bf16(k * in.scale);
        dv[d] = bf16(v);
      }
    }
  }
}

}  // namespace detail

std::int64_t attention_forward_scratch_bytes(const AttentionInputs& in, int threads, Isa level) {
  const AttentionCall call = make_call(in, threads);
  return 64 + first_key_bytes(call) + (use_amx(in, level) ? detail::forward_bytes_amx(call) : detail::forward_bytes_f32(call));
}

std::int64_t attention_backward_scratch_bytes(const AttentionInputs& in, int threads, Isa level) {
  const AttentionCall call = make_call(in, threads);
  return 64 + first_key_bytes(call) + (use_amx(in, level) ? detail::backward_bytes_amx(call) : detail::backward_bytes_f32(call));
}

void attention_forward(const AttentionInputs& in, bf16* out, std::int64_t out_stride, float* lse, void* scratch, int threads,
                       Isa level) {
  AttentionCall call = make_call(in, threads);
  if (call.total_rows == 0) return;
  prepare(call, scratch);
#if defined(__x86_64__)
  if (use_amx(in, level)) return detail::forward_amx(call, out, out_stride, lse);
  if (level >= Isa::kAvx512) return detail::forward_avx512(call, out, out_stride, lse);
  if (level == Isa::kAvx2) return detail::forward_avx2(call, out, out_stride, lse);
#endif
  detail::forward_base(call, out, out_stride, lse);
}

void attention_backward(const AttentionInputs& in, const AttentionGradInputs& grad, const AttentionGrads& out, void* scratch,
                        int threads, Isa level) {
  AttentionCall call = make_call(in, threads);
  if (call.total_rows == 0) return;
  prepare(call, scratch);
#if defined(__x86_64__)
  if (use_amx(in, level)) return detail::backward_amx(call, grad, out);
  if (level >= Isa::kAvx512) return detail::backward_avx512(call, grad, out);
  if (level == Isa::kAvx2) return detail::backward_avx2(call, grad, out);
#endif
  detail::backward_base(call, grad, out);
}

}  // namespace fathom::cpu

#endif  // FATHOM_CPU
