// The list of kernel families: one function per struct of arguments, in the module's table and in that of the emulated device of tests.
//
// Each has the name of the function in NAME.cuh that picks the instantiation and launches it.
#pragma once

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/conform.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/embedding.hpp"
#include "kernels/cuda/experts.hpp"
#include "kernels/cuda/grouped.hpp"
#include "kernels/cuda/loss.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/optimizer.hpp"
#include "kernels/cuda/router.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/select.hpp"
#include "kernels/cuda/sequence.hpp"

#define FATHOM_CUDA_KERNELS(X)                          \
  X(attention_ranges, AttentionRangeArgs)               \
  X(attention, AttentionArgs)                           \
  X(attention_backward, AttentionBackwardArgs)          \
  X(column_sum, ColumnSumArgs)                          \
  X(conform, ConformArgs)                               \
  X(norm, NormArgs)                                     \
  X(norm_backward, NormBackwardArgs)                    \
  X(add, AddArgs)                                       \
  X(activation, ActivationArgs)                         \
  X(activation_backward, ActivationBackwardArgs)        \
  X(embedding, EmbeddingArgs)                           \
  X(embedding_backward, EmbeddingBackwardArgs)          \
  X(expert_select, ExpertSelectArgs)                    \
  X(expert_select_backward, ExpertSelectArgs)           \
  X(expert_dispatch, ExpertRowsArgs)                    \
  X(expert_combine, ExpertRowsArgs)                     \
  X(expert_combine_backward, ExpertCombineBackwardArgs) \
  X(grouped_product, GroupedArgs)                       \
  X(grouped_bias, GroupedBiasArgs)                      \
  X(cross_entropy, CrossEntropyArgs)                    \
  X(gradient_norm, GradientNormArgs)                    \
  X(adamw, AdamWArgs)                                   \
  X(router_score, RouterScoreArgs)                      \
  X(router_loss, RouterLossArgs)                        \
  X(router_backward, RouterBackwardArgs)                \
  X(gather, GatherArgs)                                 \
  X(scatter, ScatterArgs)                               \
  X(scatter_backward, ScatterBackwardArgs)              \
  X(select, SelectArgs)                                 \
  X(rope, RopeArgs)                                     \
  X(kv_append, KvAppendArgs)                            \
  X(latent_heads, LatentArgs)                           \
  X(latent_heads_backward, LatentArgs)
