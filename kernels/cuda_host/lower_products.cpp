// Matrix products: which of the library's products an op is, at which row count, and what stands around it.
//
//   forward          Y[rows,out] = X[rows,in] W[in,out] (+ bias)
//   input gradient   dX[rows,in] = dY[rows,out] W^T
//   weight gradient  dW[in,out] = X^T dY; a transposed weight [out,in] has dW = dY^T X
// Rows that a routed block decides are padded to a bucket (rows.hpp): the arena has room for whole row tiles, and nobody reads the padding. A
// weight gradient sums over its rows, so there the count is exact.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda_host/lower.hpp"
#include "kernels/cuda_host/rows.hpp"
#include "lib/error.hpp"

namespace fathom::cuda {

Matmul product_of(const Gemm& op, std::int64_t rows) {
  Matmul p;
  p.type = op.act;
  p.result = op.result;
  p.beta = op.accumulate ? 1.0f : 0.0f;
  p.batch = static_cast<std::int32_t>(op.batch);
  const std::int64_t part = op.batch_stride > 0 ? op.batch_stride : op.in;
  const std::int64_t x_row = op.in_stride > 0 ? op.in_stride : op.batch * op.in, y_row = op.out_stride > 0 ? op.out_stride : op.batch * op.out;
  const std::int64_t w_row = op.transposed ? op.in : op.out, w_part = op.in * op.out;
  switch (op.role) {
    case GemmRole::kForward:
      p.m = rows, p.n = op.out, p.k = op.in;
      p.lda = x_row, p.ldb = w_row, p.ldc = y_row;
      p.batch_a = part, p.batch_b = w_part, p.batch_c = op.out;
      p.transpose_b = op.transposed;
      p.bias = op.bias;
      p.bias_type = op.weight;
      break;
    case GemmRole::kInputGradient:
      p.m = rows, p.n = op.in, p.k = op.out;
      p.lda = y_row, p.ldb = w_row, p.ldc = x_row;
      p.batch_a = op.out, p.batch_b = w_part, p.batch_c = part;
      p.transpose_b = !op.transposed;
      break;
    case GemmRole::kWeightGradient:
      p.transpose_a = true;
      p.k = rows;
      if (op.transposed) {
        p.m = op.out, p.n = op.in;
        p.lda = y_row, p.ldb = x_row;
        p.batch_a = op.out, p.batch_b = part;
      } else {
        p.m = op.in, p.n = op.out;
        p.lda = x_row, p.ldb = y_row;
        p.batch_a = part, p.batch_b = op.out;
      }
      p.ldc = w_row;
      p.batch_c = w_part;
      break;
  }
  if (p.batch == 1) p.batch_a = p.batch_b = p.batch_c = 0;
  // Buffers of the arena are aligned to 64 bytes; column offsets and parts of a row begin where they do.
  const std::int64_t least = std::min(dtype_bytes(op.act), std::min(dtype_bytes(op.result), dtype_bytes(op.weight)));
  std::int64_t steps = op.out_offset | p.batch_a | p.batch_b | p.batch_c;
  p.alignment = kPlanAlignment;
  while (p.alignment > 1 && steps * least % p.alignment != 0) p.alignment /= 2;
  return p;
}

namespace {

Call run_product(PlannedProduct planned, const void* a, const void* b, void* c, const void* bias) {
  return [=](RunState& run) {
    Text text;
    must(run.module->matmul(run.device, planned.plan, a, b, c, bias, &text), "gemm", text);
    run.padded_flops += planned.flops;
  };
}

const std::byte* at(const void* base, std::int64_t elements, DType type) { return static_cast<const std::byte*>(base) + elements * dtype_bytes(type); }
std::byte* at(void* base, std::int64_t elements, DType type) { return static_cast<std::byte*>(base) + elements * dtype_bytes(type); }

}  // namespace

// Column sums of dY: a router's weight gradient in which every row counts once.
void Lowering::bias_gradient(const Gemm& op) {
  if (!has_out(1)) return;
  RouterBackwardArgs a;
  a.type = op.act;
  a.grad_type = out(1).dtype;
  a.rows = op.rows.count;
  a.width = op.out;
  a.all_weight_rows = true;
  a.no_input = true;
  a.accumulate = op.accumulate;
  a.y = in(1).data;
  a.dscores = context_.ones;
  a.dw = out(1).data;
  a.partials = scratch<float>(router_partial_floats(a));
  launch(&Kernels::router_backward, a, "bias gradient", [routed = op.rows.routed()](RouterBackwardArgs& now, RunState& run) {
    if (routed && run.host_rows) now.rows = run.rows;
  });
}

void Lowering::operator()(const Gemm& op) {
  if (op.experts > 1) return grouped(op);
  // cuBLASLt adds no bf16 bias to an f32 result (a router's scores): one expert that owns all declared rows does.
  if (op.role == GemmRole::kForward && op.bias && op.result != op.weight && op.batch == 1 && op.in_stride == 0 && op.out_stride == 0 && op.out_offset == 0) {
    GroupedArgs g = grouped_product_of(op, bound_);
    g.offsets = context_.constants.add(std::vector<std::int32_t>{0, static_cast<std::int32_t>(op.rows.count)});
    const std::int32_t all[] = {0, static_cast<std::int32_t>(op.rows.count)};
    return launch(&Kernels::grouped_product, g, "gemm with a bias of another type", [flops = grouped_flops(g, all)](GroupedArgs&, RunState& run) { run.padded_flops += flops; });
  }
  const bool weights = op.role == GemmRole::kWeightGradient;
  const void *a = in(0).data, *b = in(1).data;
  void* c = out(0).data;
  switch (op.role) {
    case GemmRole::kForward: c = at(c, op.out_offset, op.result); break;
    case GemmRole::kInputGradient: a = at(a, op.out_offset, op.act); break;
    case GemmRole::kWeightGradient:
      b = at(b, op.out_offset, op.act);
      if (op.transposed) std::swap(a, b);
      break;
  }
  const void* bias = op.role == GemmRole::kForward && op.bias ? in(2).data : nullptr;
  const std::int64_t c_bytes = out(0).rows * out(0).cols * dtype_bytes(out(0).dtype);
  const std::int64_t declared = op.rows.count;
  if (!op.rows.routed()) {
    if (declared > 0)
      push(run_product(context_.plan(product_of(op, declared)), a, b, c, bias));
    else if (weights && !op.accumulate)
      clear(c, c_bytes, "clearing a weight gradient without rows");
  } else if (weights) {
    // The sum is over exactly the rows that were taken; a new count finds its algorithm when it first occurs.
    push([=, find = context_.plan](RunState& run) {
      const std::int64_t rows = run.host_rows ? run.rows : declared;
      Text text;
      if (rows > 0)
        run_product(find(product_of(op, rows)), a, b, c, nullptr)(run);
      else if (!op.accumulate)
        must(run.module->clear(run.device, c, c_bytes, &text), "clearing a weight gradient without rows", text);
    });
  } else {
    // Algorithms of all buckets are found before anything is timed.
    std::vector<Call> products;
    const std::vector<std::int64_t> buckets = row_buckets(declared);
    for (const std::int64_t bucket : buckets) products.push_back(run_product(context_.plan(product_of(op, bucket)), a, b, c, bias));
    push([=](RunState& run) {
      const std::int64_t rows = run.host_rows ? run.rows : declared;
      if (rows == 0) return;  // nobody took this block: its weights are not touched
      products.at(static_cast<std::size_t>(std::lower_bound(buckets.begin(), buckets.end(), rows) - buckets.begin()))(run);
    });
  }
  if (weights) bias_gradient(op);
}

GroupedArgs grouped_product_of(const Gemm& op, const BoundOp& bound) {
  GroupedArgs g;
  g.type = op.act;
  g.result = bound.out.at(0).dtype;
  g.accumulate = op.accumulate;
  g.experts = static_cast<int>(op.experts);
  g.rows = op.rows.count;
  g.offsets = bound.in.back().as<std::int32_t>();
  g.a = bound.in.at(0).data;
  g.b = bound.in.at(1).data;
  g.c = bound.out.at(0).data;
  switch (op.role) {
    case GemmRole::kForward:
      g.n = op.out, g.k = op.in;
      g.transpose_b = op.transposed;
      g.bias = op.bias ? bound.in.at(2).data : nullptr;
      break;
    case GemmRole::kInputGradient:
      g.n = op.in, g.k = op.out;
      g.transpose_b = !op.transposed;
      break;
    case GemmRole::kWeightGradient:
      g.weights = true;
      g.m = op.transposed ? op.out : op.in, g.n = op.transposed ? op.in : op.out;
      if (op.transposed) std::swap(g.a, g.b);
      break;
  }
  return g;
}

// All experts in one launch; how many rows each has stays on the device.
void Lowering::grouped(const Gemm& op) {
  launch(&Kernels::grouped_product, grouped_product_of(op, bound_), "grouped gemm");
  if (op.role != GemmRole::kWeightGradient || !has_out(1)) return;
  GroupedBiasArgs a;
  a.type = op.act;
  a.grad_type = out(1).dtype;
  a.accumulate = op.accumulate;
  a.experts = static_cast<int>(op.experts);
  a.n = op.out;
  a.offsets = in(2).as<std::int32_t>();
  a.dy = in(1).data;
  a.db = out(1).data;
  launch(&Kernels::grouped_bias, a, "bias gradient of experts");
}

}  // namespace fathom::cuda
