// The CPU backend: oneDNN for matrix products, fathom's own kernels for everything else, on all cores the process may use.
#pragma once

#include "lib/backend.hpp"

namespace fathom::cpu {

class CpuBackend : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string description() const override;
  Support available() const override { return {}; }
  Support supports(const OpSpec& spec) const override;
  BackendMemory memory(const Workload& workload, const BindOptions& options) const override;
  std::unique_ptr<Execution> bind(const Workload& workload, const BindOptions& options) const override;
};

}  // namespace fathom::cpu
