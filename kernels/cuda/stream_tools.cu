// Kernels that serve timing, not an op: a blocker for the stream and a reader for the cache flush. Device only: the blocker waits for the
// host, which the emulation of the other kernels on a CPU cannot do.
#include <cuda_runtime.h>

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {
namespace {

// One thread spins until the host raises the flag, or gives up after `nanoseconds`: a host that dies must not hang the GPU.
__global__ void hold_kernel(const volatile std::int32_t* flag, unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (*flag == 0 && now - start < nanoseconds);
}

// Reads everything; the comparison keeps the loads, and is never true for a cleared buffer.
__global__ void read_kernel(const uint4* from, std::int64_t count, unsigned* sink) {
  unsigned sum = 0;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count; i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const uint4 v = from[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 0x9e3779b9u) *sink = sum;
}

}  // namespace

Status has_code_for_device(Text* text) {
  cudaFuncAttributes attributes{};
  return check(cudaFuncGetAttributes(&attributes, read_kernel), "looking for code for this GPU", text);
}

cudaError_t launch_hold(cudaStream_t stream, const volatile std::int32_t* flag, double seconds) {
  hold_kernel<<<1, 1, 0, stream>>>(flag, static_cast<unsigned long long>(seconds * 1e9));
  return cudaGetLastError();
}

cudaError_t launch_read(cudaStream_t stream, const void* memory, std::int64_t bytes, int multiprocessors) {
  read_kernel<<<4 * multiprocessors, 256, 0, stream>>>(static_cast<const uint4*>(memory), bytes / 16, static_cast<unsigned*>(const_cast<void*>(memory)));
  return cudaGetLastError();
}

}  // namespace fathom::cuda
