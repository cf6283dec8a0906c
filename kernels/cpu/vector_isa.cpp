#include "kernels/cpu/vector_isa.hpp"

#include <atomic>
#include <string>

#include "kernels/cpu/vector_kernels.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

const VectorKernels* table_of(VectorIsa isa) {
  switch (isa) {
    case VectorIsa::kBaseline: return vector_kernels_baseline();
    case VectorIsa::kAvx2: return vector_kernels_avx2();
    case VectorIsa::kAvx512: return vector_kernels_avx512();
  }
  return nullptr;
}

bool cpu_has(VectorIsa isa) {
#if defined(__x86_64__)
  // __builtin_cpu_supports also checks that the operating system saves the wide registers (XCR0).
  switch (isa) {
    case VectorIsa::kBaseline: return true;
    case VectorIsa::kAvx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case VectorIsa::kAvx512:
      return cpu_has(VectorIsa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
  return false;
#else
  return isa == VectorIsa::kBaseline;
#endif
}

VectorIsa fastest() {
  for (VectorIsa isa : {VectorIsa::kAvx512, VectorIsa::kAvx2}) {
    if (vector_isa_supported(isa)) return isa;
  }
  return VectorIsa::kBaseline;
}

std::atomic<VectorIsa>& active() {
  static std::atomic<VectorIsa> isa{fastest()};
  return isa;
}

}  // namespace

std::string_view vector_isa_name(VectorIsa isa) {
  switch (isa) {
    case VectorIsa::kBaseline: return "baseline";
    case VectorIsa::kAvx2: return "avx2";
    case VectorIsa::kAvx512: return "avx512";
  }
  return "?";
}

bool vector_isa_supported(VectorIsa isa) { return table_of(isa) != nullptr && cpu_has(isa); }

std::vector<VectorIsa> supported_vector_isas() {
  std::vector<VectorIsa> result;
  for (VectorIsa isa : {VectorIsa::kBaseline, VectorIsa::kAvx2, VectorIsa::kAvx512}) {
    if (vector_isa_supported(isa)) result.push_back(isa);
  }
  return result;
}

VectorIsa active_vector_isa() { return active().load(std::memory_order_relaxed); }

void force_vector_isa(VectorIsa isa) {
  if (!vector_isa_supported(isa)) {
    throw Error(ErrorKind::kEnvironment, "the instruction set '" + std::string(vector_isa_name(isa)) + "' is not available here", {},
                "this CPU's fastest set is '" + std::string(vector_isa_name(fastest())) + "'");
  }
  active().store(isa, std::memory_order_relaxed);
}

const VectorKernels& vector_kernels() { return *table_of(active_vector_isa()); }

}  // namespace fathom::cpu
