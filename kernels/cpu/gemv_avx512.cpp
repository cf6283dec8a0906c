// gemv compiled for AVX-512.
#if FATHOM_CPU && defined(__AVX512F__)
#define FATHOM_TWIN(name) name##_avx512
#include "kernels/cpu/gemv.inl"
#endif
