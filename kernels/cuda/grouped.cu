// Products of experts, compiled for the GPU.
#include "kernels/cuda/grouped.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(grouped_product, GroupedArgs)
FATHOM_CUDA_LAUNCHER(grouped_bias, GroupedBiasArgs)

}  // namespace fathom::cuda
