// Expert routing, compiled for the GPU.
#include "kernels/cuda/experts.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(expert_select, ExpertSelectArgs)
FATHOM_CUDA_LAUNCHER(expert_select_backward, ExpertSelectArgs)
FATHOM_CUDA_LAUNCHER(expert_dispatch, ExpertRowsArgs)
FATHOM_CUDA_LAUNCHER(expert_combine, ExpertRowsArgs)
FATHOM_CUDA_LAUNCHER(expert_combine_backward, ExpertCombineBackwardArgs)

}  // namespace fathom::cuda
