// Families with experts: Mixtral, Qwen MoE, OLMoE, Granite MoE, GPT-OSS, DeepSeek V2/V3 (latent attention), Llama 4.
#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"
#include "models/import/hf_families.hpp"

namespace fathom {
namespace {

MlpConfig expert_mlp(const MoeConfig& moe, ActivationKind activation) {
  MlpConfig m;
  m.gated = true;
  m.activation = activation;
  m.moe = moe;
  return m;
}

void mixtral(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 131072, 1e6, HfNorm::kRms5);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kEight);
  MoeConfig moe;
  moe.experts = r.integer_or({"num_local_experts"}, 8);
  moe.picks = r.integer_or({"num_experts_per_tok"}, 2);
  moe.width = r.integer({"intermediate_size"});  // the experts' width: there is no dense MLP
  block.mlp = expert_mlp(moe, hf_activation(r, {"hidden_act"}, "silu"));
  block.attention->window = r.nullable({"sliding_window"}, 0, 0);
  r.irrelevant({"router_jitter_noise"});
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

// MoE iff (l + 1) mod decoder_sparse_step = 0 and l is not in mlp_only_layers.
void qwen_moe(HfReader& r, Network& n, bool third) {
  const std::int64_t layers = hf_common(r, n, false, 32768);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kRequired);
  AttentionConfig& a = *block.attention;
  if (third) {
    a.qk_norm = true;
    a.qkv_bias = a.out_bias = r.boolean_or({"attention_bias"}, false);
  } else {
    a.qkv_bias = !r.has("qkv_bias") || r.boolean_or({"qkv_bias"}, true);
  }
  MoeConfig moe;
  moe.experts = r.integer({"num_experts", "num_local_experts"});
  moe.picks = r.integer({"num_experts_per_tok"});
  moe.width = r.integer({"moe_intermediate_size"});
  if (!third) {
    moe.shared = 1;
    moe.shared_width = r.integer({"shared_expert_intermediate_size"});
    moe.shared_gate = true;
  }
  const std::int64_t step = r.integer_or({"decoder_sparse_step"}, 1);
  const std::vector<std::int64_t> dense_only =
      r.integers("mlp_only_layers", 0, layers - 1).value_or(std::vector<std::int64_t>{});
  const ActivationKind activation = hf_activation(r, {"hidden_act"}, "silu");
  const bool sliding = r.has("use_sliding_window") && r.boolean_or({"use_sliding_window"}, false);
  std::int64_t window = 0;
  std::int64_t below = 0;
  if (sliding) {
    window = r.nullable({"sliding_window"}, 4096, 0);
    if (!third) below = r.integer_or({"max_window_layers"}, 28, 0);
  }
  r.irrelevant({"sliding_window", "max_window_layers", "norm_topk_prob"});
  // Qwen 2 MoE: even layers below max_window_layers, the opposite end of Qwen 2's rule. Qwen 3 MoE: all layers.
  const auto spans = hf_spans(r, layers, [&](std::int64_t l) {
    if (window == 0) return HfSpan::kFull;
    return third || (l % 2 == 0 && l < below) ? HfSpan::kSliding : HfSpan::kFull;
  });
  std::optional<std::int64_t> dense_width;
  for (std::int64_t l = 0; l < layers; ++l) {
    const bool experts = (l + 1) % step == 0 && std::find(dense_only.begin(), dense_only.end(), l) == dense_only.end();
    if (experts) {
      block.mlp = expert_mlp(moe, activation);
    } else {
      if (!dense_width) dense_width = r.integer({"intermediate_size"});
      block.mlp = MlpConfig{};
      block.mlp->width = *dense_width, block.mlp->gated = true, block.mlp->activation = activation;
    }
    const HfSpan span = spans[static_cast<std::size_t>(l)];
    if (span == HfSpan::kChunked || (span == HfSpan::kSliding && window == 0))
      r.fail("layer_types", "sliding layers need use_sliding_window and sliding_window");
    a.window = span == HfSpan::kSliding ? window : 0;
    hf_push(n, block);
  }
  r.irrelevant({"intermediate_size"});
}
void qwen2_moe(HfReader& r, Network& n, const HfOptions&) {
  qwen_moe(r, n, false);
}
void qwen3_moe(HfReader& r, Network& n, const HfOptions&) {
  qwen_moe(r, n, true);
}

void olmoe(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 4096, 10000.0, HfNorm::kRms5);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kSameAsHeads);
  block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  block.attention->qk_norm_full = true;
  MoeConfig moe;
  moe.experts = r.integer_or({"num_experts"}, 64);
  moe.picks = r.integer_or({"num_experts_per_tok"}, 8);
  moe.width = r.integer({"intermediate_size"});
  block.mlp = expert_mlp(moe, hf_activation(r, {"hidden_act"}, "silu"));
  r.irrelevant({"clip_qkv", "norm_topk_prob"});
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

void granitemoe(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kSameAsHeads);
  block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  MoeConfig moe;
  moe.experts = r.integer_or({"num_local_experts"}, 8);
  moe.picks = r.integer_or({"num_experts_per_tok"}, 2);
  moe.width = r.integer({"intermediate_size"});
  block.mlp = expert_mlp(moe, hf_activation(r, {"hidden_act"}, "silu"));
  r.irrelevant({"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"});
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

// Phi-3.5 MoE: LayerNorms with bias, biases of all projections and, where the file says so, of the head.
void phimoe(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 4096, 1e6, HfNorm::kRms5);  // the key is so called
  n.norm = NormKind::kLayer;
  n.head_bias = r.boolean_or({"lm_head_bias"}, false);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kEight);
  block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  MoeConfig moe;
  moe.experts = r.integer_or({"num_local_experts"}, 16);
  moe.picks = r.integer_or({"num_experts_per_tok"}, 2);
  moe.width = r.integer({"intermediate_size"});
  block.mlp = expert_mlp(moe, hf_activation(r, {"hidden_act"}, "silu"));
  block.attention->window = r.nullable({"sliding_window"}, 0, 0);
  r.irrelevant({"router_jitter_noise", "input_jitter_noise", "original_max_position_embeddings", "hidden_dropout"});
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

void gpt_oss(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 131072, 150000, HfNorm::kRms5);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kRequired, 64);
  AttentionConfig& a = *block.attention;
  a.qkv_bias = a.out_bias = r.boolean_or({"attention_bias"}, true);
  a.sinks = true;
  MoeConfig moe;
  moe.experts = r.integer({"num_local_experts", "num_experts"});
  moe.picks = r.integer({"num_experts_per_tok", "experts_per_token"});
  moe.width = r.integer({"intermediate_size"});
  moe.router_bias = true;
  block.mlp = expert_mlp(moe, hf_activation(r, {"hidden_act"}, "silu"));
  block.mlp->bias = true;
  r.irrelevant({"swiglu_limit", "initial_context_length"});
  const std::int64_t window = r.nullable({"sliding_window"}, 128, 0);
  const auto spans =
      hf_spans(r, layers, [&](std::int64_t l) { return window > 0 && l % 2 == 0 ? HfSpan::kSliding : HfSpan::kFull; });
  for (HfSpan span : spans) {
    if (span == HfSpan::kChunked || (span == HfSpan::kSliding && window == 0))
      r.fail("layer_types", "sliding layers need sliding_window");
    a.window = span == HfSpan::kSliding ? window : 0;
    hf_push(n, block);
  }
}

// MoE iff l >= first_k_dense_replace and l mod moe_layer_freq = 0.
void deepseek(HfReader& r, Network& n, const HfOptions& options, bool third) {
  const std::int64_t layers = hf_common(r, n, false);
  BlockConfig block;
  AttentionConfig& a = block.attention.emplace();
  a.heads = a.kv_heads = r.integer({"num_attention_heads"});
  Mla& mla = a.mla.emplace();
  mla.query_rank = r.nullable({"q_lora_rank"}, 1536, 0);
  mla.kv_rank = r.integer_or({"kv_lora_rank"}, 512);
  mla.nope_dim = r.integer_or({"qk_nope_head_dim"}, 128);
  mla.rope_dim = r.integer_or({"qk_rope_head_dim"}, 64);
  mla.v_dim = r.integer_or({"v_head_dim"}, 128);
  a.head_dim = mla.nope_dim + mla.rope_dim;
  a.rope_dim = mla.rope_dim;
  if (r.has("attention_bias") && r.boolean_or({"attention_bias"}, false))
    r.fail("attention_bias", "latent attention with biases is not modelled");
  MoeConfig moe;
  moe.experts = r.nullable({"n_routed_experts"}, std::nullopt, 0);
  if (moe.experts > 0) {
    moe.picks = r.integer({"num_experts_per_tok"});
    moe.width = r.integer({"moe_intermediate_size"});
    moe.shared = r.nullable({"n_shared_experts"}, third ? 1 : 0, 0, 0);
    moe.shared_width = moe.shared > 0 ? moe.width : 0;
    moe.sigmoid = third;
    moe.correction_bias = third;
  }
  const std::int64_t first_dense = r.integer_or({"first_k_dense_replace"}, third ? 3 : 0, 0);
  const std::int64_t step = r.has("moe_layer_freq") ? r.integer({"moe_layer_freq"}) : 1;
  const ActivationKind activation = hf_activation(r, {"hidden_act"}, "silu");
  std::optional<std::int64_t> dense_width;
  for (std::int64_t l = 0; l < layers; ++l) {
    if (moe.experts > 0 && l >= first_dense && l % step == 0) {
      block.mlp = expert_mlp(moe, activation);
    } else {
      if (!dense_width) dense_width = r.integer({"intermediate_size"});
      block.mlp = MlpConfig{};
      block.mlp->width = *dense_width, block.mlp->gated = true, block.mlp->activation = activation;
    }
    hf_push(n, block);
  }
  if (const auto modules = r.maybe_integer("num_nextn_predict_layers", 0, 64)) {
    if (options.mtp)
      n.mtp = *modules;
    else if (*modules > 0)
      r.note(fmt::format(
          "left out: {} multi-token prediction module(s); not part of the counted model unless asked for", *modules));
  }
  r.irrelevant({"intermediate_size", "num_key_value_heads", "head_dim", "qk_head_dim", "aux_loss_alpha", "seq_aux",
                "ep_size", "n_group", "topk_group", "topk_method", "norm_topk_prob", "routed_scaling_factor",
                "scoring_func", "rope_interleave"});
}
void deepseek_v2(HfReader& r, Network& n, const HfOptions& o) {
  deepseek(r, n, o, false);
}
void deepseek_v3(HfReader& r, Network& n, const HfOptions& o) {
  deepseek(r, n, o, true);
}

// Experts at layers step-1, 2 step-1, ... or in moe_layers; every fourth layer attends to everything and has no
// rotation, the others work in chunks.
void llama4(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 131072, 500000, HfNorm::kRms5);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kEight, 128);
  AttentionConfig& a = *block.attention;
  a.qkv_bias = a.out_bias = r.boolean_or({"attention_bias"}, false);
  const bool qk_norm = r.boolean_or({"use_qk_norm"}, true);
  MoeConfig moe;
  moe.experts = r.integer_or({"num_local_experts"}, 16);
  moe.picks = r.integer_or({"num_experts_per_tok"}, 1);
  moe.width = moe.shared_width = r.integer({"intermediate_size"});
  moe.shared = 1;
  moe.sigmoid = true;
  const std::int64_t step = r.integer_or({"interleave_moe_layer_step"}, 1);
  const auto moe_layers = r.integers("moe_layers", 0, layers - 1);
  const auto rotated = r.integers("no_rope_layers", 0, 1);  // 1: the layer rotates, whatever the key's name says
  if (rotated && !rotated->empty() && static_cast<std::int64_t>(rotated->size()) != layers)
    r.fail("no_rope_layers", fmt::format("has {} entries for {} layers", rotated->size(), layers));
  const std::int64_t interval = r.has("no_rope_layer_interval") ? r.integer({"no_rope_layer_interval"}) : 4;
  const std::int64_t chunk = r.nullable({"attention_chunk_size"}, 8192, 0);
  const ActivationKind activation = hf_activation(r, {"hidden_act"}, "silu");
  r.irrelevant({"floor_scale", "attn_scale", "attn_temperature_tuning", "router_jitter_noise", "for_llm_compression",
                "cache_implementation"});
  const auto rotates = [&](std::int64_t l) {
    return rotated && !rotated->empty() ? (*rotated)[static_cast<std::size_t>(l)] == 1 : (l + 1) % interval != 0;
  };
  const auto spans =
      hf_spans(r, layers, [&](std::int64_t l) { return chunk > 0 && rotates(l) ? HfSpan::kChunked : HfSpan::kFull; });
  std::optional<std::int64_t> dense_width;
  const std::int64_t head_dim = a.head_dim;
  for (std::int64_t l = 0; l < layers; ++l) {
    const bool experts =
        moe_layers ? std::find(moe_layers->begin(), moe_layers->end(), l) != moe_layers->end() : (l + 1) % step == 0;
    if (experts) {
      block.mlp = expert_mlp(moe, activation);
    } else {
      if (!dense_width) dense_width = r.integer({"intermediate_size_mlp"});
      block.mlp = MlpConfig{};
      block.mlp->width = *dense_width, block.mlp->gated = true, block.mlp->activation = activation;
    }
    const HfSpan span = spans[static_cast<std::size_t>(l)];
    if (span == HfSpan::kSliding || (span == HfSpan::kChunked && chunk == 0))
      r.fail("layer_types", "chunked layers need attention_chunk_size; sliding ones are unknown here");
    a.chunk = span == HfSpan::kChunked ? chunk : 0;
    a.rope_dim = rotates(l) ? head_dim : 0;
    a.qk_norm = qk_norm && rotates(l);
    a.qk_gain = a.qk_norm ? QkGain::kNone : QkGain::kShared;
    hf_push(n, block);
  }
  r.irrelevant({"intermediate_size_mlp"});
}

}  // namespace

const std::vector<HfFamily>& hf_expert_families() {
  static const std::vector<HfFamily> families = {
      {"deepseek_v2", deepseek_v2}, {"deepseek_v3", deepseek_v3}, {"gpt_oss", gpt_oss},
      {"granitemoe", granitemoe},   {"kimi_k2", deepseek_v3},     {"llama4_text", llama4},
      {"phimoe", phimoe},           {"mixtral", mixtral},         {"olmoe", olmoe},
      {"qwen2_moe", qwen2_moe},     {"qwen3_moe", qwen3_moe},
  };
  return families;
}

}  // namespace fathom
