// The built-in networks: parameters, products per token and caches against published figures; what a MODEL argument may be.
#include "models/registry.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "lib/error.hpp"
#include "models/network_ini.hpp"
#include "models/params.hpp"

using namespace fathom;

TEST_CASE("parameters of the presets (published and by hand)", "[registry]") {
  const std::pair<const char*, std::uint64_t> expected[] = {
      {"dense-60m", 54274752},      {"mod-60m", 54277056},      {"dense-120m", 109529856},
      {"mod-120m", 109534464},      {"dense-220m", 202113408},  {"mod-220m", 202121472},
      {"dense-425m", 394901760},    {"mod-425m", 394913280},    {"dense-820m", 757019136},
      {"mod-820m", 757037568},      {"dense-1.4b", 1172924416}, {"mod-1.4b", 1172946944},
      {"dense-3b", 2755965440},     {"mod-3b", 2756008960},     {"gpt2-124m", 124439808},
      {"llama-2-7b", 6738415616},   {"llama-3-8b", 8030261248}, {"mixtral-8x7b", 46702792704},
      {"deepseek-v3", 671026419200}};
  for (const auto& [name, total] : expected) {
    CAPTURE(name);
    CHECK(count_parameters(builtin_network(name)).total.str() == std::to_string(total));
  }
  CHECK(count_parameters(builtin_network("mixtral-8x7b")).active == Params(12879925248));
  CHECK(count_parameters(builtin_network("deepseek-v3")).active == Params(37552297472));
  // mod-tiny: 256*64 + 4 (4*64^2 + 2*64*256 + 2*64) + 64, and per routed block 64 and 64*32 + 32.
  CHECK(count_parameters(builtin_network("mod-tiny")).total == Params(16384 + 4 * 49280 + 64 + 2 * (64 + 2080)));
  // demo-8x12: 256*32 + 8 (4*32^2 + 2*32*64 + 2*32 + 32) + 32.
  CHECK(count_parameters(builtin_network("demo-8x12")).total == Params(8192 + 8 * 8288 + 32));
}

TEST_CASE("matmul weights of the oracles: half their FLOPs per token without the core", "[registry]") {
  // "All matmuls except core" = 2 FLOP per active matmul weight.
  const std::pair<const char*, std::uint64_t> expected[] = {{"gpt2-124m", 247064064},
                                                            {"llama-2-7b", 13214154752},
                                                            {"llama-3-8b", 15009316864},
                                                            {"mixtral-8x7b", 25497174016},
                                                            {"deepseek-v3", 73249193984}};
  for (const auto& [name, flops] : expected) {
    CAPTURE(name);
    CHECK((2 * count_parameters(builtin_network(name)).active_matmul).str() == std::to_string(flops));
  }
}

TEST_CASE("KV bytes per token of the oracles, bf16", "[registry]") {
  const std::pair<const char*, std::uint64_t> expected[] = {{"gpt2-124m", 36864},
                                                            {"llama-2-7b", 524288},
                                                            {"llama-3-8b", 131072},
                                                            {"mixtral-8x7b", 131072},
                                                            {"deepseek-v3", 70272}};
  for (const auto& [name, bytes] : expected)
    CHECK(kv_bytes_per_token(builtin_network(name), DType::kBF16).str() == std::to_string(bytes));
  // Public cases: Llama-3-8B at 4096 tokens, one layer at 2048; Llama-2-7B at 4096 and Llama-3-8B at
  // 8192 tokens.
  const Network llama3 = builtin_network("llama-3-8b");
  CHECK(kv_bytes(llama3, 4096, 1, DType::kBF16) == Bytes(536870912));
  CHECK(kv_token_bytes(llama3.block(0), DType::kBF16) * 2048 == Bytes(8388608));
  CHECK(kv_bytes(builtin_network("llama-2-7b"), 4096, 1, DType::kBF16) == Bytes(std::uint64_t{2} << 30));
  CHECK(kv_bytes(llama3, 8192, 1, DType::kBF16) == Bytes(std::uint64_t{1} << 30));
  CHECK(kv_bytes(dense_twin(builtin_network("demo-8x12")), 12, 1, DType::kF32) ==
        kv_bytes(builtin_network("demo-8x12"), 12, 1, DType::kF32));
}

TEST_CASE("LoRA adapters", "[registry]") {
  Network n = builtin_network("llama-3-8b");
  const ParameterCount base = count_parameters(n);
  n.lora = Lora{16, {"q", "v"}};
  // 32 layers of 16 (4096 + 4096) + 16 (4096 + 1024): half of the 13 631 488 FLOP per token.
  CHECK(count_parameters(n).total - base.total == Params(13631488 / 2));
}

TEST_CASE("MODEL arguments", "[registry]") {
  const std::string source = FATHOM_SOURCE_DIR;
  CHECK(load_network("mod-60m").name == "mod-60m");
  CHECK(load_network(source + "/models/networks/mod-60m.ini").name == "mod-60m");
  CHECK(load_network(source + "/tests/data/hf/gpt2.json").name == "gpt2");
  const auto hint_of = [](const std::string& model) {
    try {
      load_network(model);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.hint();
    }
    FAIL("accepted " << model);
    return std::string();
  };
  CHECK(hint_of("mod-600m") == "did you mean 'mod-60m'?");
  CHECK(hint_of("gpt2-142m") == "did you mean 'gpt2-124m'?");
  CHECK_FALSE(hint_of("").empty());
  CHECK_THROWS_AS(load_network("no/such/file.ini"), Error);
  CHECK_THROWS_AS(load_network("no/such/config.json"), Error);
  CHECK_THROWS_AS(load_network(source + "/tests"), Error);  // a folder without config.json

  const std::filesystem::path folder = std::filesystem::path(FATHOM_BINARY_DIR) / "model_argument";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(source + "/tests/data/hf/llama-3-8b.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(source + "/tests/data/hf/llama-3-8b.json", folder / "unnamed",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(load_network(folder.string()).name == "model_argument");
  CHECK(load_network((folder / "unnamed").string()).vocab == 128256);
}
