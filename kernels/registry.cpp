#include "kernels/registry.hpp"

#include <fmt/format.h>

#include "kernels/cuda_host/backend.hpp"
#include "kernels/fake/backend.hpp"
#include "kernels/reference/backend.hpp"
#include "lib/error.hpp"
#if FATHOM_CPU
#include "kernels/cpu/backend.hpp"
#endif

namespace fathom {
namespace {

#if !FATHOM_CPU
// A backend that this program does not have.
class AbsentBackend : public Backend {
 public:
  AbsentBackend(std::string name, std::string reason) : name_(std::move(name)), reason_(std::move(reason)) {}
  std::string_view name() const override { return name_; }
  std::string description() const override { return "not available: " + reason_; }
  Support available() const override { return {false, reason_}; }
  Support supports(const OpSpec&) const override { return {false, reason_}; }
  BackendMemory memory(const Workload&, const BindOptions&) const override { refuse(); }
  std::unique_ptr<Execution> bind(const Workload&, const BindOptions&) const override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw Error(ErrorKind::kEnvironment, fmt::format("the {} backend is not available: {}", name_, reason_)); }
  std::string name_;
  std::string reason_;
};
#endif

}  // namespace

const std::vector<const Backend*>& all_backends() {
  static const reference::ReferenceBackend reference;
#if FATHOM_CPU
  static const cpu::CpuBackend cpu;
#else
  static const AbsentBackend cpu("cpu", "this program was built with FATHOM_CPU=OFF");
#endif
  static const cuda::CudaBackend cuda;
  static const FakeBackend fake;
  static const std::vector<const Backend*> all = {&reference, &cpu, &cuda, &fake};
  return all;
}

namespace {

const Backend& named_backend(std::string_view name) {
  std::vector<std::string> names;
  for (const Backend* each : all_backends()) {
    if (each->name() == name) return *each;
    names.emplace_back(each->name());
  }
  throw_input(fmt::format("unknown backend '{}'", name), {"", 0, "backend"}, name == "gpu" ? "did you mean 'cuda'?" : name_hint(name, names));
}

}  // namespace

const Backend& backend(std::string_view name) {
  const Backend& named = named_backend(name);
  const Support support = named.available();
  if (!support.ok) throw Error(ErrorKind::kEnvironment, fmt::format("the {} backend is not available: {}", name, support.reason));
  return named;
}

void check_backend_name(std::string_view name) { named_backend(name); }

}  // namespace fathom
