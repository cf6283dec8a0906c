#include "kernels/cpu/norm.hpp"

#include <cstring>

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {
namespace {

using GradKernel = void (*)(const NormGradArgs&, std::int64_t, std::int64_t);

// Each fixed group of rows sums its parameter gradients into its own slice of the workspace; slices are then added in order.
void backward(const Norm& norm, NormGradArgs args, GradKernel kernel, const NormGradients& out, float* workspace, int threads) {
  const std::int64_t parts = part_count(norm.rows);
  const std::int64_t step = part_rows(norm.rows);
  const std::int64_t width = norm.width;
  const bool parameters = out.dgain || out.dbias;
  float* gains = workspace;
  float* biases = workspace + (out.dgain ? parts * width : 0);
  const std::int64_t bytes = step * width * dtype_bytes(norm.type) * 3;
  over_ranges(parts, threads, bytes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      NormGradArgs mine = args;
      mine.dgain = out.dgain ? gains + part * width : nullptr;
      mine.dbias = out.dbias ? biases + part * width : nullptr;
      if (mine.dgain) std::memset(mine.dgain, 0, static_cast<std::size_t>(width) * sizeof(float));
      if (mine.dbias) std::memset(mine.dbias, 0, static_cast<std::size_t>(width) * sizeof(float));
      kernel(mine, part * step, std::min(norm.rows, (part + 1) * step));
    }
  });
  if (!parameters) return;
  const auto reduce = vector_kernels().reduce_parts[storage(out.grad_type)];
  over_ranges(width, threads, parts * 4, 64, [&](std::int64_t begin, std::int64_t end) {
    if (out.dgain) reduce(gains, parts, out.dgain, width, out.accumulate_parameters, begin, end);
    if (out.dbias) reduce(biases, parts, out.dbias, width, out.accumulate_parameters, begin, end);
  });
}

}  // namespace

void rmsnorm(const Norm& norm, const void* x, const void* gain, void* y, float* inverse, int threads, const std::int32_t* indices) {
  const NormArgs args{x, gain, nullptr, y, nullptr, inverse, indices, norm.width, norm.epsilon};
  const auto kernel = vector_kernels().rmsnorm[storage(norm.type)];
  over_ranges(norm.rows, threads, norm.width * dtype_bytes(norm.type) * 2, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
}

void layernorm(const Norm& norm, const void* x, const void* gain, const void* bias, void* y, float* mean, float* inverse, int threads,
               const std::int32_t* indices) {
  const NormArgs args{x, gain, bias, y, mean, inverse, indices, norm.width, norm.epsilon};
  const auto kernel = vector_kernels().layernorm[storage(norm.type)];
  over_ranges(norm.rows, threads, norm.width * dtype_bytes(norm.type) * 2, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
}

std::int64_t norm_workspace_floats(std::int64_t rows, std::int64_t width, bool has_bias) {
  return part_count(rows) * width * (has_bias ? 2 : 1);
}

void rmsnorm_backward(const Norm& norm, const void* x, const void* gain, const float* inverse, const void* dy, const NormGradients& out,
                      float* workspace, int threads) {
  if (out.dbias) throw_internal("rmsnorm_backward: RMSNorm has no bias, so dbias must be null");
  const NormGradArgs args{x, gain, dy, nullptr, inverse, out.dx, out.accumulate_dx, nullptr, nullptr, norm.width};
  backward(norm, args, vector_kernels().rmsnorm_grad[storage(norm.type)], out, workspace, threads);
}

void layernorm_backward(const Norm& norm, const void* x, const void* gain, const float* mean, const float* inverse, const void* dy,
                        const NormGradients& out, float* workspace, int threads) {
  const NormGradArgs args{x, gain, dy, mean, inverse, out.dx, out.accumulate_dx, nullptr, nullptr, norm.width};
  backward(norm, args, vector_kernels().layernorm_grad[storage(norm.type)], out, workspace, threads);
}

}  // namespace fathom::cpu
