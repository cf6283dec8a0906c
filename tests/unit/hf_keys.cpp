// Which keys of a Hugging Face configuration are read, defaulted, listed as ignored and refused, and where a refusal points.
#include <catch2/catch.hpp>

#include <filesystem>
#include <tuple>

#include "lib/error.hpp"
#include "models/import/hf_config.hpp"
#include "tests/unit/hf_small.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

const std::string kFolder = std::string(FATHOM_SOURCE_DIR) + "/tests/data/hf/";

std::string text_of(const std::string& name) { return hf_text(kFolder, name); }

}  // namespace

TEST_CASE("absent, null and conflicting keys", "[hf]") {
  const std::string tiny = kTinyHf;
  CHECK(import_small("llama", tiny).kinds[0].attention->kv_heads == 4);
  CHECK(has_note(import_small("llama", tiny), "default: num_key_value_heads = 4"));
  CHECK(import_small("llama", tiny + R"(, "num_key_value_heads": null)").kinds[0].attention->kv_heads == 4);
  CHECK(import_small("llama", tiny + R"(, "head_dim": null)").kinds[0].attention->head_dim == 16);
  CHECK(import_small("qwen3", tiny + R"(, "num_key_value_heads": 2)").kinds[0].attention->head_dim == 128);
  CHECK(refused("qwen2", tiny) == "num_key_value_heads");  // no documented default
  CHECK(refused("llama", tiny + R"(, "num_key_value_heads": 3)") == "num_key_value_heads");
  CHECK(refused("mistral", tiny) == "num_key_value_heads");  // absent means 8, which does not divide 4
  CHECK(refused("llama", R"("hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 100)") ==
        "num_attention_heads");
  CHECK(
      refused(
          "llama",
          R"("hidden_size": 65, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100)") ==
      "num_attention_heads");
  CHECK(
      refused(
          "llama",
          R"("hidden_size": null, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100)") ==
      "hidden_size");
  CHECK(
      refused(
          "llama",
          R"("hidden_size": 64.0, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100)") ==
      "hidden_size");
  CHECK(
      refused(
          "llama",
          R"("hidden_size": -64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100)") ==
      "hidden_size");
  CHECK(
      refused(
          "llama",
          R"("hidden_size": 99999999999999999999999, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100)") ==
      "hidden_size");
  CHECK(refused("llama", tiny + R"(, "num_hidden_layers": 5)") == "num_hidden_layers");  // twice
  CHECK(refused("llama", tiny + R"(, "attention_bias": 1)") == "attention_bias");
  CHECK(refused("llama", tiny + R"(, "hidden_act": "silo")") == "hidden_act");
  CHECK(refused("mistral", tiny + R"(, "num_key_value_heads": 4, "sliding_window": 0)") == "sliding_window");
  CHECK(refused("gemma2", tiny + R"(, "num_key_value_heads": 4, "layer_types": ["full_attention"])") == "layer_types");
  CHECK(
      refused(
          "gemma2",
          tiny +
              R"(, "num_key_value_heads": 4, "layer_types": ["full_attention", "full_attention", "linear_attention", "full_attention"])") ==
      "layer_types");
  CHECK(refused("gpt2", R"("n_embd": 64, "hidden_size": 128, "n_layer": 2, "n_head": 4, "vocab_size": 100)") ==
        "hidden_size");
  CHECK(refused("llama", tiny + R"(, "quantization_config": {"quant_method": "gptq"})") == "quantization_config");
  CHECK(refused("lama", tiny) == "model_type");
  // torch_dtype and dtype are one key.
  const std::string whole = tiny + R"(, "num_key_value_heads": 4)";
  CHECK(refused("llama", whole + R"(, "torch_dtype": "bfloat16", "dtype": "float32")") == "dtype");
  CHECK(refused("llama", whole + R"(, "torch_dtype": "xx")") == "torch_dtype");
  CHECK(refused("llama", whole + R"(, "dtype": 16)") == "dtype");
  CHECK(import_small("llama", whole + R"(, "torch_dtype": "float16", "dtype": "float16")").width == 64);
  CHECK(import_small("llama", whole + R"(, "torch_dtype": null, "dtype": "float16")").width == 64);
}

TEST_CASE("the class name is only cross-checked", "[hf]") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    CAPTURE(entry.path().string());
    CHECK_FALSE(has_note(read_hf_config(entry.path().string()), "architectures"));
    ++files;
  }
  CHECK(files > 30);
  const Network n = import_small("llama", std::string(kTinyHf) + R"(, "architectures": ["MixtralForCausalLM"])");
  CHECK(has_note(n, "architectures names MixtralForCausalLM, which is not of model_type llama"));
  CHECK_FALSE(n.kinds[0].mlp->moe);
  CHECK(refused("llama", std::string(kTinyHf) + R"(, "architectures": [5])") == "architectures");
}

TEST_CASE("the stored type is told once, an encoder is refused", "[hf]") {
  const std::string keys = std::string(kTinyHf) + R"(, "torch_dtype": "bfloat16", "dtype": "bfloat16", "is_encoder_decoder": )";
  const std::vector<std::string> notes = import_small("llama", keys + "false").notes;
  CHECK(std::count(notes.begin(), notes.end(), "torch_dtype = bfloat16 is the type of the file's weights: bytes are counted in --dtype") == 1);
  CHECK(refused("llama", keys + "true") == "is_encoder_decoder");
}

TEST_CASE("unknown keys are listed, or refused when strict", "[hf]") {
  const std::string keys = std::string(kTinyHf) + ",\n\"brand_new_key\": 7";
  const Network n = import_small("llama", keys);
  CHECK(has_note(n, "ignored: unknown key 'brand_new_key' (line 3)"));
  CHECK_THROWS_AS(import_small("llama", keys, HfOptions{true, false}), Error);
  // Known ones that no count depends on are listed too, each once and only where the file has them; they are no reason for strictness.
  const std::string known = std::string(kTinyHf) + R"(, "use_cache": true, "eos_token_id": 2)";
  CHECK(has_note(import_small("llama", known, HfOptions{true, false}), "ignored: known to change no count: use_cache, eos_token_id"));
  CHECK_FALSE(has_note(import_small("llama", kTinyHf), "known to change no count"));
  CHECK_NOTHROW(import_small("llama", kTinyHf, HfOptions{true, false}));
  for (const char* file :
       {"llama-3-8b", "mistral-7b", "qwen2-7b", "gpt2", "deepseek-v3", "gemma-7b", "falcon-7b", "phi-2"})
    CHECK_NOTHROW(import_hf_config(text_of(file), file, HfOptions{true, false}));
}

TEST_CASE("JSON that is no configuration", "[hf]") {
  const auto line_of = [](const std::string& text) {
    try {
      import_hf_config(text, "config.json");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.where().line;
    }
    FAIL("accepted");
    return 0;
  };
  CHECK(line_of("") == 1);
  CHECK(line_of("[1, 2]") == 1);
  CHECK(line_of("{\n\"model_type\": \"llama\",\n\"hidden_size\": 64,,\n}") == 3);
  CHECK(line_of("{\n\"model_type\": \"llama\",\n\"a\": 1,\n\"a\": 2}") == 4);
  CHECK(line_of("{\n\n\"model_type\": 3\n}") == 3);
  CHECK(line_of(std::string(100000, '[')) == 1);
  std::string many = "{\"model_type\": \"llama\", \"x\": [0";
  for (int i = 0; i < 300000; ++i) many += ",1";
  CHECK(line_of(many + "]}") == 1);
  CHECK_THROWS_AS(import_hf_config(std::string(11 << 20, ' '), "config.json"), Error);
  CHECK_THROWS_AS(read_hf_config(kFolder + "no-such-file.json"), Error);
}

TEST_CASE("the epsilon of norms where a file names none", "[hf]") {
  const std::string tiny = std::string(kTinyHf) + R"(, "num_key_value_heads": 4)";
  for (const auto& [family, key, epsilon] : {std::tuple{"llama", "rms_norm_eps", 1e-6}, std::tuple{"mistral", "rms_norm_eps", 1e-6}, std::tuple{"qwen3", "rms_norm_eps", 1e-6}, std::tuple{"granite", "rms_norm_eps", 1e-6},
                                              std::tuple{"olmo2", "rms_norm_eps", 1e-5}, std::tuple{"olmoe", "rms_norm_eps", 1e-5}, std::tuple{"mixtral", "rms_norm_eps", 1e-5}, std::tuple{"phi3", "rms_norm_eps", 1e-5},
                                              std::tuple{"phimoe", "rms_norm_eps", 1e-5}, std::tuple{"cohere", "layer_norm_eps", 1e-5}}) {
    CAPTURE(family);
    const Network n = import_small(family, tiny);
    CHECK(n.norm_epsilon == epsilon);
    std::string notes;
    for (const std::string& note : n.notes) notes += note + "\n";
    const std::string said = std::string("default: ") + key + (epsilon == 1e-6 ? " = 1e-06" : " = 1e-05");
    CAPTURE(notes);
    CHECK(notes.find(said) != std::string::npos);
    CHECK(notes.find("_eps", notes.find(said) + said.size()) == std::string::npos);  // once
    CHECK(import_small(family, tiny + ", \"" + key + "\": 0.25").norm_epsilon == 0.25);
  }
  // OLMo 1 normalises without gain, bias or a key for the epsilon: none is listed as a default, and one that stands there is ignored.
  const Network olmo = import_small("olmo", tiny);
  CHECK(olmo.norm == NormKind::kLayer);
  CHECK_FALSE(olmo.norm_gain);
  CHECK_FALSE(olmo.norm_bias);
  CHECK(olmo.norm_epsilon == 1e-5);
  for (const std::string& note : olmo.notes) CHECK(note.find("_eps") == std::string::npos);
  const Network stated = import_small("olmo", tiny + R"(, "rms_norm_eps": 1e-6)");
  CHECK(stated.norm_epsilon == 1e-5);
  CHECK(has_note(stated, "ignored: known to change no count: rms_norm_eps"));
}
