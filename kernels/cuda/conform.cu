// The wrappers laid open, compiled for the GPU.
#include "kernels/cuda/conform.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(conform, ConformArgs)

}  // namespace fathom::cuda
