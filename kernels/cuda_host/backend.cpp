#include "kernels/cuda_host/backend.hpp"

#include <fmt/format.h>

#include "kernels/cuda_host/loader.hpp"
#include "kernels/cuda_host/profiler.hpp"
#include "lib/error.hpp"

namespace fathom::cuda {

std::string CudaBackend::description() const {
  const Probed& probed = probe_device();
  if (probed.status != Status::kOk) return "not available: " + probed.reason;
  const DeviceInfo& info = probed.info;
  return fmt::format("cuBLASLt {} and fathom kernels on {} (sm_{}{}, {} multiprocessors, driver CUDA {}.{})", info.cublaslt, info.name, info.major, info.minor,
                     info.multiprocessors, info.driver / 1000, info.driver % 1000 / 10);
}

Support CudaBackend::available() const {
  const Probed& probed = probe_device();
  return {probed.status == Status::kOk, probed.reason};
}

Support CudaBackend::supports(const OpSpec&) const { return {false, "no kernel yet"}; }

BackendMemory CudaBackend::memory(const Workload& workload, const BindOptions&) const { return {plan_memory(workload), 0}; }

std::unique_ptr<Execution> CudaBackend::bind(const Workload&, const BindOptions&) const { throw_input("the CUDA backend cannot run this workload yet"); }

std::unique_ptr<Profiler> CudaBackend::profiler() const {
  const Loaded& loaded = load_module();
  if (!loaded.module) throw Error(ErrorKind::kEnvironment, "CUDA backend unavailable: " + loaded.reason);
  if (!loaded.module->profiler) throw Error(ErrorKind::kEnvironment, "this CUDA module was built without the CUPTI headers, so it cannot profile", {}, "build it with the whole CUDA 13 toolkit");
  return std::make_unique<CudaProfiler>(*loaded.module->profiler, environment().visible_devices);
}

}  // namespace fathom::cuda
