// The families of Hugging Face configurations and the pieces they share. Internal to models/import.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/import/hf_config.hpp"
#include "models/import/hf_reader.hpp"
#include "models/network.hpp"

namespace fathom {

using HfImport = void (*)(HfReader&, Network&, const HfOptions&);
struct HfFamily {
  const char* model_type;
  HfImport import;
};
const std::vector<HfFamily>& hf_dense_families();
const std::vector<HfFamily>& hf_gpt_families();
const std::vector<HfFamily>& hf_expert_families();

// hidden_size, vocab_size, num_attention_heads; tie_word_embeddings, max_position_embeddings, rms_norm_eps, rope_theta.
// Sets the network's globals for a rotary RMSNorm model, or with HfNorm::kLayer for one of LayerNorms (layer_norm_eps), with kFixed for one of LayerNorms whose epsilon
// is in no file; returns L.
enum class HfNorm { kRms, kRms5, kLayer, kFixed };  // kRms: 1e-6 where the file names no epsilon; the others 1e-5
std::int64_t hf_common(HfReader& r, Network& n, bool tie_default, std::int64_t max_length_default = 2048,
                       double rope_default = 10000.0, HfNorm norm = HfNorm::kRms);

// rope_theta, or rope_parameters.rope_theta of newer files.
double hf_rope_base(HfReader& r, double standard);

// int(head_dim x factor), as the reference code truncates; the factor under any of `names` or in rope_parameters.
std::int64_t hf_partial_rotation(HfReader& r, HfReader::Names names, double standard, std::int64_t head_dim);

enum class HfKvHeads { kSameAsHeads, kEight, kRequired };  // what an absent num_key_value_heads means; null is always n
// Query, key/value heads and head size. `head_dim_default` 0: width / heads, which must divide.
AttentionConfig hf_attention(HfReader& r, const Network& n, HfKvHeads kv_default, std::int64_t head_dim_default = 0);

ActivationKind hf_activation(HfReader& r, HfReader::Names names, const std::string& standard);
MlpConfig hf_gated_mlp(HfReader& r, std::int64_t width);

// The attention type of every layer: from layer_types where present (its length must be L), else by the family's rule.
enum class HfSpan { kFull, kSliding, kChunked };
std::vector<HfSpan> hf_spans(HfReader& r, std::int64_t layers, const std::function<HfSpan(std::int64_t)>& rule);

// Appends a layer of this block, sharing the kind with equal ones.
void hf_push(Network& n, const BlockConfig& block);

}  // namespace fathom
