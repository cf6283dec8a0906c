// Hugging Face configurations: one file per family, anchored by the published parameter counts, and
// the rules of models/import/hf_config.hpp.
#include "models/import/hf_config.hpp"

#include <catch2/catch.hpp>

#include "lib/error.hpp"
#include "models/network_ini.hpp"
#include "models/params.hpp"
#include "models/registry.hpp"
#include "tests/unit/hf_small.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

const std::string kFolder = std::string(FATHOM_SOURCE_DIR) + "/tests/data/hf/";

std::string text_of(const std::string& name) { return hf_text(kFolder, name); }

}  // namespace

// Totals are those of the published checkpoints (tensor sizes summed, tied heads once). By hand, where the family has a
// trap:
//   gemma-7b      n d = 4096 is not h = 3072: per layer 4 * 3072 * 4096 + 3 * 3072 * 24576 + 2 * 3072; table 256000 *
//   3072 once falcon-7b     one key/value head, one LayerNorm: h (h + 128) + h^2 + 8 h^2 + 2 h; the checkpoint's file
//   also stores the tied head
//                 (7 217 189 760 with it)
//   olmo-7b       LayerNorms without parameters: 2 V h + 32 (4 h^2 + 3 h f)
//   phi-2         biases everywhere, head too; one LayerNorm per block: 4 h^2 + 4 h + 8 h^2 + 5 h + 2 h
//   gpt-neox-20b  12 h^2 + 13 h per layer, 2 V h, final 2 h
//   qwen2-moe     60 experts of 1408, a shared one of 5632 with a gate of h
//   gpt-oss-20b   expert biases 2 f + h, router bias E, a sink per head, biases of all projections
//   deepseek-v2-lite  no query rank: h n (128 + 64); two shared experts as one of 2816
TEST_CASE("published parameter counts of every family", "[hf]") {
  struct Anchor {
    const char* file;
    std::uint64_t total;
    std::uint64_t active;
  };
  const Anchor anchors[] = {
      {"command-r", 34980831232, 34980831232},
      {"command-r7b", 8028033024, 8028033024},
      {"deepseek-v2-lite", 15706484224, 2661150208},
      {"deepseek-v3", 671026419200, 37552297472},
      {"falcon-7b", 6921720704, 6921720704},
      {"gemma-2-9b", 9241705984, 9241705984},
      {"gemma-3-1b", 999885952, 999885952},
      {"gemma-3-4b", 3880263168, 3880263168},
      {"gemma-7b", 8537680896, 8537680896},
      {"gpt-neox-20b", 20554567680, 20554567680},
      {"gpt-oss-20b", 20914757184, 4187440704},
      {"gpt2", 124439808, 124439808},
      {"granite-3-2b", 2533531648, 2533531648},
      {"granite-3-1b-a400m", 1334628352, 428658688},
      {"llama-1-7b", 6738415616, 6738415616},
      {"llama-2-7b", 6738415616, 6738415616},
      {"llama-3-8b", 8030261248, 8030261248},
      {"llama-3.2-1b", 1235814400, 1235814400},
      {"llama-4-scout", 107769861120, 17172894720},
      {"llama-4-maverick", 400711848960, 17184691200},
      {"mistral-7b", 7241732096, 7241732096},
      {"mistral-nemo", 12247782400, 12247782400},
      {"mixtral-8x7b", 46702792704, 12879925248},
      {"olmo-7b", 6888095744, 6888095744},
      {"olmo-2-7b", 7298617344, 7298617344},
      {"olmoe-1b-7b", 6919161856, 1282017280},
      {"phi-2", 2779683840, 2779683840},
      {"phi-3-mini", 3821079552, 3821079552},
      {"qwen2-7b", 7615616512, 7615616512},
      {"qwen2-moe-a2.7b", 14315784192, 2689173504},
      {"qwen3-4b", 4022468096, 4022468096},
      {"qwen3-8b", 8190735360, 8190735360},
      {"qwen3-30b-a3b", 30532122624, 3353032704},
      {"starcoder2-3b", 3030371328, 3030371328},
      // Query, key and value of 40 layers are one matrix h (h + 2 * 128): one key/value head of 128.
      {"starcoderbase", 15517456384, 15517456384},
      {"phi-3.5-moe", 41873153344, 6640999744},
      {"kimi-k2", 1026408232448, 32861500928},
      {"mistral-small-3", 23572403200, 23572403200},
      // 8 key/value heads of 64, two LayerNorms: 60 (8192 * (8192 + 2 * 512) + 8192^2 + 8 * 8192^2 + 4 * 8192) + 65024
      // * 8192 + 2 * 8192
      {"falcon-40b", 41303293952, 41303293952},
  };
  for (const Anchor& anchor : anchors) {
    CAPTURE(anchor.file);
    const ParameterCount count = count_parameters(read_hf_config(kFolder + anchor.file + ".json"));
    CHECK(count.total.str() == std::to_string(anchor.total));
    CHECK(count.active.str() == std::to_string(anchor.active));
  }
}

// Closed forms written apart from the counting code.
TEST_CASE("active parameters by hand", "[hf]") {
  const auto inactive = [](const char* file) {
    const ParameterCount count = count_parameters(read_hf_config(kFolder + file + ".json"));
    return (count.total - count.active).value();
  };
  CHECK(inactive("mixtral-8x7b") == product(32, 8 - 2, 3, 4096, 14336));
  CHECK(inactive("deepseek-v3") == product(58, 256 - 8, 3, 7168, 2048));
  CHECK(inactive("llama-4-maverick") == product(24, 127, 3, 5120, 8192));
  CHECK(inactive("gpt-oss-20b") == product(24, 28, 3 * 2880 * 2880 + 3 * 2880));  // expert biases rest too
}

TEST_CASE("KV bytes per token of imported models, bf16", "[hf]") {
  const auto kv = [](const char* file) {
    return kv_bytes_per_token(read_hf_config(kFolder + file + ".json"), DType::kBF16).str();
  };
  CHECK(kv("qwen3-4b") == "147456");  // 2 * 8 * 128 * 36 * 2; with h / n in place of d it would be 92 160
  CHECK(kv("deepseek-v3") == "70272");
  CHECK(kv("llama-3-8b") == "131072");
  CHECK(kv("gpt2") == "36864");
  CHECK(kv("mixtral-8x7b") == "131072");
}

TEST_CASE("projections use head_dim, not width / heads", "[hf]") {
  // Per token and layer, 2 FLOP per weight.
  const auto projections = [](const char* file) {
    const Network n = read_hf_config(kFolder + file + ".json");
    return (2 * count_block_parameters(n, n.block(0)).part(Part::kProjection)).str();
  };
  CHECK(projections("gemma-7b") == "100663296");
  CHECK(projections("mistral-nemo") == "104857600");
}

TEST_CASE("presets equal the imported configuration", "[hf]") {
  const std::pair<const char*, const char*> pairs[] = {{"gpt2-124m", "gpt2"},
                                                       {"llama-2-7b", "llama-2-7b"},
                                                       {"llama-3-8b", "llama-3-8b"},
                                                       {"mixtral-8x7b", "mixtral-8x7b"},
                                                       {"deepseek-v3", "deepseek-v3"}};
  for (const auto& [preset, file] : pairs) {
    CAPTURE(preset);
    const Network a = builtin_network(preset);
    const Network b = read_hf_config(kFolder + file + std::string(".json"));
    CHECK(a.kinds == b.kinds);
    CHECK(a.layers == b.layers);
    CHECK(a.width == b.width);
    CHECK(a.vocab == b.vocab);
    CHECK(a.tied == b.tied);
    CHECK(a.positions == b.positions);
    CHECK(a.norm == b.norm);
    CHECK(a.max_length == b.max_length);
    CHECK(a.rope_base == b.rope_base);
    CHECK(a.norm_epsilon == b.norm_epsilon);
  }
}

TEST_CASE("every imported network is written and read back as it was", "[hf]") {
  for (const char* file : {"command-r7b", "deepseek-v2-lite", "falcon-7b", "gemma-3-1b", "gpt-oss-20b", "gpt2",
                           "llama-4-scout", "llama-4-maverick", "olmo-7b", "olmo-2-7b", "phi-2", "qwen2-moe-a2.7b",
                           "starcoder2-3b", "starcoderbase", "phi-3.5-moe", "kimi-k2", "mistral-small-3"}) {
    CAPTURE(file);
    const Network n = read_hf_config(kFolder + file + std::string(".json"));
    const Network back = parse_network_ini(to_ini(n), "written.ini");
    CHECK(back.kinds == n.kinds);
    CHECK(back.layers == n.layers);
    CHECK(to_ini(back).substr(to_ini(back).find("[network]")) == to_ini(n).substr(to_ini(n).find("[network]")));
  }
}

TEST_CASE("layers with experts", "[hf]") {
  const auto moe_layers = [](const Network& n) {
    std::string text;
    for (std::int64_t l = 0; l < n.layer_count(); ++l) text += n.block(l).mlp->moe ? 'E' : '.';
    return text;
  };
  const std::string qwen =
      R"("hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 100, "num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 64, )";
  // (l + 1) mod 2 = 0 among 25 layers: 12 of them; l mod 2 = 0 would give 13.
  const Network n = import_small("qwen2_moe", qwen + R"("num_hidden_layers": 25, "decoder_sparse_step": 2)");
  CHECK(moe_layers(n) == ".E.E.E.E.E.E.E.E.E.E.E.E.");
  CHECK(moe_layers(import_small(
            "qwen2_moe", qwen + R"("num_hidden_layers": 6, "decoder_sparse_step": 1, "mlp_only_layers": [0, 3])")) ==
        ".EE.EE");
  const std::string deepseek =
      R"("hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "num_attention_heads": 4, "vocab_size": 100, "kv_lora_rank": 16,
    "q_lora_rank": null, "n_routed_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 6)";
  CHECK(moe_layers(import_small("deepseek_v2", deepseek)) == "EEEEEE");
  CHECK(moe_layers(import_small("deepseek_v3", deepseek)) == "...EEE");
  CHECK(moe_layers(import_small("deepseek_v2", deepseek + R"(, "first_k_dense_replace": 1, "moe_layer_freq": 2)")) ==
        "..E.E.");
  CHECK(moe_layers(read_hf_config(kFolder + "llama-4-maverick.json")).substr(0, 6) == ".E.E.E");
}

TEST_CASE("windows, chunks and layers without rotation", "[hf]") {
  const auto spans = [](const Network& n) {
    std::string text;
    for (std::int64_t l = 0; l < std::min<std::int64_t>(12, n.layer_count()); ++l) {
      const AttentionConfig& a = *n.block(l).attention;
      text += a.window ? 'w' : a.chunk ? 'c' : a.rope_dim == 0 ? 'n' : '.';
    }
    return text;
  };
  CHECK(spans(read_hf_config(kFolder + "mistral-7b.json")) == "wwwwwwwwwwww");
  CHECK(spans(read_hf_config(kFolder + "mistral-nemo.json")) == "............");
  CHECK(spans(read_hf_config(kFolder + "gemma-2-9b.json")) == "w.w.w.w.w.w.");
  CHECK(spans(read_hf_config(kFolder + "gemma-3-1b.json")) == "wwwww.wwwww.");
  CHECK(spans(read_hf_config(kFolder + "gpt-oss-20b.json")) == "w.w.w.w.w.w.");
  CHECK(spans(read_hf_config(kFolder + "command-r7b.json")) == "wwwnwwwnwwwn");
  CHECK(spans(read_hf_config(kFolder + "llama-4-scout.json")) == "cccncccncccn");
  const std::string tiny = std::string(kTinyHf) + R"(, "num_key_value_heads": 4)";
  CHECK(spans(import_small(
            "qwen2", tiny + R"(, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2)")) == "..ww");
  CHECK(spans(import_small("mistral", tiny)) == "wwww");  // absent: 4096
  CHECK(spans(import_small("mistral", tiny + R"(, "sliding_window": null)")) == "....");
  CHECK(
      spans(import_small(
          "gemma2",
          tiny + R"(, "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"])")) ==
      "..w.");
  // Qwen 2 MoE: even layers below max_window_layers, the opposite end.
  CHECK(
      spans(import_small(
          "qwen2_moe",
          tiny +
              R"(, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 64,
    "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 3)")) == "w.w.");
}

TEST_CASE("a window that is switched off changes nothing", "[hf]") {
  const std::string text = text_of("qwen2-7b");
  const Network with = import_hf_config(text, "config.json");
  const Network without = import_hf_config(
      replaced(replaced(text, "\"sliding_window\": 131072,", ""), "\"use_sliding_window\": false,", ""), "config.json");
  CHECK(with.kinds == without.kinds);
}

TEST_CASE("prediction modules are counted only when asked for", "[hf]") {
  const std::string text = text_of("deepseek-v3");
  const Network without = import_hf_config(text, "config.json");
  CHECK(has_note(without, "left out: 1 multi-token prediction"));
  const Network with = import_hf_config(text, "config.json", HfOptions{false, true});
  // One more layer with experts, the projection 2 h h and three norms.
  CHECK(count_parameters(with).total - count_parameters(without).total ==
        count_block_parameters(without, without.block(60)).total + Params(product(2, 7168, 7168) + 3 * 7168));
}

TEST_CASE("text_config is entered, the vision part is left out with a note", "[hf]") {
  const Network n = read_hf_config(kFolder + "gemma-3-4b.json");
  CHECK(has_note(n, "left out: vision_config, model_type siglip_vision_model (only the text model is counted): how many parameters it has the file does not say"));
  CHECK(has_note(n, "ignored: all of vision_config: model_type, hidden_size"));
  CHECK(has_note(n, "mm_tokens_per_image = 256: an image takes as many tokens of --seq"));
  // The tower of Gemma 3: 27 layers of width 1152 with an MLP of 4304, which are 411,070,464 of its published 417 M parameters: 27 (4 * 1152^2 + 2 * 1152 * 4304).
  const std::string whole = replaced(text_of("gemma-3-4b"), "\"hidden_size\": 1152", "\"hidden_size\": 1152, \"intermediate_size\": 4304, \"num_hidden_layers\": 27, \"new_key\": [1]");
  const Network told = import_hf_config(whole, "config.json", HfOptions{true, false});  // what is left out is known to be: no reason for strictness
  CHECK(has_note(told, "left out: vision_config, model_type siglip_vision_model (only the text model is counted): the matrices of its 27 layers have 411070464 parameters"));
  CHECK(has_note(told, "ignored: all of vision_config: model_type, hidden_size, intermediate_size, num_hidden_layers, new_key"));
  CHECK(told.kinds == n.kinds);
  // A gated tower has three matrices; one of another make has no number here, and neither has one whose sizes are none.
  CHECK(has_note(import_hf_config(replaced(whole, "siglip_vision_model", "pixtral"), "config.json"), "left out: vision_config, model_type pixtral (only the text model is counted): the matrices of its 27 layers have 544942080"));
  CHECK(has_note(import_hf_config(replaced(whole, "siglip_vision_model", "other"), "config.json"), "left out: vision_config, model_type other (only the text model is counted): how many parameters it has is not known"));
  CHECK(has_note(import_hf_config(replaced(whole, "\"num_hidden_layers\": 27", "\"num_hidden_layers\": \"27\""), "config.json"), "left out: vision_config, model_type siglip_vision_model (only the text model is counted): how many"));
  CHECK(has_note(read_hf_config(kFolder + "llama-4-scout.json"), "left out: vision_config, model_type llama4_vision_model"));
  CHECK(has_note(n, "default: text_config.num_attention_heads = 8"));
  CHECK(n.layer_count() == 34);
  CHECK_THROWS_AS(import_hf_config(replaced(text_of("gemma-3-4b"), "gemma3_text", "llama"), "config.json"), Error);
}
