// Families of the GPT kind: LayerNorm, plain MLP, biases; parallel blocks of GPT-NeoX, Falcon and Phi.
#include <fmt/format.h>

#include "lib/error.hpp"
#include "models/import/hf_families.hpp"

namespace fathom {
namespace {

void repeat(Network& n, const BlockConfig& block, std::int64_t layers) {
  for (std::int64_t l = 0; l < layers; ++l) hf_push(n, block);
}

MlpConfig plain_mlp(std::int64_t width, ActivationKind activation, bool bias) {
  MlpConfig m;
  m.width = width;
  m.activation = activation;
  m.bias = bias;
  return m;
}

void gpt2_like(HfReader& r, Network& n, bool bigcode) {
  n.width = r.integer({"n_embd", "hidden_size"});
  n.vocab = r.integer({"vocab_size"});
  n.tied = r.boolean_or({"tie_word_embeddings"}, true);
  n.max_length = r.integer_or({"n_positions", "max_position_embeddings"}, 1024);
  n.positions = PositionKind::kLearned;
  n.norm = NormKind::kLayer;
  n.norm_epsilon = r.real_or({"layer_norm_epsilon"}, 1e-5);
  const std::int64_t layers = r.integer({"n_layer", "num_hidden_layers"}, 1, 100000);
  BlockConfig block;
  AttentionConfig& a = block.attention.emplace();
  a.heads = a.kv_heads = r.integer({"n_head", "num_attention_heads"});
  if (n.width % a.heads != 0)
    r.fail("n_head", fmt::format("the width {} is no multiple of {} heads", n.width, a.heads));
  a.head_dim = n.width / a.heads;
  a.qkv_bias = a.out_bias = true;
  const std::int64_t width = r.nullable({"n_inner"}, 4 * n.width, 4 * n.width);
  block.mlp =
      plain_mlp(width, hf_activation(r, {"activation_function"}, bigcode ? "gelu_pytorch_tanh" : "gelu_new"), true);
  if (bigcode) {
    if (r.boolean_or({"multi_query"}, true)) a.kv_heads = 1;
    r.irrelevant({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "max_batch_size",
                  "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache", "validate_runner_input"});
  }
  if (r.has("add_cross_attention") && r.boolean_or({"add_cross_attention"}, false))
    r.fail("add_cross_attention", "cross attention is not modelled");
  r.irrelevant({"n_ctx", "attn_pdrop", "embd_pdrop", "resid_pdrop", "summary_activation", "summary_first_dropout",
                "summary_proj_to_labels", "summary_type", "summary_use_proj", "scale_attn_weights",
                "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"});
  repeat(n, block, layers);
}

void gpt2(HfReader& r, Network& n, const HfOptions&) {
  gpt2_like(r, n, false);
}
// GPT-BigCode (StarCoder 1): GPT-2 with one key/value head.
void gpt_bigcode(HfReader& r, Network& n, const HfOptions&) {
  gpt2_like(r, n, true);
}

// Globals of a rotary LayerNorm model.
std::int64_t layer_norm_common(HfReader& r, Network& n, bool tie_default, HfReader::Names epsilon,
                               HfReader::Names layers) {
  n.width = r.integer({"hidden_size", "n_embed"});
  n.vocab = r.integer({"vocab_size"});
  n.tied = r.boolean_or({"tie_word_embeddings"}, tie_default);
  n.max_length = r.integer_or({"max_position_embeddings"}, 2048);
  n.norm = NormKind::kLayer;
  n.norm_epsilon = r.real_or(epsilon, 1e-5);
  return r.integer(layers, 1, 100000);
}

void gpt_neox(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = layer_norm_common(r, n, false, {"layer_norm_eps"}, {"num_hidden_layers"});
  n.rope_base = r.has("rotary_emb_base") ? r.real_or({"rotary_emb_base", "rope_theta"}, 10000) : hf_rope_base(r, 10000);
  BlockConfig block;
  AttentionConfig& a = block.attention.emplace();
  a.heads = a.kv_heads = r.integer({"num_attention_heads"});
  if (n.width % a.heads != 0)
    r.fail("num_attention_heads", fmt::format("the width {} is no multiple of {} heads", n.width, a.heads));
  a.head_dim = n.width / a.heads;
  a.rope_dim = hf_partial_rotation(r, {"rotary_pct", "partial_rotary_factor"}, 0.25, a.head_dim);
  a.qkv_bias = a.out_bias = r.boolean_or({"attention_bias"}, true);
  block.mlp = plain_mlp(r.integer({"intermediate_size"}), hf_activation(r, {"hidden_act"}, "gelu"), true);
  block.parallel = r.boolean_or({"use_parallel_residual"}, true);
  r.irrelevant({"hidden_dropout", "classifier_dropout"});
  repeat(n, block, layers);
}

void falcon(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = layer_norm_common(r, n, true, {"layer_norm_epsilon"}, {"num_hidden_layers", "n_layer"});
  const bool alibi = r.boolean_or({"alibi"}, false);
  n.positions = alibi ? PositionKind::kNone : PositionKind::kRope;
  if (!alibi) n.rope_base = hf_rope_base(r, 10000);
  r.irrelevant({"rope_theta", "rope_parameters"});
  const bool grouped = r.boolean_or({"new_decoder_architecture"}, false);
  const bool bias = r.boolean_or({"bias"}, false);
  BlockConfig block;
  AttentionConfig& a = block.attention.emplace();
  a.heads = r.integer({"num_attention_heads", "n_head"});
  const bool multi_query = !grouped && r.boolean_or({"multi_query"}, true);
  r.irrelevant({"multi_query"});
  if (multi_query) {
    a.kv_heads = 1;
    r.irrelevant({"num_kv_heads", "n_head_kv"});
  } else {
    a.kv_heads = r.nullable({"num_kv_heads", "n_head_kv"}, a.heads, a.heads);
  }
  if (n.width % a.heads != 0)
    r.fail("num_attention_heads", fmt::format("the width {} is no multiple of {} heads", n.width, a.heads));
  a.head_dim = n.width / a.heads;
  a.rope_dim = alibi ? 0 : a.head_dim;
  a.qkv_bias = a.out_bias = bias;
  const std::int64_t width = r.nullable({"ffn_hidden_size"}, 4 * n.width, 4 * n.width);
  block.mlp = plain_mlp(width, hf_activation(r, {"activation"}, "gelu"), bias);
  block.parallel = grouped || r.boolean_or({"parallel_attn"}, true);
  r.irrelevant({"parallel_attn"});
  if (block.parallel)
    block.parallel_norms = static_cast<int>(grouped ? r.nullable({"num_ln_in_parallel_attn"}, 2, 2, 1, 2) : 1);
  r.irrelevant({"num_ln_in_parallel_attn", "hidden_dropout", "apply_residual_connection_post_layernorm", "ff_factor"});
  repeat(n, block, layers);
}

void phi(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = layer_norm_common(r, n, false, {"layer_norm_eps"}, {"num_hidden_layers"});
  n.rope_base = hf_rope_base(r, 10000);
  n.head_bias = true;
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kSameAsHeads);
  AttentionConfig& a = *block.attention;
  a.rope_dim = hf_partial_rotation(r, {"partial_rotary_factor"}, 0.5, a.head_dim);
  a.qkv_bias = a.out_bias = true;
  if (r.has("qk_layernorm") && r.boolean_or({"qk_layernorm"}, false))
    r.fail("qk_layernorm", "query/key LayerNorms with biases are not modelled");
  block.mlp = plain_mlp(r.integer({"intermediate_size"}), hf_activation(r, {"hidden_act"}, "gelu_new"), true);
  block.parallel = true;
  block.parallel_norms = 1;
  r.irrelevant({"embd_pdrop", "resid_pdrop"});
  repeat(n, block, layers);
}

void starcoder2(HfReader& r, Network& n, const HfOptions&) {
  const std::int64_t layers = layer_norm_common(r, n, true, {"norm_epsilon"}, {"num_hidden_layers"});
  n.rope_base = hf_rope_base(r, 10000);
  BlockConfig block;
  block.attention = hf_attention(r, n, HfKvHeads::kRequired);
  const bool bias = r.boolean_or({"use_bias"}, true);
  block.attention->qkv_bias = block.attention->out_bias = bias;
  block.mlp = plain_mlp(r.integer({"intermediate_size"}), hf_activation(r, {"hidden_act"}, "gelu_pytorch_tanh"), bias);
  block.attention->window = r.nullable({"sliding_window"}, 0, 0);
  r.irrelevant({"residual_dropout", "embedding_dropout", "use_sliding_window", "max_window_layers", "mlp_type",
                "norm_type", "layer_norm_eps"});
  repeat(n, block, layers);
}

}  // namespace

const std::vector<HfFamily>& hf_gpt_families() {
  static const std::vector<HfFamily> families = {{"falcon", falcon},     {"gpt2", gpt2}, {"gpt_bigcode", gpt_bigcode},
                                                 {"gpt_neox", gpt_neox}, {"phi", phi},   {"starcoder2", starcoder2}};
  return families;
}

}  // namespace fathom
