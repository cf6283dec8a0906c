// Keys that are each allowed and together impossible.
#include <catch2/catch.hpp>

#include <string>

#include "lib/error.hpp"
#include "models/import/hf_config.hpp"
#include "models/network_ini.hpp"

using namespace fathom;

namespace {

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

std::string with_noops(int experts, int picks, int noops, const std::string& share) {
  const std::string text = "[network]\nwidth = 8\nvocab = 16\nlayers = 1\nheads = 2\nmlp = 8\n[moe]\nexpert_width = 8\nexperts = " + std::to_string(experts) + "\npicks = " + std::to_string(picks) +
                           "\nnoops = " + std::to_string(noops) + "\nnoop_share = " + share + "\n";
  return refusal([&] { parse_network_ini(text, "x.ini"); });
}

std::string llama(const std::string& more) {
  const std::string text = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100,
    "max_position_embeddings": 64, "tie_word_embeddings": false)" + more + "}";
  return refusal([&] { import_hf_config(text, "config.json"); });
}

}  // namespace

TEST_CASE("no more picks are no-ops than there are, and no fewer than those beyond the experts", "[network]") {
  // Four distinct picks, one no-op: at most a quarter. Five picks of four experts and two no-ops: one or two fifths.
  CHECK(with_noops(4, 4, 1, "1/4") == "");
  CHECK(with_noops(4, 4, 1, "0") == "");
  CHECK(with_noops(4, 4, 1, "26/100").find("must lie in [0/4, 1/4]: of 4 distinct picks at least 0 and at most 1 are no-ops") != std::string::npos);
  CHECK(with_noops(4, 5, 2, "1/5") == "");
  CHECK(with_noops(4, 5, 2, "2/5") == "");
  CHECK(with_noops(4, 5, 2, "0").find("[1/5, 2/5]") != std::string::npos);
  CHECK(with_noops(4, 5, 2, "1/2").find("[1/5, 2/5]") != std::string::npos);
  CHECK(with_noops(4, 1, 4, "1") == "");  // the only pick of every token
}

TEST_CASE("two names of one size must agree, whichever a family asks for", "[hf]") {
  CHECK(llama("") == "");
  CHECK(llama(R"(, "n_embd": 64, "n_layer": 2)") == "");
  CHECK(llama(R"(, "n_embd": 96)").find("differs from 'hidden_size', which means the same") != std::string::npos);
  CHECK(llama(R"(, "n_layer": 3)").find("differs from 'num_hidden_layers'") != std::string::npos);
  CHECK(llama(R"(, "n_head": 8)").find("differs from 'num_attention_heads'") != std::string::npos);
  CHECK(llama(R"(, "ffn_dim": 256)").find("differs from 'intermediate_size'") != std::string::npos);
  CHECK(llama(R"(, "n_embd": null)") == "");  // says nothing
}
