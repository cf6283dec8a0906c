// Conventions: published counts, to the integer, and the reasons for their differences.
#include <catch2/catch.hpp>

#include <array>
#include <map>
#include <string>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/count/convention.hpp"
#include "models/registry.hpp"

using namespace fathom;

namespace {

constexpr std::int64_t kLength = 2048;
const std::array<std::string, 5> kModels = {"gpt2-124m", "llama-2-7b", "llama-3-8b", "mixtral-8x7b", "deepseek-v3"};

ConventionCount count(const std::string& convention, const Network& network, std::int64_t length = kLength) {
  return count_convention(find_convention(convention), network, length);
}
ConventionCount count(const std::string& convention, const std::string& model, std::int64_t length = kLength) {
  return count(convention, builtin_network(model), length);
}
std::string value(const std::string& convention, const std::string& model) {
  const ConventionCount c = count(convention, model);
  return c.unavailable.empty() ? c.per_token.str() : "n/a";
}
std::map<std::string, std::string> reasons(const ConventionCount& c) {
  std::map<std::string, std::string> result;
  for (const Reason& reason : c.reasons) result[reason.text] = reason.flops.str();
  return result;
}
Rational term(const ConventionCount& c, Term t) { return c.terms[static_cast<size_t>(t)]; }

// Keys per query of one attention layer: its core over 4 n d.
double keys(const std::string& convention, std::int64_t window, std::int64_t chunk = 0) {
  Network network = builtin_network("llama-2-7b");
  for (BlockConfig& kind : network.kinds) {
    kind.attention->window = window;
    kind.attention->chunk = chunk;
  }
  return (term(count(convention, network), Term::kCore) / Rational(32 * 4 * 4096)).value();
}

struct Row {
  std::string convention;
  std::array<std::string, 5> values;
};

}  // namespace

TEST_CASE("forward-equivalent FLOP per token, S = 2048") {
  // n/a where the formula says nothing; "-" in the table is n/a as well.
  const std::vector<Row> rows = {
      {"exact", {"284831232", "13751287808", "15546449920", "26034307072", "78368743424"}},
      {"full", {"322561536", "14287896576", "16083058688", "26570915840", "83483295744"}},
      {"causal-half", {"284812800", "13751025664", "15546187776", "26034044928", "78366244864"}},
      {"megatron", {"284812800", "13751025664", "15546187776", "26031947776", "78153633792"}},
      {"nemo", {"286261248", "13751025664", "15546187776", "26031947776", "78153383936"}},
      {"palm", {"322804224", "14550573056", "17134264320", "26833592320", "85338696704"}},
      {"kaplan", {"207860736", "13489414144", "14496047104", "25772433408", "75491519488"}},
      {"chinchilla", {"400641024", "11670650880", "14992539648", "n/a", "n/a"}},
      {"chinchilla-a4", {"246251520", "14032044032", "15038676992", "n/a", "n/a"}},
      {"nanogpt", {"322561536", "14220787712", "15009316864", "n/a", "n/a"}},
      {"torchtitan", {"322804224", "14288429056", "16083591168", "26571448320", "83485338624"}},
      {"torchtitan-4300", {"322804224", "14288429056", "16083591168", "26571448320", "83485338624"}},  // no windows: as without it
      {"megatron-3280", {"284812800", "13751025664", "15546187776", "26031947776", "78153633792"}},
      {"olmo-core", {"322730496", "14287904768", "16083066880", "26570924032", "n/a"}},
      {"litgpt", {"324377088", "14550573056", "17134264320", "94479327232", "1345634774016"}},
      {"verl", {"362007552", "14013169664", "16596860928", "26296188928", "80219602944"}},
      {"gpt-neox", {"303262848", "14155251712", "14746648576", "14155251712", "80192602112"}},
      {"trl", {"379184640", "14550040576", "17133731840", "26833059840", "n/a"}},
      {"levanter", {"323446272", "14294188032", "16089350144", "26577207296", "n/a"}},
      {"vllm", {"302027580.75", "14025880576", "15032898560", "26306802688", "81417981696"}},
      {"llm-analysis", {"322561536", "14287896576", "16083058688", "15294529536", "78864973824"}},
      {"cookbook", {"322564608", "14220804096", "16083075072", "26570932224", "n/a"}},
  };
  for (const Row& row : rows)
    for (size_t i = 0; i < kModels.size(); ++i) {
      INFO(row.convention << " " << kModels[i]);
      CHECK(value(row.convention, kModels[i]) == row.values[i]);
    }
}

TEST_CASE("figures beside the table") {
  const std::array<std::string, 4> training = {"813298176", "42138091520", "46147846144", "79188475904"};
  for (size_t i = 0; i < training.size(); ++i)
    CHECK(training_per_token(find_convention("cookbook"), builtin_network(kModels[i]), kLength).str() == training[i]);

  Network tied = builtin_network("llama-3-8b");
  tied.tied = true;
  CHECK(count("trl", tied).per_token.str() == "16083058688");  // huggingface/trl #6708: untied and tied compute the same
  CHECK(count("exact", tied).per_token == count("exact", "llama-3-8b").per_token);

  // llm-analysis with its flag unset, in GFLOP to four decimals.
  const auto giga = [](const ConventionCount& c) { return c.per_token.value() / 1e9; };
  CHECK(giga(count("llm-analysis-ungated", "llama-2-7b")) == Approx(11.4022).margin(5e-5));
  CHECK(giga(count("llm-analysis-ungated", "llama-3-8b")) == Approx(12.3250).margin(5e-5));
  CHECK(giga(count("llm-analysis-ungated", "mixtral-8x7b")) == Approx(11.5364).margin(5e-5));
  CHECK(value("nemo-transformer", "llama-3-8b") == "11788091392");
  CHECK(value("nemo-transformer", "mixtral-8x7b") == "14757658624");

  // The cookbook's command line takes integer ratios: 3 for Llama 2; --ffn-hidden-size is ignored, so 4.
  Network llama = builtin_network("llama-2-7b");
  for (BlockConfig& kind : llama.kinds) kind.mlp->width = 3 * 4096;
  CHECK(giga(count("cookbook", llama)) == Approx(15.2945).margin(5e-5));
  for (BlockConfig& kind : llama.kinds) kind.mlp->width = 4 * 4096;
  CHECK(giga(count("cookbook", llama)) == Approx(18.5158).margin(5e-5));

  CHECK(value("fvcore", "gpt2-124m") == "161280768");  // multiply-adds: 322 561 536 / 2
  CHECK(training_per_token(find_convention("gpt-neox"), builtin_network("gpt2-124m"), kLength, true) == Rational(4 * 303262848LL));
  for (const bool again : {false, true}) {  // the names say what they count
    CHECK(training_per_token(find_convention("6nd"), builtin_network("gpt2-124m"), kLength, again) == Rational(6 * 124439808LL));
    CHECK(training_per_token(find_convention("8nd"), builtin_network("gpt2-124m"), kLength, again) == Rational(8 * 124439808LL));
  }
}

TEST_CASE("decompositions sum exactly") {
  const ConventionCount palm = count("palm", "llama-3-8b");
  CHECK((palm.per_token - palm.exact).str() == "1587814400");
  CHECK(reasons(palm) == std::map<std::string, std::string>{
                             {"mask: S keys per query instead of the causal (S+1)/2", "536608768"},
                             {"input table counted as a matrix product (a gather costs 0 FLOP)", "1050673152"},
                             {"norm gains and biases counted as if they were matrices", "532480"}});
  const ConventionCount megatron = count("megatron", "deepseek-v3");
  CHECK((megatron.per_token - megatron.exact).str() == "-215109632");
  CHECK(reasons(megatron) == std::map<std::string, std::string>{
                                 {"mask: S/2 keys per query instead of the causal (S+1)/2", "-2498560"},
                                 {"expert routers not counted", "-212860928"},
                                 {"norms of the latent query and key/value counted", "249856"}});
  // With a prediction module Megatron-LM multiplies the attention terms by num_layers + mtp_num_layers: its latent norms count too,
  // 2 (q_rank + kv_rank) = 2 (1536 + 512) = 4096 per token. Over 2048 tokens 4096 x 2048 = 8 388 608 more than 166 836 993 785 856.
  Network predicting = builtin_network("deepseek-v3");
  predicting.mtp = 1;
  for (const char* name : {"megatron", "megatron-bridge"}) {
    const ConventionCount more = count(name, predicting);
    CHECK((more.per_token * Rational(2048)).str() == "166837002174464");
    CHECK(reasons(more).at("norms of the latent query and key/value counted") == "253952");  // 249 856 + 4096
    Rational sum;
    for (const Reason& reason : more.reasons) sum += reason.flops;
    CHECK(sum == more.per_token - more.exact);
  }
  const ConventionCount trl = count("trl", "gpt2-124m");
  CHECK((trl.per_token - trl.exact).str() == "94353408");
  CHECK(reasons(trl) == std::map<std::string, std::string>{{"mask: S keys per query instead of the causal (S+1)/2", "37730304"},
                                                           {"a third FFN matrix where there are two", "56623104"}});
  const ConventionCount chinchilla = count("chinchilla", "llama-3-8b");
  CHECK((chinchilla.per_token - chinchilla.exact).str() == "-553910272");
  CHECK(reasons(chinchilla) == std::map<std::string, std::string>{
                                   {"mask: S keys per query instead of the causal (S+1)/2", "536608768"},
                                   {"softmax counted as 3 FLOP per element", "6291456"},
                                   {"keys and values projected for every query head", "1610612736"},
                                   {"two FFN matrices", "-3758096384"},
                                   {"input table counted as a matrix product (a gather costs 0 FLOP)", "1050673152"}});
}

TEST_CASE("the reasons sum to the difference for every preset and every built-in network") {
  for (const NetworkEntry& entry : list_networks()) {
    const Network network = builtin_network(entry.name);
    for (const Convention& convention : conventions()) {
      for (std::int64_t length : {1, 12, 1000}) {
        INFO(convention.name << " " << entry.name << " " << length);
        ConventionCount c;
        try {
          c = count_convention(convention, network, length);
        } catch (const Error& error) {
          // Networks whose op list cannot be built yet have no exact count to start from.
          REQUIRE(std::string(error.what()).find("cannot be turned into ops yet") != std::string::npos);
          continue;
        }
        if (!c.unavailable.empty()) continue;
        Rational sum, terms;
        for (const Reason& reason : c.reasons) {
          CHECK_FALSE(reason.flops.zero());
          CHECK_FALSE(reason.text == "parameters in place of uses");  // every step has a name
          sum += reason.flops;
        }
        for (const Rational& t : c.terms) terms += t;
        CHECK(sum == c.per_token - c.exact);
        CHECK(terms == c.per_token);
      }
    }
  }
}

TEST_CASE("exact closed forms equal the sums over the op list") {
  int compared = 0;
  for (const NetworkEntry& entry : list_networks()) {
    const Network network = builtin_network(entry.name);
    if (network.has_routes()) continue;
    for (bool full : {false, true}) {
      try {
        const Terms list = list_terms(network, 37, full);
        const ConventionCount c = count(full ? "full" : "exact", network, 37);
        INFO(entry.name);
        for (int t = 0; t < kTermCount; ++t) CHECK(list[static_cast<size_t>(t)] == c.terms[static_cast<size_t>(t)]);
        ++compared;
      } catch (const Error& error) {
        REQUIRE(std::string(error.what()).find("cannot be turned into ops yet") != std::string::npos);
      }
    }
  }
  CHECK(compared >= 20);
}

TEST_CASE("the switches") {
  SECTION("1: exact - half is 2nd L, for latent attention n (d_qk + d_v) L") {
    CHECK((count("exact", "gpt2-124m").per_token - count("causal-half", "gpt2-124m").per_token).str() == "18432");
    CHECK((count("exact", "llama-2-7b").per_token - count("causal-half", "llama-2-7b").per_token).str() == "262144");
    CHECK((count("exact", "deepseek-v3").per_token - count("causal-half", "deepseek-v3").per_token).str() == "2498560");
  }
  SECTION("2: routers of DeepSeek-V3 are 0.27 %") {
    const ConventionCount c = count("exact", "deepseek-v3");
    CHECK(term(c, Term::kRouter).str() == "212860928");
    CHECK((term(c, Term::kRouter) / c.per_token).value() == Approx(0.0027).margin(5e-5));
  }
  SECTION("5: the padded vocabulary of 50 304") {
    Network padded = builtin_network("gpt2-124m");
    padded.padded_vocab = 50304;
    CHECK((count("megatron", padded).per_token - count("megatron", "gpt2-124m").per_token).str() == "72192");
  }
  SECTION("7: keys per query in a window of 512") {
    CHECK(keys("exact", 512) == 448.125);
    CHECK(keys("megatron-bridge", 512) == 448.125);
    CHECK(keys("causal-half", 512) == 448.0);
    CHECK(keys("olmo-core", 512) == 512.0);
    CHECK(keys("verl", 512) == 256.0);
    CHECK(keys("torchtitan-4300", 512) == 512.0);
    CHECK(keys("torchtitan", 512) == 2048.0);
    CHECK(keys("megatron-3280", 512) == 256.0);
    CHECK(keys("megatron", 512) == 1024.0);  // NVIDIA/Megatron-LM #1725: 2.29 times the truth
    CHECK(keys("megatron-bridge", 2047) == Approx(1024.4995).margin(5e-5));
    CHECK(keys("megatron-bridge", 2048) == 1024.0);
    CHECK(keys("vllm", 512) == 512.0);
  }
  SECTION("chunks: a count of 262 144 pairs where 263 168 are visible") {
    CHECK(keys("causal-half", 0, 256) * 2048 == 262144);
    CHECK(keys("exact", 0, 256) * 2048 == 263168);
  }
}

TEST_CASE("public cases that are conventions") {
  const auto training = [](const std::string& convention, const Network& network, std::int64_t length, std::int64_t batch) {
    return (training_per_token(find_convention(convention), network, length) * Rational(length * batch)).value();
  };
  SECTION("1: MaxText #1972, Llama-2-7B, S = 8192, B = 4") {
    const Network llama = builtin_network("llama-2-7b");
    CHECK(training("full", llama, 8192, 4) / 1e12 == Approx(1721.22).margin(5e-3));
    CHECK(training("causal-half", llama, 8192, 4) / 1e12 == Approx(1510.11).margin(5e-3));
    CHECK((training("exact", llama, 8192, 4) - training("causal-half", llama, 8192, 4)) / 1e12 == Approx(0.0258).margin(5e-5));
    const Rational core = term(count("full", llama, 8192), Term::kCore) * Rational(3 * 8192 * 4);
    CHECK(core.value() / 1e12 == Approx(422.21).margin(5e-3));
  }
  SECTION("2: MaxText PR #678, Mixtral, S = 1024: two experts, not eight") {
    Network mixtral = builtin_network("mixtral-8x7b");
    CHECK(training("full", mixtral, 1024, 1) / 1e12 == Approx(79.98).margin(5e-3));
    for (BlockConfig& kind : mixtral.kinds) kind.mlp->moe->picks = 8;
    CHECK(training("full", mixtral, 1024, 1) / 1e12 == Approx(287.78).margin(5e-3));
  }
  SECTION("6, 26: projections and FFN of a layer") {
    CHECK(term(count("exact", "llama-3-8b"), Term::kProjections) == Rational(32LL * 83886080));
    CHECK(term(count("exact", "llama-2-7b"), Term::kFfn) == Rational(32LL * 270532608));
    CHECK(term(count("nanogpt", "llama-2-7b"), Term::kFfn) == Rational(32LL * 268435456));
  }
  SECTION("7, 8: logits of GPT-2 in training") {
    CHECK(term(count("exact", "gpt2-124m"), Term::kLogits) * Rational(3) == Rational(231584256));
    CHECK((term(count("exact", "gpt2-124m"), Term::kLogits) - term(count("gpt-neox", "gpt2-124m"), Term::kLogits)) * Rational(3) == Rational(231584256 / 4));
  }
  SECTION("12: NeMo-RL PR #2736, Qwen3-235B-A22B at S = 196 608: heads x head size is not the width") {
    Network qwen = builtin_network("mixtral-8x7b");
    qwen.width = 4096;
    qwen.vocab = 151936;
    qwen.max_length = 262144;
    qwen.layers.assign(94, qwen.layers[0]);
    BlockConfig& kind = qwen.kinds[static_cast<size_t>(qwen.layers[0])];
    kind.attention->heads = 64;
    kind.attention->kv_heads = 4;
    kind.attention->head_dim = 128;
    kind.mlp->moe->experts = 128;
    kind.mlp->moe->picks = 8;
    kind.mlp->moe->width = 1536;
    CHECK(training("megatron", qwen, 196608, 1) / 1e15 == Approx(203.980).margin(5e-4));
    kind.attention->head_dim = kind.attention->rope_dim = 64;  // h / n
    CHECK(training("megatron", qwen, 196608, 1) / 1e15 == Approx(110.729).margin(5e-4));
  }
  SECTION("15: verl PR #4959: 3 (192 + 128) per n L S^2 under the half mask, training") {
    const Rational core = term(count("verl", "deepseek-v3"), Term::kCore) * Rational(3 * 2048);
    CHECK(core == Rational(960) * Rational(128LL * 61 * 2048 * 2048));
  }
  SECTION("17: torchtitan #452: the input table is no product, the head is") {
    Network untied = builtin_network("gpt2-124m");
    untied.tied = false;
    CHECK(count("torchtitan", untied).per_token == count("torchtitan", "gpt2-124m").per_token);
    CHECK(term(count("torchtitan", untied), Term::kLogits).str() == "77194752");
  }
  SECTION("25: doubling S more than doubles a sequence") {
    const Network llama = builtin_network("llama-2-7b");
    const double ratio = training("exact", llama, 16384, 1) / training("exact", llama, 8192, 1);
    CHECK(ratio > 2.0);
    CHECK(ratio < 4.0);
  }
  SECTION("28: the core counts query heads") {
    CHECK(term(count("olmo-core", "llama-3-8b"), Term::kCore) == term(count("olmo-core", "llama-2-7b"), Term::kCore));
  }
  SECTION("Mixtral with one expert and with two") {
    Network mixtral = builtin_network("mixtral-8x7b");
    for (BlockConfig& kind : mixtral.kinds) kind.mlp->moe->picks = 1;
    CHECK(count("llm-analysis", mixtral).per_token == count("llm-analysis", "mixtral-8x7b").per_token);  // the tool's defect
    CHECK(count("full", mixtral).per_token < count("full", "mixtral-8x7b").per_token);
  }
}

TEST_CASE("depth routing: known to few, lifted with a reason by the others") {
  const Network mod = builtin_network("mod-220m");
  const Network dense = dense_twin(mod);
  CHECK(count("exact", mod).per_token * Rational(kLength) == Rational(585746022400));  // mode D
  CHECK(count("mod-a", mod).per_token * Rational(kLength) == Rational(538581270528));
  CHECK(count("mod-b", mod).per_token * Rational(kLength) == Rational(656021782528));
  CHECK(count("mod-c", mod).per_token * Rational(kLength) == Rational(773462294528));
  CHECK(count("mod-a", dense).per_token * Rational(kLength) == Rational(984034050048));
  CHECK(count("mod-b", dense).per_token * Rational(kLength) == Rational(1101474562048));
  CHECK(count("mod-c", dense).per_token * Rational(kLength) == Rational(1218915074048));
  CHECK(count("mod-a", dense).per_token == count("chinchilla-a4", dense).per_token);
  const ConventionCount palm = count("palm", mod);
  CHECK(palm.per_token == count("palm", dense).per_token);
  CHECK(palm.exact == count("exact", mod).per_token);
  CHECK(palm.reasons.front().flops == count("exact", dense).per_token - count("exact", mod).per_token);
}

TEST_CASE("steps, phases and names") {
  const Network gpt2 = builtin_network("gpt2-124m");
  std::string why;
  Scenario s;
  s.batch = 4;
  s.length = 2048;
  CHECK(convention_step(find_convention("vllm"), gpt2, s, why)->str() == "2474209941504");  // 302 027 580.75 x 8192
  s.phase = Phase::kTrain;
  CHECK(convention_step(find_convention("palm"), gpt2, s, why) == Rational(322804224) * Rational(3 * 8192));
  s.phase = Phase::kDecode;
  s.context = 100;
  CHECK_FALSE(convention_step(find_convention("palm"), gpt2, s, why));
  CHECK(why.find("whole sequences") != std::string::npos);
  s.phase = Phase::kPrefill;
  CHECK_FALSE(convention_step(find_convention("chinchilla"), builtin_network("mixtral-8x7b"), s, why));
  CHECK(why == "the formula has no experts");
  CHECK(find_convention("maxtext").name == "causal-half");
  CHECK_THROWS_WITH(find_convention("megatorn"), Catch::Contains("megatron"));
  CHECK_FALSE(convention_warning(find_convention("full")).empty());
  CHECK(convention_warning(find_convention("exact")).empty());
}

TEST_CASE("rationals stay exact") {
  CHECK(Rational(1, 3) + Rational(1, 6) == Rational(1, 2));
  CHECK(Rational(6, -4).str() == "-1.5");
  CHECK(Rational(1, 3).str() == "1/3");
  CHECK(Rational(-7, 3).truncated() == Rational(-2));
  CHECK((Rational(3, 4) / Rational(-3, 8)) == Rational(-2));
  CHECK(Rational(1, 3) < Rational(1, 2));
  const Rational big(static_cast<i128>(1) << 120, 3);
  CHECK((big * Rational(3)).num() == static_cast<i128>(1) << 120);
  CHECK_THROWS_AS(big * Rational(1000), Error);
  CHECK_THROWS_AS(Rational(1, 0), Error);
}
