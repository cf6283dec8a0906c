// Checks and the choice of twin for gemv.hpp.
#include "kernels/cpu/gemv.hpp"

#include "kernels/cpu/gemv_detail.hpp"
#include "lib/error.hpp"

#if FATHOM_CPU

namespace fathom::cpu {

void gemv(const Gemv& call, int threads, Isa level) {
  const auto supported = [](DType type) { return type == DType::kBF16 || type == DType::kF32; };
  if (call.m < 0 || call.n < 0 || call.k < 0 || threads < 1) throw_internal("gemv: negative size or no thread");
  if (!supported(call.dtype) || !supported(call.out)) throw_internal("gemv: only f32 and bf16");
  if (call.w_stride < (call.layout == GemvLayout::kNK ? call.k : call.n)) throw_internal("gemv: rows of W overlap");
  if (call.m > 1 && (call.x_stride < call.k || call.y_stride < call.n)) throw_internal("gemv: rows of x or y overlap");
  if (call.m == 0 || call.n == 0) return;
#if defined(__x86_64__)
  if (level == Isa::kAvx512 && bf16_products(level)) return detail::gemv_avx512_bf16(call, threads);
  if (level >= Isa::kAvx512) return detail::gemv_avx512(call, threads);
  if (level == Isa::kAvx2) return detail::gemv_avx2(call, threads);
#endif
  detail::gemv_base(call, threads);
}

}  // namespace fathom::cpu

#endif  // FATHOM_CPU
