#include "kernels/cpu/grouped_gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/gemv_call.hpp"

#if FATHOM_CPU

namespace fathom::cpu {
namespace {

std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

const std::byte* at(const void* base, std::int64_t elements, DType type) { return static_cast<const std::byte*>(base) + elements * dtype_bytes(type); }
std::byte* at(void* base, std::int64_t elements, DType type) { return static_cast<std::byte*>(base) + elements * dtype_bytes(type); }

}  // namespace

GroupedGemm::GroupedGemm(const fathom::Gemm& op, std::int64_t expert_room, int threads) : op_(op), threads_(threads) {
  max_rows_ = op.tokens > 0 ? std::min(op.tokens, op.rows.count) : op.rows.count;
  GemmOptions options;
  options.dtype = op.act;
  options.out = op.result;
  options.threads = threads;
  options.accumulate = op.accumulate;
  switch (op.role) {
    case GemmRole::kForward: {
      constexpr std::int64_t kStreamed = 8;  // see gemv.hpp
      options.bias = op.bias;
      const bool few = op.rows.expected() <= static_cast<double>(kStreamed * op.experts);
      if (few) gemv_rows_ = kStreamed;
      if (few && max_rows_ <= kStreamed) return;
      options.packed = !few && expert_room >= 0;
      cache_.emplace(std::max<std::int64_t>(1, max_rows_), op.out, op.in, options);
      if (options.packed && cache_->packed_bytes() > expert_room) {
        options.packed = false;
        cache_.emplace(std::max<std::int64_t>(1, max_rows_), op.out, op.in, options);
      }
      packed_ = options.packed;
      break;
    }
    case GemmRole::kInputGradient:
      options.transpose_w = true;
      cache_.emplace(std::max<std::int64_t>(1, max_rows_), op.in, op.out, options);
      break;
    case GemmRole::kWeightGradient:
      options.transpose_x = true;
      for (std::int64_t rows = kStep; rows - kStep < max_rows_; rows += kStep) weight_plans_.emplace_back(GemmShape{op.in, op.out, rows}, options);
      break;
  }
}

std::int64_t GroupedGemm::scratch_bytes() const {
  const std::int64_t padded = (max_rows_ + kStep - 1) / kStep * kStep;
  const std::int64_t copies = aligned(padded * op_.in * 4) + aligned(padded * op_.out * 4);
  std::int64_t product = cache_ ? cache_->scratch_bytes() : 0;
  for (const GemmPlan& plan : weight_plans_) product = std::max(product, plan.scratch_bytes());
  return copies + product;
}

void GroupedGemm::run_rows(const Call& call, std::int64_t expert) const {
  const std::int64_t begin = call.offsets[expert], rows = call.offsets[expert + 1] - begin;
  if (rows == 0) return;
  const bool forward = op_.role == GemmRole::kForward;
  const std::int64_t from = forward ? op_.in : op_.out, to = forward ? op_.out : op_.in;
  const std::byte* x = at(call.x, begin * from, op_.act);
  std::byte* y = at(call.y, begin * to, op_.result);
  const float* bias = call.bias ? call.bias + expert * op_.out : nullptr;
  const std::byte* w = at(call.w, expert * op_.in * op_.out, op_.weight);  // packed copies stand where the plain ones stood
  if (rows <= gemv_rows_) {
    Gemv product = gemv_call(op_, rows, GemvLayout::kKN);
    product.x = x;
    product.w = w;
    product.y = y;
    product.bias = bias;
    product.x_stride = op_.in;
    product.w_stride = product.y_stride = op_.out;
    return gemv(product, threads_);
  }
  const GemmPlan& plan = cache_->plan(rows);
  const std::int64_t padded = plan.padded_rows();
  std::byte* x_copy = static_cast<std::byte*>(call.scratch);
  std::byte* y_copy = x_copy + aligned(padded * from * 4);
  std::byte* rest = y_copy + aligned(padded * to * 4);
  if (padded == rows || (!op_.accumulate && begin + padded <= call.y_room)) {
    plan.run(x, w, y, rest, bias);
    return;
  }
  const auto x_bytes = static_cast<size_t>(rows * from * dtype_bytes(op_.act)), y_bytes = static_cast<size_t>(rows * to * dtype_bytes(op_.result));
  std::memcpy(x_copy, x, x_bytes);
  std::memset(x_copy + x_bytes, 0, static_cast<size_t>((padded - rows) * from * dtype_bytes(op_.act)));
  if (op_.accumulate) std::memcpy(y_copy, y, y_bytes);
  plan.run(x_copy, w, y_copy, rest, bias);
  std::memcpy(y, y_copy, y_bytes);
}

void GroupedGemm::run_weight_gradient(const Call& call, std::int64_t expert) const {
  const std::int64_t begin = call.offsets[expert], rows = call.offsets[expert + 1] - begin;
  std::byte* dw = at(call.y, expert * op_.in * op_.out, op_.result);
  if (rows == 0) {
    if (!op_.accumulate) std::memset(dw, 0, static_cast<size_t>(op_.in * op_.out * dtype_bytes(op_.result)));
    return;
  }
  const GemmPlan& plan = weight_plan(rows);
  const std::int64_t padded = plan.shape().k;
  std::byte* x_copy = static_cast<std::byte*>(call.scratch);
  std::byte* y_copy = x_copy + aligned(padded * op_.in * 4);
  std::byte* rest = y_copy + aligned(padded * op_.out * 4);
  // Rows are summed over, so padded ones must be zeros, not the next expert's.
  const auto with_zeros = [&](const void* from, std::int64_t width, std::byte* to) -> const void* {
    const std::byte* source = at(from, begin * width, op_.act);
    if (padded == rows) return source;
    const auto bytes = static_cast<size_t>(rows * width * dtype_bytes(op_.act));
    std::memcpy(to, source, bytes);
    std::memset(to + bytes, 0, static_cast<size_t>((padded - rows) * width * dtype_bytes(op_.act)));
    return to;
  };
  plan.run(with_zeros(call.x, op_.in, x_copy), with_zeros(call.w, op_.out, y_copy), dw, rest);
}

void GroupedGemm::run(const Call& call) const {
  for (std::int64_t expert = 0; expert < op_.experts; ++expert) {
    if (op_.role == GemmRole::kWeightGradient)
      run_weight_gradient(call, expert);
    else
      run_rows(call, expert);
  }
}

std::int64_t GroupedGemm::executed_flops(const std::int32_t* offsets) const {
  std::int64_t flops = 0;
  for (std::int64_t expert = 0; expert < op_.experts; ++expert) {
    const std::int64_t rows = offsets[expert + 1] - offsets[expert];
    if (rows == 0) continue;
    if (!weight_plans_.empty())
      flops += weight_plan(rows).executed_flops();
    else
      flops += rows <= gemv_rows_ ? 2 * rows * op_.in * op_.out : cache_->plan(rows).executed_flops();
  }
  return flops;
}

std::string GroupedGemm::impl() const {
  if (!weight_plans_.empty()) return weight_plans_.back().impl() + ", per expert";
  const std::string streamed = fmt::format("gemv {}", isa_name(std::min(isa(), Isa::kAvx512)));
  if (!cache_) return streamed + ", per expert";
  const std::string blocked = cache_->plan(std::min(max_rows_, gemv_rows_ + 1)).impl() + (packed_ ? ", packed" : "");
  return (gemv_rows_ > 0 ? fmt::format("{} up to {} rows, then {}", streamed, gemv_rows_, blocked) : blocked) + ", per expert";
}

}  // namespace fathom::cpu

#endif
