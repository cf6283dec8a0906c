// The whole set of vector kernels for the instruction set of the including file, and its table.
#include "kernels/cpu/simd_groups.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {
namespace {

#include "kernels/cpu/vector_elementwise.inl"
#include "kernels/cpu/vector_losses.inl"
#include "kernels/cpu/vector_norm.inl"
#include "kernels/cpu/vector_rows.inl"
#include "kernels/cpu/vector_streams.inl"
#include "kernels/cpu/vector_topk.inl"

#define FATHOM_PAIR(kernel) {kernel<float>, kernel<bf16>}
#define FATHOM_KINDS(kernel, T)                                                                             \
  {kernel<T, ActivationKind::kGeluTanh>, kernel<T, ActivationKind::kGeluErf>, kernel<T, ActivationKind::kSilu>, \
   kernel<T, ActivationKind::kRelu>, kernel<T, ActivationKind::kReluSquared>}

constexpr VectorKernels kTable = {
    .lanes = kLanes,
    .rmsnorm = FATHOM_PAIR(rmsnorm),
    .rmsnorm_grad = FATHOM_PAIR(rmsnorm_grad),
    .layernorm = FATHOM_PAIR(layernorm),
    .layernorm_grad = FATHOM_PAIR(layernorm_grad),
    .rope = FATHOM_PAIR(rope),
    .activation = {FATHOM_KINDS(activation, float), FATHOM_KINDS(activation, bf16)},
    .activation_grad = {FATHOM_KINDS(activation_grad, float), FATHOM_KINDS(activation_grad, bf16)},
    .add = FATHOM_PAIR(add),
    .add_row = FATHOM_PAIR(add_row),
    .scale = FATHOM_PAIR(scale),
    .sum_squares = FATHOM_PAIR(sum_squares),
    .to_bf16 = to_bf16,
    .to_f32 = to_f32,
    .column_sums = FATHOM_PAIR(column_sums),
    .reduce_parts = FATHOM_PAIR(reduce_parts),
    .gather = FATHOM_PAIR(gather),
    .scatter_add = FATHOM_PAIR(scatter_add),
    .scatter_grad = FATHOM_PAIR(scatter_grad),
    .embedding = FATHOM_PAIR(embedding),
    .sum_rows = FATHOM_PAIR(sum_rows),
    .combine = FATHOM_PAIR(combine),
    .combine_grad = FATHOM_PAIR(combine_grad),
    .scores = FATHOM_PAIR(scores),
    .outer_add = FATHOM_PAIR(outer_add),
    .make_keys = make_keys,
    .select_key = select_key,
    .collect = collect,
    .above_threshold = above_threshold,
    .bce = bce,
    .softmax_row = softmax_row,
    .row_log_sum = FATHOM_PAIR(row_log_sum),
    .softmax_grad = FATHOM_PAIR(softmax_grad),
    .argmax = FATHOM_PAIR(argmax),
    .adamw = FATHOM_PAIR(adamw),
    .probe_read = probe_read,
    .probe_copy = probe_copy,
    .probe_copy_stream = probe_copy_stream,
    .probe_update = probe_update,
    .probe_triad = probe_triad,
    .probe_exp = probe_exp,
};

}  // namespace
}  // namespace fathom::cpu
