// Norms of the op list on the kernels of norm.hpp: whole rows, heads side by side in a row, and columns of wider rows in place.
#include "kernels/cpu/columns.hpp"
#include "kernels/cpu/execute.hpp"
#include "kernels/cpu/norm.hpp"
#include "kernels/cpu/pieces.hpp"

namespace fathom::cpu {
namespace {

Norm norm_of(const OpCall& call, DType type, std::int64_t rows, std::int64_t width) {
  return {type, rows, width, static_cast<float>(call.execution.bind_options().norm_epsilon)};
}

// Dense copies for the gradient of columns in place: of dy (which dx replaces), and of one group where each has a gain of its own.
struct ColumnScratch {
  std::byte *d, *group_x, *group_d;
  float *group_stats, *workspace;
  std::int64_t bytes;
  ColumnScratch(const fathom::RmsNorm& op, std::byte* base) {
    Pieces pieces(base);
    const std::int64_t rows = op.rows.count, size = dtype_bytes(op.act);
    d = pieces.take<std::byte>(rows * op.groups * op.width * size);
    group_x = pieces.take<std::byte>(rows * op.width * size);
    group_d = pieces.take<std::byte>(rows * op.width * size);
    group_stats = pieces.take<float>(rows);
    workspace = pieces.take<float>(norm_workspace_floats(rows * op.groups, op.width, false));
    bytes = pieces.bytes();
  }
};

// `gain`: whether there is one, which decides where the later operands stand.
NormGradients targets(const OpCall& call, bool gain, bool accumulate, bool accumulate_weights, bool bias) {
  NormGradients out;
  out.dx = call.out(0).data;
  out.accumulate_dx = accumulate;
  if (gain && call.bound.out.size() > 1) {
    out.dgain = call.out(1).data;
    out.grad_type = call.out(1).dtype;
  }
  if (bias && call.bound.out.size() > 2) out.dbias = call.out(2).data;
  out.accumulate_parameters = accumulate_weights;
  return out;
}

// dx and dy are the same columns; x is the dense copy that the forward pass saved.
void columns_backward(const fathom::RmsNormBackward& op, const OpCall& call) {
  const fathom::RmsNorm& f = op.forward;
  const bool gain = f.gains > 0;
  const std::int64_t rows = call.rows(), size = dtype_bytes(f.act), cols = f.groups * f.width;
  const ColumnScratch scratch(f, call.scratch);
  const float* stats = call.in(gain ? 2 : 1).as<float>();
  const std::byte* x = call.in(0).data;
  std::byte* at = call.out(0).data + f.offset * size;
  copy_columns(at, f.stride, scratch.d, cols, rows, cols, size, call.threads);
  NormGradients out = targets(call, gain, false, op.accumulate_weights, false);
  out.dx = scratch.d;
  if (f.gains <= 1) {
    rmsnorm_backward(norm_of(call, f.act, rows * f.groups, f.width), x, gain ? call.in(1).data : nullptr, stats, scratch.d, out, scratch.workspace, call.threads);
  } else {
    const std::int64_t grad_size = dtype_bytes(out.grad_type);
    std::byte* dgain = static_cast<std::byte*>(out.dgain);
    for (std::int64_t g = 0; g < f.groups; ++g) {
      copy_columns(x + g * f.width * size, cols, scratch.group_x, f.width, rows, f.width, size, call.threads);
      copy_columns(scratch.d + g * f.width * size, cols, scratch.group_d, f.width, rows, f.width, size, call.threads);
      for (std::int64_t r = 0; r < rows; ++r) scratch.group_stats[r] = stats[r * f.groups + g];
      out.dx = scratch.group_d;
      if (dgain) out.dgain = dgain + g * f.width * grad_size;
      rmsnorm_backward(norm_of(call, f.act, rows, f.width), scratch.group_x, call.in(1).data + g * f.width * size, scratch.group_stats, scratch.group_d, out,
                       scratch.workspace, call.threads);
      copy_columns(scratch.group_d, f.width, scratch.d + g * f.width * size, cols, rows, f.width, size, call.threads);
    }
  }
  copy_columns(scratch.d, cols, at, f.stride, rows, cols, size, call.threads);
}

}  // namespace

std::int64_t column_norm_scratch(const fathom::RmsNorm& op) { return op.stride > 0 ? ColumnScratch(op, nullptr).bytes : 0; }

void run_op(const fathom::RmsNorm& op, const OpCall& call) {
  const void* gain = op.gains > 0 ? call.in(1).data : nullptr;
  float* stats = op.stats ? call.out(1).as<float>() : nullptr;
  if (op.stride == 0) {
    rmsnorm(norm_of(call, op.act, call.rows() * op.groups, op.width), call.in(0).data, gain, call.out(0).data, stats, call.threads);
    return;
  }
  const std::int64_t size = dtype_bytes(op.act), cols = op.groups * op.width;
  std::byte* at = call.out(0).data + op.offset * size;
  if (op.stats) copy_columns(at, op.stride, call.out(2).data, cols, call.rows(), cols, size, call.threads);
  // The norms of a row stand side by side: one call of the kernel per row, or per head where each has its own gain.
  const std::int64_t groups = op.gains > 1 ? 1 : op.groups;
  over_ranges(call.rows(), call.threads, 2 * cols * size, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t g = 0; g < op.groups; g += groups) {
        std::byte* x = at + (r * op.stride + g * op.width) * size;
        const void* own = op.gains > 1 ? static_cast<const std::byte*>(gain) + g * op.width * size : gain;
        rmsnorm(norm_of(call, op.act, groups, op.width), x, own, x, stats ? stats + r * op.groups + g : nullptr, 1);
      }
  });
}

void run_op(const fathom::RmsNormBackward& op, const OpCall& call) {
  const fathom::RmsNorm& f = op.forward;
  if (f.stride > 0) return columns_backward(op, call);
  const bool gain = f.gains > 0;
  rmsnorm_backward(norm_of(call, f.act, call.rows() * f.groups, f.width), call.in(0).data, gain ? call.in(1).data : nullptr,
                   call.in(gain ? 2 : 1).as<float>(), call.in(gain ? 3 : 2).data, targets(call, gain, op.accumulate, op.accumulate_weights, false),
                   reinterpret_cast<float*>(call.scratch), call.threads);
}

void run_op(const fathom::LayerNorm& op, const OpCall& call) {
  // Statistics lie as [2, rows]: all means, then all inverse deviations.
  float* mean = op.stats ? call.out(1).as<float>() : nullptr;
  layernorm(norm_of(call, op.act, call.rows(), op.width), call.in(0).data, op.gain ? call.in(1).data : nullptr, op.bias ? call.in(2).data : nullptr,
            call.out(0).data, mean, mean ? mean + op.rows.count : nullptr, call.threads);
}

void run_op(const fathom::LayerNormBackward& op, const OpCall& call) {
  const fathom::LayerNorm& f = op.forward;
  const float* mean = call.in(f.gain ? 2 : 1).as<float>();
  layernorm_backward(norm_of(call, f.act, call.rows(), f.width), call.in(0).data, f.gain ? call.in(1).data : nullptr, mean, mean + f.rows.count,
                     call.in(f.gain ? 3 : 2).data, targets(call, f.gain, op.accumulate, op.accumulate_weights, f.bias),
                     reinterpret_cast<float*>(call.scratch), call.threads);
}

}  // namespace fathom::cpu
