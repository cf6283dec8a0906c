// Decode attention compiled for AVX2.
#if FATHOM_CPU && defined(__AVX2__)
#define FATHOM_TWIN(name) name##_avx2
#include "kernels/cpu/decode_attention.inl"
#endif
