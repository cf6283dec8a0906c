// Pieces shared by the families.
#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"
#include "models/import/hf_families.hpp"

namespace fathom {

double hf_rope_base(HfReader& r, double standard) {
  // Newer files nest the base beside the scaling rule; scaling changes angles, not counts.
  if (const JsonNode* nested = r.object("rope_parameters");
      nested != nullptr && nested->find("rope_theta") != nullptr) {
    std::vector<std::string> notes;
    const double inner = HfReader(*nested, r.file(), notes, "rope_parameters.").real_or({"rope_theta"}, standard);
    if (r.has("rope_theta") && r.real_or({"rope_theta"}, standard) != inner)
      r.fail("rope_theta", "differs from rope_parameters.rope_theta", "keep one of the two");
    return inner;
  }
  return r.real_or({"rope_theta"}, standard);
}

std::int64_t hf_partial_rotation(HfReader& r, HfReader::Names names, double standard, std::int64_t head_dim) {
  double factor = standard;
  const JsonNode* nested = r.object("rope_parameters");
  if (nested != nullptr && nested->find("partial_rotary_factor") != nullptr) {
    std::vector<std::string> notes;
    factor = HfReader(*nested, r.file(), notes, "rope_parameters.").real_or({"partial_rotary_factor"}, standard);
    for (const char* name : names)
      if (r.has(name) && r.real_or({name}, standard) != factor)
        r.fail(name, "differs from rope_parameters.partial_rotary_factor", "keep one of the two");
  } else {
    factor = r.real_or(names, standard);
  }
  if (!(factor >= 0 && factor <= 1))
    r.fail(*names.begin(), fmt::format("the rotated share must lie in [0, 1], not {}", factor));
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * factor);
}

std::int64_t hf_common(HfReader& r, Network& n, bool tie_default, std::int64_t max_length_default,
                       double rope_default, HfNorm norm) {
  n.width = r.integer({"hidden_size"});
  n.vocab = r.integer({"vocab_size"});
  n.tied = r.boolean_or({"tie_word_embeddings"}, tie_default);
  n.max_length = r.integer_or({"max_position_embeddings"}, max_length_default);
  switch (norm) {
    case HfNorm::kRms: n.norm_epsilon = r.real_or({"rms_norm_eps"}, 1e-6); break;
    case HfNorm::kRms5: n.norm_epsilon = r.real_or({"rms_norm_eps"}, 1e-5); break;
    case HfNorm::kLayer: n.norm_epsilon = r.real_or({"layer_norm_eps"}, 1e-5); break;
    case HfNorm::kFixed: n.norm_epsilon = 1e-5; break;
  }
  n.positions = PositionKind::kRope;
  n.rope_base = hf_rope_base(r, rope_default);
  n.norm = norm == HfNorm::kLayer || norm == HfNorm::kFixed ? NormKind::kLayer : NormKind::kRms;
  return r.integer({"num_hidden_layers"}, 1, 100000);
}

AttentionConfig hf_attention(HfReader& r, const Network& n, HfKvHeads kv_default, std::int64_t head_dim_default) {
  AttentionConfig a;
  a.heads = r.integer({"num_attention_heads"});
  std::optional<std::int64_t> absent;
  if (kv_default == HfKvHeads::kSameAsHeads) absent = a.heads;
  if (kv_default == HfKvHeads::kEight) absent = 8;
  a.kv_heads = r.nullable({"num_key_value_heads"}, absent, a.heads);
  if (a.heads % a.kv_heads != 0)
    r.fail("num_key_value_heads",
           fmt::format("{} query heads are no multiple of {} key/value heads", a.heads, a.kv_heads));
  const bool stated = r.has("head_dim") && !r.is_null("head_dim");
  if (!stated && head_dim_default == 0 && n.width % a.heads != 0)
    r.fail("num_attention_heads", fmt::format("the width {} is no multiple of {} heads", n.width, a.heads),
           "state head_dim");
  const std::int64_t derived = head_dim_default != 0 ? head_dim_default : n.width / a.heads;
  a.head_dim = r.nullable({"head_dim"}, derived, derived);
  a.rope_dim = n.positions == PositionKind::kRope ? a.head_dim : 0;
  return a;
}

ActivationKind hf_activation(HfReader& r, HfReader::Names names, const std::string& standard) {
  static const std::vector<std::pair<std::string, ActivationKind>> known = {
      {"silu", ActivationKind::kSilu},          {"swish", ActivationKind::kSilu},
      {"gelu", ActivationKind::kGeluErf},       {"gelu_new", ActivationKind::kGeluTanh},
      {"gelu_fast", ActivationKind::kGeluTanh}, {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
      {"relu", ActivationKind::kRelu},          {"relu2", ActivationKind::kRelu2}};
  const std::string text = r.text_or(names, standard);
  std::vector<std::string> all;
  for (const auto& [name, kind] : known) {
    if (name == text) return kind;
    all.push_back(name);
  }
  for (const char* name : names)
    if (r.has(name)) r.fail(name, fmt::format("unknown activation '{}'", json_excerpt(text)), name_hint(text, all));
  throw_internal("a family's default activation is unknown");
}

MlpConfig hf_gated_mlp(HfReader& r, std::int64_t width) {
  MlpConfig m;
  m.width = width;
  m.gated = true;
  m.activation = hf_activation(r, {"hidden_act"}, "silu");
  return m;
}

std::vector<HfSpan> hf_spans(HfReader& r, std::int64_t layers, const std::function<HfSpan(std::int64_t)>& rule) {
  std::vector<HfSpan> spans;
  if (const auto types = r.strings("layer_types")) {
    if (static_cast<std::int64_t>(types->size()) != layers)
      r.fail("layer_types", fmt::format("has {} entries for {} layers", types->size(), layers));
    for (const std::string& type : *types) {
      if (type == "full_attention")
        spans.push_back(HfSpan::kFull);
      else if (type == "sliding_attention")
        spans.push_back(HfSpan::kSliding);
      else if (type == "chunked_attention")
        spans.push_back(HfSpan::kChunked);
      else
        r.fail("layer_types", fmt::format("unknown layer type '{}'", json_excerpt(type)),
               "known: full_attention, sliding_attention, chunked_attention");
    }
    return spans;
  }
  for (std::int64_t l = 0; l < layers; ++l) spans.push_back(rule(l));
  return spans;
}

void hf_push(Network& n, const BlockConfig& block) {
  auto found = std::find(n.kinds.begin(), n.kinds.end(), block);
  if (found == n.kinds.end()) found = n.kinds.insert(found, block);
  n.layers.push_back(static_cast<int>(found - n.kinds.begin()));
}

}  // namespace fathom
