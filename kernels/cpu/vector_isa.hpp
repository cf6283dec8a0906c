// Which instruction set the vector kernels use: chosen at run time, forced in tests.
//
// One source is compiled four times (vector_baseline.cpp, vector_avx2.cpp, vector_avx512.cpp, vector_amx.cpp) and entered through a table of
// function pointers, so that the program starts on any machine and each twin can be tested on one that has them all.
#pragma once

#include <string_view>
#include <vector>

namespace fathom::cpu {

// kAvx512Bf16 converts to bf16 in hardware; it takes f32 denormals for zero there.
enum class VectorIsa { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };

std::string_view vector_isa_name(VectorIsa isa);

// True when this build holds the twin and this CPU (and its operating system) can run it.
bool vector_isa_supported(VectorIsa isa);

// Every supported set, slowest first.
std::vector<VectorIsa> supported_vector_isas();

// The set in use: the fastest supported one not above cap_isa's level (cpu_info.hpp), unless force_vector_isa has been called.
VectorIsa active_vector_isa();

// Uses `isa` for all later calls in this process (not to be called while kernels run). Throws an environment Error when unsupported.
void force_vector_isa(VectorIsa isa);

}  // namespace fathom::cpu
