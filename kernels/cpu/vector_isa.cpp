#include "kernels/cpu/vector_isa.hpp"

#include <atomic>
#include <string>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/vector_kernels.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

const VectorKernels* table_of(VectorIsa isa) {
  switch (isa) {
    case VectorIsa::kBaseline: return vector_kernels_baseline();
    case VectorIsa::kAvx2: return vector_kernels_avx2();
    case VectorIsa::kAvx512: return vector_kernels_avx512();
    case VectorIsa::kAvx512Bf16: return vector_kernels_avx512_bf16();
  }
  return nullptr;
}

Isa level_of(VectorIsa isa) {
  switch (isa) {
    case VectorIsa::kBaseline: return Isa::kBase;
    case VectorIsa::kAvx2: return Isa::kAvx2;
    case VectorIsa::kAvx512: return Isa::kAvx512;
    case VectorIsa::kAvx512Bf16: return Isa::kAvx512;
  }
  return Isa::kBase;
}

// Conversion to bf16 by one instruction exists on CPUs without AMX too.
bool has_instructions(VectorIsa isa) { return isa != VectorIsa::kAvx512Bf16 || cpu_info().avx512_bf16; }

// The fastest twin at or below the level that dispatch is capped to.
VectorIsa fastest() {
  for (VectorIsa candidate : {VectorIsa::kAvx512Bf16, VectorIsa::kAvx512, VectorIsa::kAvx2}) {
    if (table_of(candidate) != nullptr && level_of(candidate) <= isa() && has_instructions(candidate)) return candidate;
  }
  return VectorIsa::kBaseline;
}

constexpr int kNotForced = -1;
std::atomic<int> forced{kNotForced};

}  // namespace

std::string_view vector_isa_name(VectorIsa isa) {
  switch (isa) {
    case VectorIsa::kBaseline: return "baseline";
    case VectorIsa::kAvx2: return "avx2";
    case VectorIsa::kAvx512: return "avx512";
    case VectorIsa::kAvx512Bf16: return "avx512_bf16";
  }
  return "?";
}

bool vector_isa_supported(VectorIsa isa) { return table_of(isa) != nullptr && level_of(isa) <= cpu_info().isa && has_instructions(isa); }

std::vector<VectorIsa> supported_vector_isas() {
  std::vector<VectorIsa> result;
  for (VectorIsa isa : {VectorIsa::kBaseline, VectorIsa::kAvx2, VectorIsa::kAvx512, VectorIsa::kAvx512Bf16}) {
    if (vector_isa_supported(isa)) result.push_back(isa);
  }
  return result;
}

VectorIsa active_vector_isa() { 
  const int choice = forced.load(std::memory_order_relaxed);
  return choice == kNotForced ? fastest() : static_cast<VectorIsa>(choice);
 }

void force_vector_isa(VectorIsa isa) {
  if (!vector_isa_supported(isa)) {
    throw Error(ErrorKind::kEnvironment, "the instruction set '" + std::string(vector_isa_name(isa)) + "' is not available here", {},
                "this CPU's fastest set is '" + std::string(vector_isa_name(fastest())) + "'");
  }
  forced.store(static_cast<int>(isa), std::memory_order_relaxed);
}

const VectorKernels& vector_kernels() { return *table_of(active_vector_isa()); }

}  // namespace fathom::cpu
