// The profiler's view of the CUDA runtime, and the one kernel whose record proves that the tracer records anything.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/cuda/cupti_device.hpp"

namespace fathom::cuda {
namespace {

__global__ void fathom_profiler_self_test() {}

int driver_version(int* version) { return cudaDriverGetVersion(version); }
int device_count(int* count) { return cudaGetDeviceCount(count); }
int synchronize() { return cudaDeviceSynchronize(); }

int launch_known_kernel() {
  fathom_profiler_self_test<<<1, 1>>>();
  return cudaGetLastError();
}

// Driver functions come from the runtime: a program linked with -lcuda would not even start without a driver.
template <class F>
int driver_function(const char* name, F* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &result);
  if (code != cudaSuccess) return code;
  if (result != cudaDriverEntryPointSuccess || !found) return cudaErrorSymbolNotFound;
  *function = reinterpret_cast<F>(found);
  return cudaSuccess;
}

int current_context(void** context, int* cu_device, int* ordinal) {
  if (const cudaError_t code = cudaFree(nullptr); code != cudaSuccess) return code;  // makes the primary context current
  if (const cudaError_t code = cudaGetDevice(ordinal); code != cudaSuccess) return code;
  CUresult (*get_current)(CUcontext*) = nullptr;
  CUresult (*get_device)(CUdevice*) = nullptr;
  if (const int code = driver_function("cuCtxGetCurrent", &get_current)) return code;
  if (const int code = driver_function("cuCtxGetDevice", &get_device)) return code;
  CUcontext current = nullptr;
  CUdevice device = 0;
  if (get_current(&current) != CUDA_SUCCESS || get_device(&device) != CUDA_SUCCESS || !current) return cudaErrorDeviceUninitialized;
  *context = current;
  *cu_device = device;
  return cudaSuccess;
}

}  // namespace

const DeviceCalls& runtime_device_calls() {
  static const DeviceCalls calls = {driver_version, device_count, synchronize, launch_known_kernel, current_context};
  return calls;
}

}  // namespace fathom::cuda
