// Device code of kernels/cuda/elementwise.hpp.
#pragma once

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

// Element of this thread's pack p: neighbouring threads touch neighbouring packs.
template <int V>
FATHOM_DEV std::int64_t element_of(int p) {
  return ((dev::bid() * kElementPacks + p) * kElementThreads + dev::tid()) * V;
}

template <class T, int V>
FATHOM_KERNEL(kElementThreads) add_kernel(AddArgs args) {
  const std::int64_t count = rows_of(args.rows) * args.width;
  float a[kElementPacks][V], b[kElementPacks][V];
  FATHOM_UNROLL
  for (int p = 0; p < kElementPacks; ++p) {
    if (element_of<V>(p) >= count) continue;
    dev::load<V>(static_cast<const T*>(args.a) + element_of<V>(p), a[p]);
    dev::load<V>(static_cast<const T*>(args.b) + element_of<V>(p), b[p]);
  }
  FATHOM_UNROLL
  for (int p = 0; p < kElementPacks; ++p) {
    if (element_of<V>(p) >= count) continue;
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) a[p][i] += b[p][i];
    dev::store<V>(static_cast<T*>(args.y) + element_of<V>(p), a[p]);
  }
}

template <class T, int V, ActivationKind kKind>
FATHOM_KERNEL(kElementThreads) activation_kernel(ActivationArgs a) {
  const std::int64_t count = rows_of(a.rows) * a.width;
  float x[kElementPacks][V], up[kElementPacks][V];
  FATHOM_UNROLL
  for (int p = 0; p < kElementPacks; ++p) {
    if (element_of<V>(p) >= count) continue;
    dev::load<V>(static_cast<const T*>(a.x) + element_of<V>(p), x[p]);
    if (a.up) dev::load<V>(static_cast<const T*>(a.up) + element_of<V>(p), up[p]);
  }
  FATHOM_UNROLL
  for (int p = 0; p < kElementPacks; ++p) {
    if (element_of<V>(p) >= count) continue;
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) x[p][i] = activate<kKind>(x[p][i]) * (a.up ? up[p][i] : 1.0f);
    dev::store<V>(static_cast<T*>(a.y) + element_of<V>(p), x[p]);
  }
}

// Three inputs: two packs at a time keep the registers low enough for full occupancy.
template <class T, int V, ActivationKind kKind>
FATHOM_KERNEL(kElementThreads) activation_backward_kernel(ActivationBackwardArgs a) {
  const std::int64_t count = rows_of(a.rows) * a.width;
  FATHOM_UNROLL
  for (int p = 0; p < kElementPacks; ++p) {
    const std::int64_t at = element_of<V>(p);
    if (at >= count) continue;
    float x[V], up[V], dy[V], dx[V], dup[V];
    dev::load<V>(static_cast<const T*>(a.x) + at, x);
    dev::load<V>(static_cast<const T*>(a.dy) + at, dy);
    if (a.up) dev::load<V>(static_cast<const T*>(a.up) + at, up);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) {
      dx[i] = dy[i] * (a.up ? up[i] : 1.0f) * activation_slope<kKind>(x[i]);
      dup[i] = a.up ? dy[i] * activate<kKind>(x[i]) : 0.0f;
    }
    dev::store<V>(static_cast<T*>(a.dx) + at, dx);
    if (a.up) dev::store<V>(static_cast<T*>(a.dup) + at, dup);
  }
}

template <class F>
void with_activation(ActivationKind kind, const F& f) {
  switch (kind) {
    case ActivationKind::kGeluTanh: return f.template operator()<ActivationKind::kGeluTanh>();
    case ActivationKind::kGeluErf: return f.template operator()<ActivationKind::kGeluErf>();
    case ActivationKind::kSilu: return f.template operator()<ActivationKind::kSilu>();
    case ActivationKind::kRelu: return f.template operator()<ActivationKind::kRelu>();
    case ActivationKind::kRelu2: return f.template operator()<ActivationKind::kRelu2>();
  }
}

inline void add(const AddArgs& a, simt::Stream stream) {
  with_elements(a.type, element_vector(a), [&]<class T, int V>() { simt::launch(add_kernel<T, V>, elementwise_launch(a), a, stream); });
}
inline void activation(const ActivationArgs& a, simt::Stream stream) {
  with_elements(a.type, element_vector(a), [&]<class T, int V>() {
    with_activation(a.kind, [&]<ActivationKind kKind>() { simt::launch(activation_kernel<T, V, kKind>, elementwise_launch(a), a, stream); });
  });
}
inline void activation_backward(const ActivationBackwardArgs& a, simt::Stream stream) {
  with_elements(a.type, element_vector(a), [&]<class T, int V>() {
    with_activation(a.kind, [&]<ActivationKind kKind>() { simt::launch(activation_backward_kernel<T, V, kKind>, elementwise_launch(a), a, stream); });
  });
}

}  // namespace fathom::cuda
