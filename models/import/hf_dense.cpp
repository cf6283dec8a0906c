// Dense families of the Llama kind: pre-norm (or post-norm) RMSNorm, rotary positions, gated MLP.
#include <fmt/format.h>

#include "lib/error.hpp"
#include "models/import/hf_families.hpp"

namespace fathom {
namespace {

// One uniform block, windows by layer.
void push_layers(Network& n, BlockConfig block, const std::vector<HfSpan>& spans, std::int64_t window) {
  for (HfSpan span : spans) {
    block.attention->window = span == HfSpan::kSliding ? window : 0;
    hf_push(n, block);
  }
}

std::int64_t window_for(HfReader& r, const std::vector<HfSpan>& spans, std::int64_t window) {
  for (HfSpan span : spans) {
    if (span == HfSpan::kChunked) r.fail("layer_types", "this family has no chunked attention");
    if (span == HfSpan::kSliding && window == 0) r.fail("sliding_window", "is needed by the sliding layers");
  }
  return window;
}

void plain_llama(HfReader& r, Network& n, HfKvHeads kv_default, bool tie_default, HfNorm norm = HfNorm::kRms) {
  const std::int64_t layers = hf_common(r, n, tie_default, 2048, 10000.0, norm);
  BlockConfig block;
  block.attention = hf_attention(r, n, kv_default);
  block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  block.mlp = hf_gated_mlp(r, r.integer({"intermediate_size"}));
  block.mlp->bias = r.boolean_or({"mlp_bias"}, false);
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

void llama(HfReader& r, Network& n, const HfOptions&) {
  plain_llama(r, n, HfKvHeads::kSameAsHeads, false);
}

void granite(HfReader& r, Network& n, const HfOptions&) {
  plain_llama(r, n, HfKvHeads::kSameAsHeads, false);
  r.irrelevant({"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"});
}

void mistral(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 131072);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kEight);
  block.mlp = hf_gated_mlp(r, r.integer({"intermediate_size"}));
  const std::int64_t window = r.nullable({"sliding_window"}, 4096, 0);
  const auto spans = hf_spans(r, layers, [&](std::int64_t) { return window > 0 ? HfSpan::kSliding : HfSpan::kFull; });
  push_layers(n, block, spans, window_for(r, spans, window));
}

// Qwen 2 and 3: the window is on the layers from max_window_layers up, and only if switched on.
void qwen(HfReader& r, Network& n, bool third) {
  const std::int64_t layers = hf_common(r, n, false, 32768);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kRequired, third ? 128 : 0);
  if (third) {
    block.attention->qk_norm = true;
    block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  } else {
    block.attention->qkv_bias = true;
  }
  block.mlp = hf_gated_mlp(r, r.integer({"intermediate_size"}));
  const bool sliding = r.has("use_sliding_window") && r.boolean_or({"use_sliding_window"}, false);
  std::int64_t window = 0;
  std::int64_t from = 0;
  if (sliding) {
    window = r.nullable({"sliding_window"}, 4096, 0);
    from = r.integer_or({"max_window_layers"}, 28, 0);
  } else {
    r.irrelevant({"sliding_window", "max_window_layers"});  // present but switched off
  }
  const auto spans =
      hf_spans(r, layers, [&](std::int64_t l) { return window > 0 && l >= from ? HfSpan::kSliding : HfSpan::kFull; });
  push_layers(n, block, spans, window_for(r, spans, window));
}
void qwen2(HfReader& r, Network& n, const HfOptions&) {
  qwen(r, n, false);
}
void qwen3(HfReader& r, Network& n, const HfOptions&) {
  qwen(r, n, true);
}

// Gemma: gated MLP although the activation is called gelu (the tanh form), heads of 256, tied.
BlockConfig gemma_block(HfReader& r, const Network& n, std::int64_t mlp_width) {
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kRequired, 256);
  block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  block.mlp.emplace();
  block.mlp->width = mlp_width;
  block.mlp->gated = true;
  block.mlp->activation = ActivationKind::kGeluTanh;
  r.irrelevant({"hidden_act", "hidden_activation", "query_pre_attn_scalar", "attn_logit_softcapping",
                "final_logit_softcapping", "use_bidirectional_attention"});
  return block;
}

void gemma(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, true, 8192);
  const BlockConfig block = gemma_block(r, n, r.integer({"intermediate_size"}));
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

void gemma2(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, true, 8192);
  BlockConfig block = gemma_block(r, n, r.integer({"intermediate_size"}));
  block.norms = 4;
  const std::int64_t window = r.nullable({"sliding_window"}, 4096, 0);
  r.irrelevant({"sliding_window_size", "cache_implementation"});
  const auto spans =
      hf_spans(r, layers, [&](std::int64_t l) { return window > 0 && l % 2 == 0 ? HfSpan::kSliding : HfSpan::kFull; });
  push_layers(n, block, spans, window_for(r, spans, window));
}

void gemma3(HfReader& r, Network& n, const HfOptions&) {
  // Published files leave most keys to the class: every one used is listed.
  n.width = r.integer_or({"hidden_size"}, 2304);
  n.vocab = r.integer_or({"vocab_size"}, 262208);
  n.tied = r.boolean_or({"tie_word_embeddings"}, true);
  n.max_length = r.integer_or({"max_position_embeddings"}, 131072);
  n.norm_epsilon = r.real_or({"rms_norm_eps"}, 1e-6);
  n.rope_base = hf_rope_base(r, 1e6);
  const std::int64_t layers = r.integer_or({"num_hidden_layers"}, 26, 1, 100000);
  BlockConfig block;
  AttentionConfig& a = block.attention.emplace();
  a.heads = r.integer_or({"num_attention_heads"}, 8);
  a.kv_heads = r.nullable({"num_key_value_heads"}, 4, a.heads);
  a.head_dim = a.rope_dim = r.integer_or({"head_dim"}, 256);
  a.qk_norm = true;
  a.qkv_bias = a.out_bias = r.boolean_or({"attention_bias"}, false);
  block.mlp.emplace();
  block.mlp->width = r.integer_or({"intermediate_size"}, 9216);
  block.mlp->gated = true;
  block.norms = 4;
  r.irrelevant({"hidden_act", "hidden_activation", "query_pre_attn_scalar", "attn_logit_softcapping",
                "final_logit_softcapping", "rope_local_base_freq", "cache_implementation",
                "use_bidirectional_attention"});
  const std::int64_t window = r.nullable({"sliding_window"}, 4096, 0);
  std::int64_t pattern = 6;
  if (r.has("sliding_window_pattern") || r.has("_sliding_window_pattern") || !r.has("layer_types"))
    pattern = r.integer_or({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
  const auto spans = hf_spans(r, layers, [&](std::int64_t l) {
    return window > 0 && (l + 1) % pattern != 0 ? HfSpan::kSliding : HfSpan::kFull;
  });
  push_layers(n, block, spans, window_for(r, spans, window));
}

void phi3(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 4096, 10000.0, HfNorm::kRms5);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kSameAsHeads);
  block.attention->rope_dim = hf_partial_rotation(r, {"partial_rotary_factor"}, 1.0, block.attention->head_dim);
  if (r.has("attention_bias") && r.boolean_or({"attention_bias"}, false))
    r.fail("attention_bias", "this family has no biases");
  block.mlp = hf_gated_mlp(r, r.integer({"intermediate_size"}));
  const std::int64_t window = r.nullable({"sliding_window"}, 0, 0);
  r.irrelevant({"embd_pdrop", "resid_pdrop", "original_max_position_embeddings"});
  const auto spans = hf_spans(r, layers, [&](std::int64_t) { return window > 0 ? HfSpan::kSliding : HfSpan::kFull; });
  push_layers(n, block, spans, window_for(r, spans, window));
}

// OLMo 1: LayerNorm without any parameter, its epsilon in the code and in no file. OLMo 2: RMSNorm after attention and MLP, query/key norm over the whole row.
void olmo(HfReader& r, Network& n, const HfOptions&) {
  plain_llama(r, n, HfKvHeads::kSameAsHeads, false, HfNorm::kFixed);
  n.norm_gain = n.norm_bias = false;
  r.irrelevant({"clip_qkv", "rms_norm_eps", "layer_norm_eps"});
}
void olmo2(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, false, 2048, 10000.0, HfNorm::kRms5);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kSameAsHeads);
  block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  block.attention->qk_norm_full = true;
  block.mlp = hf_gated_mlp(r, r.integer({"intermediate_size"}));
  block.post_norm_only = true;
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

// Cohere: attention and MLP in parallel behind one LayerNorm without bias. Cohere 2 adds windows; its full layers have
// no rotation.
BlockConfig cohere_block(HfReader& r, Network& n) {
  n.norm_bias = false;
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kSameAsHeads);
  block.attention->qkv_bias = block.attention->out_bias = r.boolean_or({"attention_bias"}, false);
  block.mlp = hf_gated_mlp(r, r.integer({"intermediate_size"}));
  block.parallel = true;
  block.parallel_norms = 1;
  r.irrelevant({"logit_scale", "use_parallel_block", "use_parallel_embedding", "use_gated_activation",
                "position_embedding_type", "rms_norm_eps"});
  return block;
}
void cohere(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, true, 8192, 10000.0, HfNorm::kLayer);
  BlockConfig block = cohere_block(r, n);
  block.attention->qk_norm = r.boolean_or({"use_qk_norm"}, false);
  if (block.attention->qk_norm) block.attention->qk_gain = QkGain::kPerHead;
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}
void cohere2(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = hf_common(r, n, true, 8192, 10000.0, HfNorm::kLayer);
  BlockConfig block = cohere_block(r, n);
  if (r.has("use_qk_norm") && r.boolean_or({"use_qk_norm"}, false))
    r.fail("use_qk_norm", "this family has no query/key norm");
  r.irrelevant({"rotary_pct", "order_of_interleaved_layers"});
  const std::int64_t window = r.nullable({"sliding_window"}, 4096, 0);
  std::int64_t pattern = 4;
  if (r.has("sliding_window_pattern") || r.has("_sliding_window_pattern") || !r.has("layer_types"))
    pattern = r.integer_or({"sliding_window_pattern", "_sliding_window_pattern"}, 4);
  const auto spans = hf_spans(r, layers, [&](std::int64_t l) {
    return window > 0 && (l + 1) % pattern != 0 ? HfSpan::kSliding : HfSpan::kFull;
  });
  window_for(r, spans, window);
  const std::int64_t rotated = block.attention->rope_dim;
  for (HfSpan span : spans) {
    block.attention->window = span == HfSpan::kSliding ? window : 0;
    block.attention->rope_dim = span == HfSpan::kSliding ? rotated : 0;
    hf_push(n, block);
  }
}

}  // namespace

const std::vector<HfFamily>& hf_dense_families() {
  static const std::vector<HfFamily> families = {
      {"cohere", cohere},   {"cohere2", cohere2}, {"gemma", gemma},     {"gemma2", gemma2}, {"gemma3_text", gemma3},
      {"granite", granite}, {"llama", llama},     {"mistral", mistral}, {"olmo", olmo},     {"olmo2", olmo2},
      {"phi3", phi3},       {"qwen2", qwen2},     {"qwen3", qwen3},
  };
  return families;
}

}  // namespace fathom
