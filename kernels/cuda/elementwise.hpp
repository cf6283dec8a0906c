// Elementwise ops: residual add, activations (plain and gated) and their gradients. Arguments and launch shapes.
//   add: y = a + b;  activation: y = act(x) or act(x) * up;  backward: dx = dy act'(x) (* up), dup = dy act(x)
#pragma once

#include "kernels/cuda/launch.hpp"
#include "lib/op_forward.hpp"

namespace fathom::cuda {

struct AddArgs {
  DType type = DType::kF32;
  RowCount rows;
  std::int64_t width = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;  // may be a or b
};

struct ActivationArgs {
  DType type = DType::kF32;
  ActivationKind kind = ActivationKind::kGeluTanh;
  RowCount rows;
  std::int64_t width = 0;
  const void* x = nullptr;
  const void* up = nullptr;  // null: plain
  void* y = nullptr;
};

struct ActivationBackwardArgs {
  DType type = DType::kF32;
  ActivationKind kind = ActivationKind::kGeluTanh;
  RowCount rows;
  std::int64_t width = 0;
  const void* x = nullptr;
  const void* up = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;        // may be x or dy
  void* dup = nullptr;       // may be up
};

inline constexpr int kElementThreads = 256;
inline constexpr int kElementPacks = 4;  // per thread, all loaded before the first is used

inline int element_vector(const AddArgs& a) { return vector_width(a.type, a.width, a.a, a.b, a.y); }
inline int element_vector(const ActivationArgs& a) { return vector_width(a.type, a.width, a.x, a.up, a.y); }
inline int element_vector(const ActivationBackwardArgs& a) {
  return vector_width(a.type, a.width, a.x, a.up, a.dy) > 1 ? vector_width(a.type, a.width, a.dx, a.dup) : 1;
}
template <class Args>
LaunchShape elementwise_launch(const Args& a) {
  return {ceil_div(a.rows.limit * a.width, std::int64_t{kElementThreads} * kElementPacks * element_vector(a)), 1, 1, kElementThreads, 0};
}

}  // namespace fathom::cuda
