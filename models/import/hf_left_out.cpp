#include "models/import/hf_left_out.hpp"

#include <fmt/format.h>

#include <charconv>

#include "lib/quantity.hpp"
#include "lib/units.hpp"

namespace fathom {
namespace {

// Towers whose layers are four square projections and an MLP of 2 or 3 matrices.
struct Tower {
  const char* model_type;
  std::int64_t mlp_matrices;
};
constexpr Tower kTowers[] = {{"siglip_vision_model", 2}, {"llama4_vision_model", 2}, {"clip_vision_model", 2}, {"pixtral", 3}};

// A size of the tower; 0: not stated, or none that could be believed. Nothing is counted with it, so it is no error.
std::int64_t size_of(const JsonNode& tower, const char* name) {
  const JsonNode* node = tower.find(name);
  if (node == nullptr || node->kind != JsonNode::Kind::kInteger) return 0;
  std::int64_t value = 0;
  const char* const end = node->text.data() + node->text.size();
  const auto [stop, code] = std::from_chars(node->text.data(), end, value);
  return code == std::errc() && stop == end && value > 0 && value <= HfReader::kMaxSize ? value : 0;
}

// "the matrices of its 27 layers have 411,070,464 parameters", or why that is not known.
std::string parameters(const JsonNode& tower) {
  const JsonNode* type = tower.find("model_type");
  const std::string name = type != nullptr && type->kind == JsonNode::Kind::kString ? type->text : "";
  const std::int64_t width = size_of(tower, "hidden_size"), layers = size_of(tower, "num_hidden_layers"), mlp = size_of(tower, "intermediate_size");
  for (const Tower& known : kTowers) {
    if (name != known.model_type) continue;
    if (width == 0 || layers == 0 || mlp == 0) return "how many parameters it has the file does not say (hidden_size, intermediate_size, num_hidden_layers)";
    const u128 each = checked_add(product(4, width, width), product(known.mlp_matrices, width, mlp));
    return fmt::format("the matrices of its {} layers have {} parameters, 4 x {}^2 + {} x {} x {} each", layers, to_string(checked_mul(each, static_cast<u128>(layers))), width, known.mlp_matrices, width, mlp);
  }
  return "how many parameters it has is not known here";
}

}  // namespace

void note_left_out(HfReader& outer) {
  for (const char* part : {"vision_config", "audio_config"}) {
    const JsonNode* tower = outer.object(part);
    if (tower == nullptr) continue;
    const JsonNode* type = tower->find("model_type");
    const std::string name = type != nullptr && type->kind == JsonNode::Kind::kString ? fmt::format(", model_type {}", json_excerpt(type->text)) : "";
    outer.note(fmt::format("left out: {}{} (only the text model is counted): {}; it and what joins it to the text model are in no figure", part, name, parameters(*tower)));
    std::string keys;
    for (const std::string& key : tower->names) keys += (keys.empty() ? "" : ", ") + json_excerpt(key);
    if (!keys.empty()) outer.note(fmt::format("ignored: all of {}: {}", part, keys));
  }
  if (const std::optional<std::int64_t> tokens = outer.maybe_integer("mm_tokens_per_image"))
    outer.note(fmt::format("mm_tokens_per_image = {}: an image takes as many tokens of --seq; add them for every image", *tokens));
}

}  // namespace fathom
