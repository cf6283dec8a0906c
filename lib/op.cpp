#include "lib/op.hpp"

namespace fathom {

const std::array<std::string_view, std::variant_size_v<OpSpec>>& kind_names() {
  // In variant order.
  static constexpr std::array<std::string_view, std::variant_size_v<OpSpec>> kNames = {
      "embedding", "rms_norm", "layer_norm", "gemm", "rope", "attention", "kv_append", "activation", "add_residual",
      "router_score", "select", "gather_rows", "scatter_add_rows", "expert_select", "expert_dispatch", "expert_combine",
      "cross_entropy", "router_loss", "rms_norm_backward", "layer_norm_backward", "attention_backward",
      "activation_backward", "scatter_add_backward", "gather_backward", "router_score_backward", "expert_select_backward",
      "expert_combine_backward", "expert_dispatch_backward", "embedding_backward", "gradient_norm", "adamw", "latent_heads", "latent_heads_backward"};
  return kNames;
}

std::string_view kind_name(const OpSpec& spec) { return kind_names()[spec.index()]; }

Rows rows_of(const OpSpec& spec) {
  return std::visit(overloaded{
                        [](const Select& op) { return op.selected; },
                        [](const RmsNormBackward& op) { return op.forward.rows; },
                        [](const LayerNormBackward& op) { return op.forward.rows; },
                        [](const AttentionBackward& op) { return op.forward.rows; },
                        [](const ActivationBackward& op) { return op.forward.rows; },
                        [](const LatentHeadsBackward& op) { return op.forward.rows; },
                        [](const ScatterAddBackward& op) { return op.forward.rows; },
                        [](const GatherBackward& op) { return op.forward.rows; },
                        [](const RouterScoreBackward& op) { return op.weight_rows; },
                        [](const ExpertSelectBackward& op) { return op.forward.rows; },
                        [](const ExpertCombineBackward& op) { return op.forward.rows; },
                        [](const ExpertDispatchBackward& op) { return op.forward.rows; },
                        [](const EmbeddingBackward& op) { return op.forward.rows; },
                        [](const GradientNorm&) { return Rows{}; },
                        [](const AdamW&) { return Rows{}; },
                        [](const auto& op) { return op.rows; },
                    },
                    spec);
}

bool has_rows(const OpSpec& spec) { return !std::holds_alternative<GradientNorm>(spec) && !std::holds_alternative<AdamW>(spec); }

std::string_view part_name(Part part) {
  constexpr std::array<std::string_view, kPartCount> kNames = {
      "embedding", "norm", "projections", "core", "ffn", "experts", "router", "predictor",
      "routing", "residual", "kv_cache", "logits", "loss", "adapter", "mtp", "optimizer"};
  return kNames[static_cast<size_t>(part)];
}

std::string_view pass_name(Pass pass) {
  constexpr std::array<std::string_view, 4> kNames = {"forward", "recompute", "backward", "optimizer"};
  return kNames[static_cast<size_t>(pass)];
}

}  // namespace fathom
