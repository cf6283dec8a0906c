#include "kernels/cpu/part_gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/columns.hpp"
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/gemv_call.hpp"
#include "lib/error.hpp"

#if FATHOM_CPU

namespace fathom::cpu {
namespace {

constexpr std::int64_t kStreamedRows = 8;  // see gemv.hpp

std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
std::int64_t padded(std::int64_t rows) { return (rows + 31) / 32 * 32; }

}  // namespace

PartGemm::PartGemm(const fathom::Gemm& op, int threads) : op_(op), threads_(threads) {
  if (op.transposed || op.experts > 1) throw_internal("products on parts of rows are neither transposed nor grouped");
  GemmOptions options;
  options.dtype = op.act;
  options.out = op.result;
  options.threads = threads;
  options.accumulate = op.accumulate;
  options.bias = op.bias && op.role == GemmRole::kForward;
  GemmShape shape{op.rows.count, op.out, op.in};
  if (op.role == GemmRole::kInputGradient) {
    shape = {op.rows.count, op.in, op.out};
    options.transpose_w = true;
  }
  if (op.role == GemmRole::kWeightGradient) {
    shape = {op.in, op.out, op.rows.count};
    options.transpose_x = true;
  }
  if (op.rows.routed() && op.role != GemmRole::kWeightGradient)
    cache_.emplace(std::max<std::int64_t>(1, op.rows.count), shape.n, shape.k, options);
  else
    plan_.emplace(shape, options);
}

bool PartGemm::streams(std::int64_t rows) const { return op_.role == GemmRole::kForward && rows <= kStreamedRows; }

std::int64_t PartGemm::scratch_bytes() const {
  const std::int64_t rows = padded(op_.rows.count);
  const std::int64_t product = plan_ ? plan_->scratch_bytes() : cache_->scratch_bytes();
  const std::int64_t sums = op_.role == GemmRole::kWeightGradient ? 4 * column_sums_workspace_floats(op_.rows.count, op_.out) : 0;
  return aligned(rows * op_.in * 4) + aligned(rows * op_.out * 4) + std::max(product, sums);
}

void PartGemm::run_part(const Call& call, std::int64_t part) const {
  const std::int64_t size = dtype_bytes(op_.act), result_size = dtype_bytes(op_.result);
  const std::int64_t weights = part * op_.in * op_.out;
  const auto source = [&](const void* base, std::int64_t at) { return static_cast<const std::byte*>(base) + at * size; };
  const auto target = [&](std::int64_t at) { return static_cast<std::byte*>(call.result) + at * result_size; };
  const float* bias = call.bias ? call.bias + part * op_.out : nullptr;
  if (streams(call.rows)) {
    Gemv product = gemv_call(op_, call.rows, GemvLayout::kKN);
    product.x = source(call.first, in_at(part));
    product.w = source(call.second, weights);
    product.y = target(out_at(part));
    product.bias = bias;
    product.x_stride = in_stride();
    product.w_stride = op_.out;
    product.y_stride = out_stride();
    return gemv(product, threads_);
  }
  const std::int64_t rows = padded(op_.rows.count);
  std::byte* in_copy = static_cast<std::byte*>(call.scratch);
  std::byte* out_copy = in_copy + aligned(rows * op_.in * 4);
  std::byte* rest = out_copy + aligned(rows * op_.out * 4);
  // A dense copy of columns; rows behind the executed ones are padding, finite and never read back.
  const auto dense = [&](const void* base, std::int64_t at, std::int64_t stride, std::int64_t cols, std::byte* copy) {
    copy_columns(source(base, at), stride, copy, cols, call.rows, cols, size, threads_);
    std::memset(copy + call.rows * cols * size, 0, static_cast<std::size_t>((rows - call.rows) * cols * size));
    return copy;
  };
  if (op_.role == GemmRole::kWeightGradient) {
    dense(call.first, in_at(part), in_stride(), op_.in, in_copy);
    dense(call.second, out_at(part), out_stride(), op_.out, out_copy);
    plan(call.rows).run(in_copy, out_copy, target(weights), rest);
    if (call.db)
      column_sums(op_.act, out_copy, nullptr, call.rows, op_.out, call.db_type, static_cast<std::byte*>(call.db) + part * op_.out * dtype_bytes(call.db_type),
                  op_.accumulate, reinterpret_cast<float*>(rest), threads_);
    return;
  }
  const bool forward = op_.role == GemmRole::kForward;
  const std::int64_t to_stride = forward ? out_stride() : in_stride(), to_cols = forward ? op_.out : op_.in;
  std::byte* to = target(forward ? out_at(part) : in_at(part));
  std::byte* from_copy = forward ? in_copy : out_copy;
  std::byte* to_copy = forward ? out_copy : in_copy;
  if (forward)
    dense(call.first, in_at(part), in_stride(), op_.in, from_copy);
  else
    dense(call.first, out_at(part), out_stride(), op_.out, from_copy);
  if (op_.accumulate) copy_columns(to, to_stride, to_copy, to_cols, call.rows, to_cols, result_size, threads_);
  plan(call.rows).run(from_copy, source(call.second, weights), to_copy, rest, bias);
  copy_columns(to_copy, to_cols, to, to_stride, call.rows, to_cols, result_size, threads_);
}

void PartGemm::run(const Call& call) const {
  if (call.rows == 0 && op_.role != GemmRole::kWeightGradient) return;
  for (std::int64_t part = 0; part < op_.batch; ++part) run_part(call, part);
}

std::int64_t PartGemm::executed_flops(std::int64_t rows) const {
  if (rows == 0) return 0;
  return op_.batch * (streams(rows) ? 2 * rows * op_.in * op_.out : plan(rows).executed_flops());
}

std::string PartGemm::impl() const {
  const std::string parts = op_.batch > 1 ? fmt::format(", {} parts", op_.batch) : ", copied columns";
  if (streams(op_.rows.count)) return fmt::format("gemv {}", isa_name(std::min(isa(), Isa::kAvx512))) + parts;
  return plan(op_.rows.count).impl() + parts;
}

}  // namespace fathom::cpu

#endif
