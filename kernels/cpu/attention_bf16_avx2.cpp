// attention_bf16 without tiles, compiled for AVX2.
#if FATHOM_CPU && defined(__AVX2__)
#define FATHOM_TWIN(name) name##_avx2
#include "kernels/cpu/attention_bf16_f32.inl"
#endif
