// Vector kernels for AVX-512 (F, BW, VL, DQ), entered through run-time dispatch only.
#if defined(__AVX512F__) && defined(__AVX512BW__)
// g++ 12 takes the deliberately undefined operand inside its own intrinsics for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "kernels/cpu/vector_body.inl"

namespace fathom::cpu {

const VectorKernels* vector_kernels_avx512() { return &kTable; }

}  // namespace fathom::cpu
#else
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

const VectorKernels* vector_kernels_avx512() { return nullptr; }

}  // namespace fathom::cpu
#endif
