#include "kernels/cuda_host/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "kernels/cuda_host/conform.hpp"
#include "kernels/cuda_host/execution.hpp"
#include "kernels/cuda_host/loader.hpp"
#include "kernels/cuda_host/profiler.hpp"
#include "lib/error.hpp"
#include "lib/fill_threads.hpp"

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

Support CudaBackend::supports(const OpSpec& spec) const { return supported(spec); }

namespace {

constexpr unsigned kFillThreads = 16;

std::shared_ptr<const Workload> checked(const Workload& workload) {
  for (int i = 0; i < static_cast<int>(workload.ops().size()); ++i) {
    const OpSpec& spec = workload.ops()[static_cast<size_t>(i)].spec;
    if (const Support support = supported(spec); !support.ok)
      throw_input(fmt::format("the CUDA backend cannot run '{}' ({}): {}", workload.path(i), kind_name(spec), support.reason));
  }
  return std::make_shared<Workload>(workload);
}

}  // namespace

BackendMemory CudaBackend::memory(const Workload& workload, const BindOptions& options) const {
  const Probed& probed = probe_device();
  const CudaExecution sizes(checked(workload), options, nullptr, probed.status == Status::kOk ? probed.info.multiprocessors : kMultiprocessors);
  return {plan_memory(workload), sizes.extra_bytes()};
}

std::unique_ptr<Execution> bind_on(const Workload& workload, const BindOptions& options, std::shared_ptr<OpenDevice> device) {
  const std::shared_ptr<const Workload> shared = checked(workload);
  const std::int64_t need = plan_memory(workload).arena + CudaExecution(shared, options, nullptr, device->info().multiprocessors).extra_bytes();
  std::int64_t have = 0;
  Text text;
  must(device->module().memory_free(device->device(), &have, &text), "asking for free GPU memory", text);
  if (need > have)
    throw Error(ErrorKind::kEnvironment, fmt::format("this run needs {:.2f} GB of GPU memory, {:.2f} GB are free", static_cast<double>(need) * 1e-9, static_cast<double>(have) * 1e-9), {},
                "use a smaller model, batch or length (fathom count shows the planned peak)");
  const ProfilerTable* profiler = device->module().profiler;
  const FillThreads threads(static_cast<int>(std::min(kFillThreads, std::thread::hardware_concurrency())));  // the host's cores have nothing else to do
  auto execution = std::make_unique<CudaExecution>(shared, options, std::move(device));
  if (profiler) execution->observe(std::make_unique<RangeObserver>(*shared, *profiler));
  return execution;
}

std::unique_ptr<Execution> CudaBackend::bind(const Workload& workload, const BindOptions& options) const { return bind_on(workload, options, the_device()); }

std::vector<SelfTest> CudaBackend::self_test() const { return conform(the_device()); }

std::unique_ptr<Profiler> CudaBackend::profiler() const {
  const Loaded& loaded = load_module();
  if (!loaded.module) throw Error(ErrorKind::kEnvironment, "CUDA backend unavailable: " + loaded.reason);
  if (!loaded.module->profiler) throw Error(ErrorKind::kEnvironment, "this CUDA module was built without the CUPTI headers, so it cannot profile", {}, "build it with the whole CUDA 13 toolkit");
  return std::make_unique<CudaProfiler>(*loaded.module->profiler, environment().visible_devices);
}

}  // namespace fathom::cuda
