// The loss and the optimizer, compiled for the GPU.
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/optimizer.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(cross_entropy, CrossEntropyArgs)
FATHOM_CUDA_LAUNCHER(gradient_norm, GradientNormArgs)
FATHOM_CUDA_LAUNCHER(adamw, AdamWArgs)

}  // namespace fathom::cuda
