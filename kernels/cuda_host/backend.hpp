// The CUDA backend: the op list on one NVIDIA GPU, reached through the module that kernels/cuda is compiled into.
//
// Nothing is loaded before available(), memory() or bind() is called.
#pragma once

#include "lib/backend.hpp"

namespace fathom::cuda {

class CudaBackend : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string description() const override;
  Support available() const override;
  Support supports(const OpSpec& spec) const override;
  BackendMemory memory(const Workload& workload, const BindOptions& options) const override;
  std::unique_ptr<Execution> bind(const Workload& workload, const BindOptions& options) const override;
  std::unique_ptr<Profiler> profiler() const override;
  std::string_view timer() const override { return "events"; }
  std::vector<SelfTest> self_test() const override;
};

class OpenDevice;
// The same on a given device: tests bind to an emulated one.
std::unique_ptr<Execution> bind_on(const Workload& workload, const BindOptions& options, std::shared_ptr<OpenDevice> device);

}  // namespace fathom::cuda
