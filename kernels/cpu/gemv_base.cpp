// gemv compiled for the baseline instruction set.
#if FATHOM_CPU
#define FATHOM_TWIN(name) name##_base
#include "kernels/cpu/gemv.inl"
#endif
