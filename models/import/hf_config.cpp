#include "models/import/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "lib/error.hpp"
#include "models/import/hf_families.hpp"
#include "models/import/hf_left_out.hpp"

namespace fathom {
namespace {

// Composite files keep the language model in text_config; the vision part is not a decoder and is left out, with a
// note.
struct Composite {
  const char* model_type;
  const char* text_type;
};
constexpr Composite kComposites[] = {{"gemma3", "gemma3_text"}, {"llama4", "llama4_text"}, {"mistral3", "mistral"}};

const HfFamily* find_family(std::string_view model_type) {
  for (const auto* families : {&hf_dense_families(), &hf_gpt_families(), &hf_expert_families()})
    for (const HfFamily& family : *families)
      if (family.model_type == model_type) return &family;
  return nullptr;
}

// Keys of training, generation and bookkeeping that no count depends on.
void ignore_everywhere(HfReader& r) {
  r.irrelevant({"architectures",
                "model_type",
                "_name_or_path",
                "name_or_path",
                "transformers_version",
                "auto_map",
                "torch_dtype",
                "dtype",
                "use_cache",
                "bos_token_id",
                "eos_token_id",
                "pad_token_id",
                "sep_token_id",
                "unk_token_id",
                "cls_token_id",
                "mask_token_id",
                "initializer_range",
                "attention_dropout",
                "rope_scaling",
                "rope_parameters",
                "pretraining_tp",
                "output_router_logits",
                "router_aux_loss_coef",
                "task_specific_params",
                "gradient_checkpointing",
                "output_attentions",
                "output_hidden_states",
                "return_dict",
                "is_decoder",
                "_attn_implementation",
                "attn_implementation",
                "unsloth_version",
                "id2label",
                "label2id",
                "num_labels",
                "tokenizer_class",
                "chunk_size_feed_forward",
                "_attn_implementation_autoset",
                "attention_probs_dropout_prob",
                "hidden_dropout_prob",
                "_sliding_window_pattern"});
}

// The stored type does not change a count (a run has its own), but a name that is none, or two names that differ, is a file that cannot be believed.
void check_dtype(HfReader& r) {
  static const std::vector<std::string> known = {"float32", "float", "float16", "half", "bfloat16", "float64", "double", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "auto"};
  const auto stated = [&](const char* name) { return r.has(name) && !r.is_null(name); };
  std::string stored;
  for (const char* name : {"torch_dtype", "dtype"}) {
    if (!stated(name)) continue;
    const std::string text = r.text_or({name}, "");
    const std::string type = text.starts_with("torch.") ? text.substr(6) : text;
    if (std::find(known.begin(), known.end(), type) == known.end()) r.fail(name, fmt::format("unknown type '{}'", json_excerpt(text)), name_hint(type, known));
    stored = type;
  }
  if (stated("torch_dtype") && stated("dtype")) r.text_or({"torch_dtype", "dtype"}, "");  // refuses two that differ
  if (stored.empty() || stored == "auto") return;
  const std::string text = fmt::format("{} = {} is the type of the file's weights: bytes are counted in --dtype", stated("torch_dtype") ? "torch_dtype" : "dtype", stored);
  if (std::find(r.notes().begin(), r.notes().end(), text) == r.notes().end()) r.note(text);
}

// A model of two stacks is none of these, whatever its model_type says.
void check_decoder(HfReader& r) {
  const char* key = "is_encoder_decoder";
  if (r.has(key) && !r.is_null(key) && r.boolean_or({key}, false)) r.fail("is_encoder_decoder", "is true: this is a model with an encoder, and only decoders are counted", "set it to false if the model has none");
}

// The bytes beside fp8 weights that are not counted, in words.
std::string scales(HfReader& r, const JsonNode& config) {
  const JsonNode* block = config.find("weight_block_size");
  if (block == nullptr || block->kind == JsonNode::Kind::kNull) return "their scales, one per matrix, are ignored";
  std::int64_t size[2] = {0, 0};
  bool good = block->kind == JsonNode::Kind::kArray && block->items.size() == 2;
  for (int i = 0; good && i < 2; ++i) {
    const std::string& text = block->items[static_cast<std::size_t>(i)].text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size[i]);
    good = block->items[static_cast<std::size_t>(i)].kind == JsonNode::Kind::kInteger && error == std::errc() && end == text.data() + text.size() && size[i] > 0 && size[i] <= 1 << 20;
  }
  if (!good) r.fail("quantization_config.weight_block_size", "is no pair of block sizes", "write [128, 128], or leave it out");
  return fmt::format("their scales, one of 4 bytes per {} x {} block ({:.2g} % of these bytes), are ignored", size[0], size[1],
                     400.0 / (static_cast<double>(size[0]) * static_cast<double>(size[1])));
}

// Rule g: the stored width of the weights, where it is not that of the run.
std::optional<DType> quantization(HfReader& r) {
  const JsonNode* config = r.object("quantization_config");
  if (config == nullptr) return std::nullopt;
  const JsonNode* method = config->find("quant_method");
  const std::string name = method != nullptr && method->kind == JsonNode::Kind::kString ? method->text : "?";
  if (name != "fp8")
    r.fail("quantization_config", fmt::format("weights stored by '{}' have no width in this model", json_excerpt(name)),
           "remove quantization_config to count the network with unquantised weights");
  r.note("quantization_config: fp8 matrices inside the layers (weight_dtype = f8); " + scales(r, *config));
  std::vector<std::string> others;
  for (const std::string& key : config->names)
    if (key != "quant_method" && key != "weight_block_size") others.push_back(json_excerpt(key));
  if (!others.empty()) r.note(fmt::format("quantization_config: {} ignored", fmt::join(others, ", ")));
  return DType::kF8;
}

// Rule b: the class name is looked at only to say that it is another family's. "Qwen2MoeForCausalLM" is qwen2_moe, "Gemma3ForCausalLM" gemma3_text.
void cross_check(HfReader& r, const std::string& type) {
  const auto letters = [](std::string_view text) {
    std::string plain;
    for (const char c : text)
      if (c != '_') plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return plain;
  };
  if (!r.has("architectures") || r.is_null("architectures")) return;
  const std::optional<std::vector<std::string>> classes = r.strings("architectures");
  if (!classes || classes->empty()) return;
  std::string wanted = letters(type);
  if (wanted.ends_with("text")) wanted.resize(wanted.size() - 4);
  if (wanted == "kimik2") wanted = "deepseekv3";
  for (const std::string& name : *classes) {
    std::string stem = letters(name);
    for (const char* end : {"for", "lmheadmodel", "model"})
      if (const std::size_t at = stem.find(end); at != std::string::npos && at > 0) stem.resize(at);
    if (stem == wanted) return;
  }
  r.note(fmt::format("architectures names {}, which is not of model_type {}: the model_type counts", json_excerpt(classes->front()), json_excerpt(type)));
}

std::string default_name(const std::string& file) {
  const std::filesystem::path path(file);
  const std::string stem = path.stem().string();
  const std::string folder = path.parent_path().filename().string();
  return json_excerpt(stem == "config" && !folder.empty() && folder != "." && folder != ".." ? folder : stem);
}

Network import_tree(const JsonNode& root, const std::string& file, const HfOptions& options) {
  Network network;
  network.source = file;
  network.name = default_name(file);
  network.summary = "";
  HfReader outer(root, file, network.notes);
  if (!outer.has("model_type"))
    outer.fail("model_type", "is missing; it names the family",
               "known: " + fmt::format("{}", fmt::join(hf_model_types(), ", ")));
  const std::string type = outer.text_or({"model_type"}, "");
  const std::optional<DType> stored = quantization(outer);
  cross_check(outer, type);
  check_dtype(outer);
  check_decoder(outer);

  const auto composite = std::find_if(std::begin(kComposites), std::end(kComposites),
                                      [&](const Composite& c) { return type == c.model_type; });
  if (composite != std::end(kComposites) && outer.has("text_config")) {
    const JsonNode* inner = outer.object("text_config");
    if (inner == nullptr) outer.fail("text_config", "is null");
    HfReader text(*inner, file, network.notes, "text_config.");
    check_dtype(text);
    check_decoder(text);
    const std::string inner_type = text.has("model_type") ? text.text_or({"model_type"}, "") : composite->text_type;
    if (inner_type != composite->text_type)
      text.fail("model_type",
                fmt::format("is '{}' where {} needs '{}'", json_excerpt(inner_type), type, composite->text_type));
    find_family(composite->text_type)->import(text, network, options);
    if (outer.has("tie_word_embeddings")) {
      const bool tied = outer.boolean_or({"tie_word_embeddings"}, network.tied);
      if (text.has("tie_word_embeddings") && tied != network.tied)
        outer.fail("tie_word_embeddings", "differs from text_config.tie_word_embeddings");
      network.tied = tied;
    }
    ignore_everywhere(text);
    text.finish(options.strict);
    note_left_out(outer);
    outer.irrelevant({"boi_token_index", "eoi_token_index", "image_token_index", "image_token_id", "vision_feature_layer", "projector_hidden_act",
                      "multimodal_projector_bias", "spatial_merge_size"});
  } else {
    const std::string family_type = composite != std::end(kComposites) ? composite->text_type : type;
    const HfFamily* family = find_family(family_type);
    if (family == nullptr)
      outer.fail("model_type", fmt::format("unknown family '{}'", json_excerpt(type)),
                 "known: " + fmt::format("{}", fmt::join(hf_model_types(), ", ")));
    family->import(outer, network, options);
  }
  ignore_everywhere(outer);
  outer.finish(options.strict);
  network.weight_dtype = stored;
  validate(network);
  return network;
}

}  // namespace

std::vector<std::string> hf_model_types() {
  std::vector<std::string> types;
  for (const auto* families : {&hf_dense_families(), &hf_gpt_families(), &hf_expert_families()})
    for (const HfFamily& family : *families) types.emplace_back(family.model_type);
  for (const Composite& composite : kComposites) types.emplace_back(composite.model_type);
  std::sort(types.begin(), types.end());
  return types;
}

Network import_hf_config(std::string_view text, const std::string& file, const HfOptions& options) {
  return import_tree(parse_json_tree(text, file), file, options);
}

Network read_hf_config(const std::string& path, const HfOptions& options) {
  return import_tree(read_json_tree(path), path, options);
}

}  // namespace fathom
