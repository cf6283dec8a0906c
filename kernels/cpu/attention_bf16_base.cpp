// attention_bf16 without tiles, compiled for the baseline instruction set.
#if FATHOM_CPU
#define FATHOM_TWIN_BASE
#define FATHOM_TWIN(name) name##_base
#include "kernels/cpu/attention_bf16_f32.inl"
#endif
