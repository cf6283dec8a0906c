// Norm kernels and the second half of sums over rows, compiled for the GPU.
#include "kernels/cuda/norm.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(column_sum, ColumnSumArgs)
FATHOM_CUDA_LAUNCHER(norm, NormArgs)
FATHOM_CUDA_LAUNCHER(norm_backward, NormBackwardArgs)

}  // namespace fathom::cuda
