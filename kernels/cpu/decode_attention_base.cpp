// Decode attention compiled for the baseline instruction set.
#if FATHOM_CPU
#define FATHOM_TWIN(name) name##_base
#include "kernels/cpu/decode_attention.inl"
#endif
