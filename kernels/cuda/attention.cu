// Attention over rows and over caches, forward and backward, compiled for the GPU.
#include "kernels/cuda/attention.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(attention_ranges, AttentionRangeArgs)
FATHOM_CUDA_LAUNCHER(attention, AttentionArgs)
FATHOM_CUDA_LAUNCHER(attention_backward, AttentionBackwardArgs)

}  // namespace fathom::cuda
