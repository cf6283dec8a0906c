// Backward attention where AMX is there: for now the AVX-512 twin.
#include "kernels/cpu/attention_bf16_detail.hpp"

#if FATHOM_CPU
namespace fathom::cpu::detail {
std::int64_t backward_bytes_amx(const AttentionCall& call) { return backward_bytes_f32(call); }
void backward_amx(const AttentionCall& call, const AttentionGradInputs& grad, const AttentionGrads& out) {
  backward_avx512(call, grad, out);
}
}  // namespace fathom::cpu::detail
#endif
