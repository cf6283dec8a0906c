// Vector kernels for any machine (SSE2 on x86-64).
#include "kernels/cpu/vector_body.inl"

namespace fathom::cpu {

const VectorKernels* vector_kernels_baseline() { return &kTable; }

}  // namespace fathom::cpu
