// Elementwise ops and embeddings, compiled for the GPU.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/embedding.cuh"

#include "kernels/cuda/device.hpp"

namespace fathom::cuda {

FATHOM_CUDA_LAUNCHER(add, AddArgs)
FATHOM_CUDA_LAUNCHER(activation, ActivationArgs)
FATHOM_CUDA_LAUNCHER(activation_backward, ActivationBackwardArgs)
FATHOM_CUDA_LAUNCHER(embedding, EmbeddingArgs)
FATHOM_CUDA_LAUNCHER(embedding_backward, EmbeddingBackwardArgs)

}  // namespace fathom::cuda
