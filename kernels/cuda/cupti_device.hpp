// What the profiler needs of the CUDA runtime, as a table: filled by cupti_device.cu in the module, by fakes in tests.
#pragma once

namespace fathom::cuda {

// Each returns a cudaError (0: success). None may be called before driver_version has returned a version other than 0.
struct DeviceCalls {
  int (*driver_version)(int* version) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*synchronize)() = nullptr;
  int (*launch_known_kernel)() = nullptr;  // one empty kernel, so that an empty profile is found out
  // The context that work goes to (created where there is none), its device, and the device's place in the runtime's order.
  int (*current_context)(void** context, int* cu_device, int* ordinal) = nullptr;
};

// The table of this module. Defined where nvcc compiles.
const DeviceCalls& runtime_device_calls();

}  // namespace fathom::cuda
