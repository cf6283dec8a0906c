// Decode attention with AVX512_BF16 (the file's suffix gives it that flag, no tile instruction is used).
#if FATHOM_CPU && defined(__AVX512F__) && defined(__AVX512BF16__)
#define FATHOM_TWIN(name) name##_avx512_bf16
#include "kernels/cpu/decode_attention.inl"
#endif
