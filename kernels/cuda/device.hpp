// Inside the CUDA module: the one device, its stream, and how calls of the CUDA libraries become a status and a text.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "kernels/cuda/module.hpp"

static_assert(__cplusplus >= 202002L, "compiled as C++17: the build system dropped the C++20 flag");

namespace fathom::cuda {

class Matmuls;     // matmul.cpp
class Management;  // management.cpp

struct DeviceHandle {
  cudaStream_t stream = nullptr;
  DeviceInfo info;
  void* flush = nullptr;  // twice the L2, allocated at the first flush
  std::int64_t flush_bytes = 0;
  volatile std::int32_t* hold = nullptr;  // mapped host flag of hold_stream
  std::shared_ptr<Matmuls> matmuls;
  std::shared_ptr<Management> management;
};

inline DeviceHandle& handle(Device* device) { return *static_cast<DeviceHandle*>(device); }

// Writes `message` (cut to what fits) and returns `status`.
Status tell(Text* text, Status status, const std::string& message);
// kOk, or what a failed runtime call means, with "cudaMalloc of 12 bytes: out of memory (cudaErrorMemoryAllocation)".
Status check(cudaError_t code, const char* what, Text* text);

// Nothing that is thrown inside may leave the module.
template <class Body>
Status guarded(Text* text, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return tell(text, Status::kFailed, error.what());
  } catch (...) {
    return tell(text, Status::kFailed, "unknown exception");
  }
}

// stream_tools.cu
Status has_code_for_device(Text* text);
cudaError_t launch_hold(cudaStream_t stream, const volatile std::int32_t* flag, double seconds);
cudaError_t launch_read(cudaStream_t stream, const void* memory, std::int64_t bytes, int multiprocessors);

// One .cu per family defines these (FATHOM_CUDA_LAUNCHER).
#define FATHOM_CUDA_DECLARE(name, Args) Status launch_##name(Device* device, const Args* args, Text* text);
FATHOM_CUDA_KERNELS(FATHOM_CUDA_DECLARE)
#undef FATHOM_CUDA_DECLARE
#define FATHOM_CUDA_LAUNCHER(name, Args)                             \
  Status launch_##name(Device* device, const Args* args, Text* text) { \
    name(*args, handle(device).stream);                              \
    return check(cudaGetLastError(), #name, text);                   \
  }

// matmul.cpp
std::shared_ptr<Matmuls> make_matmuls(const DeviceInfo& info, cudaStream_t stream);
std::int32_t cublaslt_version();
Status plan_matmul(Device* device, const Matmul* product, std::int32_t tune, std::int32_t* plan, MatmulChoice* choice, Text* text);
Status run_matmul(Device* device, std::int32_t plan, const void* a, const void* b, void* c, const void* bias, Text* text);

// management.cpp
std::shared_ptr<Management> open_management(const char* uuid);
DeviceState read_state(const Management* management);

}  // namespace fathom::cuda
