#include "kernels/cpu/activation.hpp"

#include "kernels/cpu/ranges.hpp"

namespace fathom::cpu {
namespace {

// Dense operands are one long row, which is cut into pieces of 4096 elements: few rows still spread over all threads.
constexpr std::int64_t kPiece = 4096;

template <class Args, class Kernel>
void run(const Activation& shape, bool dense, Args args, Kernel kernel, std::int64_t streams, int threads) {
  const std::int64_t bytes = dtype_bytes(shape.type) * streams;
  if (!dense) {
    over_ranges(shape.rows, threads, shape.columns * bytes, 1, [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
    return;
  }
  const std::int64_t count = shape.rows * shape.columns;
  const std::int64_t whole = count / kPiece;
  over_ranges(whole, threads, kPiece * bytes, 1, [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
  if (count % kPiece == 0) return;
  args.columns = count % kPiece;  // strides stay kPiece: row `whole` starts where the whole pieces end
  kernel(args, whole, whole + 1);
}

ActivationArgs forward_args(const Activation& shape, ConstRows gate, ConstRows up, MutableRows y, bool dense) {
  if (dense) return {gate.data, up.data, y.data, kPiece, kPiece, kPiece, kPiece};
  return {gate.data, up.data, y.data, shape.columns, gate.stride, up.stride, y.stride};
}

}  // namespace

void activation(const Activation& shape, ConstRows x, MutableRows y, int threads) {
  const bool dense = x.stride == shape.columns && y.stride == shape.columns;
  run(shape, dense, forward_args(shape, x, {}, y, dense), vector_kernels().activation[storage(shape.type)][static_cast<int>(shape.kind)], 2,
      threads);
}

void gated_activation(const Activation& shape, ConstRows gate, ConstRows up, MutableRows y, int threads) {
  const bool dense = gate.stride == shape.columns && up.stride == shape.columns && y.stride == shape.columns;
  run(shape, dense, forward_args(shape, gate, up, y, dense),
      vector_kernels().activation[storage(shape.type)][static_cast<int>(shape.kind)], 3, threads);
}

void activation_backward(const Activation& shape, ConstRows x, ConstRows dy, MutableRows dx, int threads) {
  const bool dense = x.stride == shape.columns && dy.stride == shape.columns && dx.stride == shape.columns;
  const ActivationGradArgs args = dense
      ? ActivationGradArgs{x.data, nullptr, dy.data, dx.data, nullptr, kPiece, kPiece, 0, kPiece, kPiece, 0}
      : ActivationGradArgs{x.data, nullptr, dy.data, dx.data, nullptr, shape.columns, x.stride, 0, dy.stride, dx.stride, 0};
  run(shape, dense, args, vector_kernels().activation_grad[storage(shape.type)][static_cast<int>(shape.kind)], 3, threads);
}

void gated_activation_backward(const Activation& shape, ConstRows gate, ConstRows up, ConstRows dy, MutableRows dgate, MutableRows dup,
                               int threads) {
  const std::int64_t n = shape.columns;
  const bool dense = gate.stride == n && up.stride == n && dy.stride == n && dgate.stride == n && dup.stride == n;
  const ActivationGradArgs args = dense
      ? ActivationGradArgs{gate.data, up.data, dy.data, dgate.data, dup.data, kPiece, kPiece, kPiece, kPiece, kPiece, kPiece}
      : ActivationGradArgs{gate.data, up.data, dy.data, dgate.data, dup.data, n, gate.stride, up.stride, dy.stride, dgate.stride, dup.stride};
  run(shape, dense, args, vector_kernels().activation_grad[storage(shape.type)][static_cast<int>(shape.kind)], 5, threads);
}

}  // namespace fathom::cpu
