// Vector kernels for AVX-512 with its bf16 conversion (AVX512_BF16; the file's suffix gives it that flag, no tile instruction is used), entered through run-time dispatch only.
#if defined(__AVX512F__) && defined(__AVX512BF16__)
// g++ 12 takes the deliberately undefined operand inside its own intrinsics for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "kernels/cpu/vector_body.inl"

namespace fathom::cpu {

const VectorKernels* vector_kernels_avx512_bf16() { return &kTable; }

}  // namespace fathom::cpu
#else
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

const VectorKernels* vector_kernels_avx512_bf16() { return nullptr; }

}  // namespace fathom::cpu
#endif
