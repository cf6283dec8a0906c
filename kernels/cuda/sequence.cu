// Rotary positions, the KV cache and latent heads, compiled for the GPU.
#include "kernels/cuda/sequence.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(rope, RopeArgs)
FATHOM_CUDA_LAUNCHER(kv_append, KvAppendArgs)
FATHOM_CUDA_LAUNCHER(latent_heads, LatentArgs)
FATHOM_CUDA_LAUNCHER(latent_heads_backward, LatentArgs)

}  // namespace fathom::cuda
