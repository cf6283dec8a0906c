// Fuzzing of the network parsers on a fixed corpus: the presets and the Hugging Face files, damaged in reproducible
// ways. Whatever the input, a parser returns a valid network or throws Error(kInput); no other exception, no crash.
// Each run is bounded by time.
#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/import/hf_config.hpp"
#include "models/layer_pattern.hpp"
#include "models/network_ini.hpp"
#include "models/params.hpp"

using namespace fathom;

namespace {

std::vector<std::string> corpus(const std::string& folder, const std::string& extension) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FATHOM_SOURCE_DIR) + folder))
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    texts.push_back(text.str());
  }
  REQUIRE(texts.size() > 5);
  return texts;
}

// One to four damages: flipped, dropped, doubled or swapped bytes, spliced pieces of another file, and tokens that
// parsers dislike.
std::string damaged(const std::vector<std::string>& texts, std::mt19937_64& random) {
  static const char* const kTokens[] = {"0",
                                        "-1",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "1e308",
                                        "1e999",
                                        "null",
                                        "nan",
                                        "\"\"",
                                        "{}",
                                        "[]",
                                        "[[[[",
                                        "true",
                                        "\xff\xfe",
                                        "\0x",
                                        "=",
                                        "[network]",
                                        "[block.a]",
                                        "\n",
                                        "#",
                                        "100000*a",
                                        "1/0",
                                        "-0",
                                        "0.1",
                                        "(",
                                        ")",
                                        "*",
                                        "window",
                                        "layer_types",
                                        "expert_skew = 3\n",
                                        "expert_loads = 1, 1e12, 0, 3\n",
                                        "weight_dtype = i8\n",
                                        "\"quantization_config\": {\"quant_method\": \"fp8\"},",
                                        "17"};
  const auto below = [&random](std::size_t n) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(1, n));
  };
  std::string text = texts[below(texts.size())];
  for (std::size_t i = 0, count = 1 + below(4); i < count && !text.empty(); ++i) {
    const std::size_t at = below(text.size());
    const std::size_t length = std::min(text.size() - at, 1 + below(20));
    switch (below(7)) {
      case 0:
        text[at] = static_cast<char>(random() & 0xff);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.resize(at);
        break;
      case 4: {
        const std::string& other = texts[below(texts.size())];
        const std::size_t from = below(other.size());
        text.insert(at, other.substr(from, below(200)));
        break;
      }
      case 5:
        text.replace(at, length, kTokens[below(std::size(kTokens))]);
        break;
      default: {
        // Replaces a whole number, the damage that gets deepest.
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        std::size_t end = digit;
        while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
        text.replace(digit, end - digit, kTokens[below(std::size(kTokens))]);
      }
    }
  }
  return text;
}

struct Outcome {
  int accepted = 0;
  int refused = 0;
};

template <class Parser>
Outcome fuzz(const std::vector<std::string>& texts, std::uint64_t seed, int rounds, Parser parser) {
  std::mt19937_64 random(seed);
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20))
      break;  // slow machines and sanitizers do fewer
    const std::string text = damaged(texts, random);
    try {
      const Network network = parser(text);
      count_parameters(network);
      ++outcome.accepted;
    } catch (const Error& error) {
      INFO(error.what() << "\nround " << i << ", input:\n" << text);
      REQUIRE(error.kind() == ErrorKind::kInput);
      ++outcome.refused;
    } catch (const std::exception& other) {
      FAIL("round " << i << ": " << other.what() << "\n" << text);
    }
  }
  return outcome;
}

}  // namespace

// Keys that no built-in network has.
const char* const kUneven =
    "[network]\nwidth = 32\nvocab = 50\nlayers = 3\nheads = 4\nweight_dtype = f8\n[moe]\nexperts = 4\npicks = 2\nexpert_width = 8\nexpert_capacity = 1.25\nexpert_loads = 4, 2.5, 1, 0\n";
const char* const kSkewed =
    "[network]\nwidth = 32\nvocab = 50\npattern = a b a\n[block.a]\nheads = 4\nmlp = 64\n[block.b]\nheads = 4\nexperts = 8\npicks = 3\nnoops = 2\nnoop_share = 0.25\nexpert_width = 8\nexpert_skew = 1.5\n";

TEST_CASE("damaged INI networks", "[fuzz]") {
  std::vector<std::string> texts = corpus("/models/networks", ".ini");
  for (int i = 0; i < 4; ++i) texts.emplace_back(kUneven), texts.emplace_back(kSkewed);
  for (const std::string& text : texts) REQUIRE_NOTHROW(parse_network_ini(text, "whole.ini"));
  const Outcome outcome = fuzz(texts, 1, 20000, [](const std::string& text) {
    Network network = parse_network_ini(text, "fuzz.ini");
    // What was accepted is written, read back and written again without change; notes become comments, which are not read back, and are made anew.
    Network plain = network;
    plain.notes.clear();
    const std::string written = to_ini(plain);
    Network again = parse_network_ini(written, "again.ini");
    again.notes.clear();
    REQUIRE(to_ini(again) == written);
    return network;
  });
  CHECK(outcome.accepted > 0);
  CHECK(outcome.refused > 0);
}

TEST_CASE("damaged Hugging Face configurations", "[fuzz]") {
  const Outcome outcome = fuzz(corpus("/tests/data/hf", ".json"), 2, 20000, [](const std::string& text) {
    Network network = import_hf_config(text, "fuzz.json");
    const std::string written = to_ini(network);
    const Network back = parse_network_ini(written, "again.ini");
    REQUIRE(back.kinds == network.kinds);
    REQUIRE(back.layers == network.layers);
    return network;
  });
  CHECK(outcome.accepted > 0);
  CHECK(outcome.refused > 0);
}

TEST_CASE("damaged networks with experts are counted", "[fuzz]") {
  const std::vector<std::string> texts = {kUneven, kSkewed};
  const Outcome outcome = fuzz(texts, 4, 20000, [](const std::string& text) {
    Network network = parse_network_ini(text, "fuzz.ini");
    Scenario s;
    s.phase = Phase::kDecode;
    s.batch = 3, s.context = 5;
    const ListTotals totals = count_totals(network, s, true);
    // Expectations are numbers, and no more than what is declared.
    REQUIRE(totals.expected.read >= 0);
    REQUIRE(totals.expected.read <= totals.total.read.to_double() * (1 + 1e-9));
    REQUIRE(totals.expected.flops <= totals.total.flops.to_double() * (1 + 1e-9));
    return network;
  });
  CHECK(outcome.accepted > 20);
  CHECK(outcome.refused > 300);
}

TEST_CASE("random lists of ops and fusions", "[fuzz]") {
  std::mt19937_64 random(5);
  static const char* const kWords[] = {"none", "full", "selective", "attn/core", "mlp", "norm1", "gemm", "qkv", "attention", "gate-up", "norm", "residual", "all", ",", "+", ",", "+", "", "\xff", " "};
  const Network network = parse_network_ini(kSkewed, "whole.ini");
  int accepted = 0, refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text;
    for (std::size_t length = 1 + random() % 6; length > 0; --length) text += kWords[random() % std::size(kWords)];
    try {
      if (random() % 2 == 0) {
        const Fusions fusions = parse_fusions(text);
        REQUIRE(parse_fusions(fusions_text(fusions)) == fusions);
      } else {
        Scenario s;
        s.phase = Phase::kTrain;
        s.length = 4;
        parse_recompute(text, s);
        Scenario again = s;
        parse_recompute(recompute_text(s), again);
        REQUIRE(again == s);
        count_totals(network, s);
      }
      ++accepted;
    } catch (const Error& error) {
      INFO(text << ": " << error.what());
      REQUIRE(error.kind() == ErrorKind::kInput);
      ++refused;
    }
  }
  CHECK(accepted > 300);
  CHECK(refused > 1000);
}

TEST_CASE("random layer patterns", "[fuzz]") {
  std::mt19937_64 random(3);
  static const char kLetters[] = "ab12*() 9-/";
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (std::size_t length = random() % 24; length > 0; --length) text += kLetters[random() % (sizeof kLetters - 1)];
    try {
      const std::vector<std::string> words = parse_layer_pattern(text);
      if (words.size() > 2000) continue;
      REQUIRE(parse_layer_pattern(layer_pattern_text(words)) == words);
      ++accepted;
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
    }
  }
  CHECK(accepted > 1000);
}
