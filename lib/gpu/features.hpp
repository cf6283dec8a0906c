// Features of the residual models, computed from the shape, the device and the physics estimate.
#pragma once

#include <string>
#include <vector>

#include "lib/gpu/attention_form.hpp"
#include "lib/gpu/gemm_tile.hpp"
#include "lib/gpu/table.hpp"

namespace fathom::gpu {

// Version of the feature lists: a model file of another version is refused.
inline constexpr int kFeatureVersion = 1;

// Names in the order of the values below.
const std::vector<std::string>& tree_feature_names(OpClass op);

// `estimate` is the physics prediction.
void gemm_features(const GemmShape& shape, const GpuDevice& device, const GemmParams& params, const GemmEstimate& estimate, std::vector<double>& tree);
void attention_features(const AttentionShape& shape, OpClass op, const GpuDevice& device, const AttentionEstimate& estimate,
                        std::vector<double>& tree);

}  // namespace fathom::gpu
