// attention_bf16 without tiles, compiled for AVX-512.
#if FATHOM_CPU && defined(__AVX512F__)
#define FATHOM_TWIN(name) name##_avx512
#include "kernels/cpu/attention_bf16_f32.inl"
#endif
