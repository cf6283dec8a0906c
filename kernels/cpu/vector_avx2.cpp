// Vector kernels for AVX2 with FMA, entered through run-time dispatch only.
#if defined(__AVX2__) && defined(__FMA__)
#include "kernels/cpu/vector_body.inl"

namespace fathom::cpu {

const VectorKernels* vector_kernels_avx2() { return &kTable; }

}  // namespace fathom::cpu
#else
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

const VectorKernels* vector_kernels_avx2() { return nullptr; }

}  // namespace fathom::cpu
#endif
