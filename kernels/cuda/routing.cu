// Routers and the rows they choose, compiled for the GPU.
#include "kernels/cuda/router.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/select.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(router_score, RouterScoreArgs)
FATHOM_CUDA_LAUNCHER(router_loss, RouterLossArgs)
FATHOM_CUDA_LAUNCHER(router_backward, RouterBackwardArgs)
FATHOM_CUDA_LAUNCHER(gather, GatherArgs)
FATHOM_CUDA_LAUNCHER(scatter, ScatterArgs)
FATHOM_CUDA_LAUNCHER(scatter_backward, ScatterBackwardArgs)
FATHOM_CUDA_LAUNCHER(select, SelectArgs)

}  // namespace fathom::cuda
