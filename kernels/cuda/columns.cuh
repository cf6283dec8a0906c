// Device code of kernels/cuda/columns.hpp.
#pragma once

#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

template <class T>
FATHOM_KERNEL(kColumnThreads) column_sum_kernel(ColumnSumArgs a) {
  float* strips = dev::smem<float>();
  const int strip = dev::warp();
  const std::int64_t c = dev::bid() * 32 + dev::lane();
  const float* from = a.partials + dev::bid_y() * a.parts * a.width + c;
  float sum = 0.0f;
  if (c < a.width)
    for (std::int64_t p = strip; p < a.parts; p += kColumnThreads / 32) sum += from[p * a.width];
  strips[dev::tid()] = sum;
  dev::block_sync();
  if (strip > 0 || c >= a.width) return;
  float total = 0.0f;
  for (int s = 0; s < kColumnThreads / 32; ++s) total += strips[s * 32 + dev::lane()];
  T* out = static_cast<T*>(a.out) + dev::bid_y() * a.width + c;
  total *= a.scale;
  dev::store(out, a.accumulate ? dev::load(out) + total : total);
}

inline void column_sum(const ColumnSumArgs& a, simt::Stream stream) {
  with_type(a.type, [&]<class T>() { simt::launch(column_sum_kernel<T>, column_sum_launch(a), a, stream); });
}

}  // namespace fathom::cuda
