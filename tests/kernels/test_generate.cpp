// Generation on the CPU: a prefill and decode steps make the tokens that one long prefill would (T13), with the hand-over between them.
#if FATHOM_CPU
#include <catch2/catch.hpp>

#include <cmath>

#include "lib/error.hpp"
#include "tests/kernels/run_testing.hpp"

namespace fathom::testing {
namespace {

const cpu::CpuBackend kCpu;

}  // namespace

TEST_CASE("greedy generation makes the tokens that the whole sequence's prefill predicts") {
  const Network network = small_mod();
  const std::int64_t batch = 3, prompt = 11, made = 9;
  Bound prefill = bind_on(kCpu, network, prefill_scenario(batch, prompt));
  Bound decode = bind_on(kCpu, network, decode_scenario(batch, prompt + made));
  prefill.run().calibrate_participation();
  const auto prompts = test_tokens(batch, prompt, network.vocab);
  prefill.run().write(tokens_of(prefill.run()), columns(prompts, 0, prompt));
  GenerateOptions options;
  options.tokens = made;
  const Generation generation = generate(prefill.run(), decode.run(), options);

  REQUIRE(generation.steps.size() == static_cast<size_t>(made - 1));
  CHECK(generation.first_token_s > 0);
  auto whole = prompts;
  for (size_t b = 0; b < 3; ++b) {
    REQUIRE(generation.tokens[b].size() == static_cast<size_t>(made));
    for (const std::int32_t token : generation.tokens[b]) whole[b].push_back(static_cast<float>(token));
  }
  const Trace check = trace(kCpu, network, whole, {prompt + made}, prefill.run().thresholds());
  const auto vocab = static_cast<size_t>(network.vocab);
  for (size_t b = 0; b < 3; ++b)
    for (size_t t = 0; t < static_cast<size_t>(made); ++t) {
      const std::span<const float> row(check.logits[b].data() + (static_cast<size_t>(prompt) - 1 + t) * vocab, vocab);
      CHECK(greedy_token(row) == generation.tokens[b][t]);
    }
  // Rows: the prefill's and the steps' together are what the long prefill took, less the last token, which is made but not processed.
  for (size_t block = 0; block < 2; ++block) {
    std::int64_t rows = generation.prefill_rows[block];
    for (const GeneratedStep& step : generation.steps) rows += step.rows[block];
    CHECK(rows <= check.taken[block]);
    CHECK(rows >= check.taken[block] - batch);
  }
  CHECK(generation.steps.front().context == prompt + 1);
  CHECK(generation.steps.back().context == prompt + made - 1);
}

TEST_CASE("a sampler draws by number, the progress callback ends a run early, and what does not fit is refused") {
  const Network network = small_mod();
  Bound prefill = bind_on(kCpu, network, prefill_scenario(2, 8));
  Bound decode = bind_on(kCpu, network, decode_scenario(2, 12));
  GenerateOptions options;
  options.tokens = 5;
  std::vector<std::uint64_t> draws;
  options.pick = [&](std::span<const float> logits, std::uint64_t draw) {
    CHECK(logits.size() == 256);
    draws.push_back(draw);
    return static_cast<std::int64_t>(draw % 256);
  };
  Generation made = generate(prefill.run(), decode.run(), options);
  CHECK(draws == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(made.tokens[1] == std::vector<std::int32_t>{1, 3, 5, 7, 9});

  options.progress = [](std::int64_t tokens) { return tokens < 3; };
  made = generate(prefill.run(), decode.run(), options);
  CHECK(made.tokens[0].size() == 3);
  CHECK(made.steps.size() == 2);

  options.progress = nullptr;
  options.tokens = 6;  // would need a context of 13
  CHECK_THROWS_AS(generate(prefill.run(), decode.run(), options), Error);
  options.tokens = 2;
  options.pick = [](std::span<const float>, std::uint64_t) { return std::int64_t{-1}; };
  CHECK_THROWS_AS(generate(prefill.run(), decode.run(), options), Error);

  Scenario top = prefill_scenario(2, 8);
  top.routing = RoutingRule::kTopK;
  Bound by_rank = bind_on(kCpu, network, top);
  CHECK_THROWS_AS(generate(by_rank.run(), decode.run(), GenerateOptions{}), Error);
  Bound other_batch = bind_on(kCpu, network, decode_scenario(3, 12));
  CHECK_THROWS_AS(generate(prefill.run(), other_batch.run(), GenerateOptions{}), Error);
  CHECK_THROWS_AS(hand_over(prefill.run(), other_batch.run(), 8), Error);
}

TEST_CASE("blocks that all tokens take, or none, generate what their whole prefill predicts") {
  // 0 and 1 need no threshold, so their prefill looks at no score and decode may continue it.
  const Network network = small_mod();
  for (const std::int64_t share : {0, 1}) {
    CAPTURE(share);
    Scenario whole = prefill_scenario(2, 6), step = decode_scenario(2, 9);
    whole.participation = step.participation = Fraction{share, 1};
    const Bound prefill = bind_on(kCpu, network, whole), decode = bind_on(kCpu, network, step);
    GenerateOptions options;
    options.tokens = 3;
    const auto prompt = test_tokens(2, 6, network.vocab);
    prefill.run().write(tokens_of(prefill.run()), columns(prompt, 0, 6));
    const Generation made = generate(prefill.run(), decode.run(), options);
    // All sequences with their first two new tokens, once more from the front: the last row predicts the third.
    Scenario again = prefill_scenario(2, 8);
    again.participation = whole.participation;
    const Bound check = bind_on(kCpu, network, again);
    std::vector<std::vector<float>> all = prompt;
    for (size_t b = 0; b < 2; ++b)
      for (size_t t = 0; t < 2; ++t) all[b].push_back(static_cast<float>(made.tokens[b][t]));
    check.run().write(tokens_of(check.run()), columns(all, 0, 8));
    check.run().run();
    const std::vector<float> logits = logits_of(check.run());
    const size_t vocab = static_cast<size_t>(network.vocab);
    for (size_t b = 0; b < 2; ++b)
      for (size_t t = 0; t < 3; ++t) {
        const std::span<const float> row(logits.data() + (b * 8 + 5 + t) * vocab, vocab);
        CHECK(greedy_token(row) == made.tokens[b][t]);
      }
    for (const int select : instances_of<Select>(decode.run())) CHECK(decode.run().executed(select).rows == 2 * share);
  }
}

TEST_CASE("greedy choice: the first of equals, -1 for no number") {
  CHECK(greedy_token(std::vector<float>{1, 3, 3, 2}) == 1);
  CHECK(greedy_token(std::vector<float>{1, std::nanf(""), 3}) == -1);
  CHECK(greedy_token(std::vector<float>{}) == -1);
}

TEST_CASE("tokens are drawn as often as the softmax says, by number") {
  // Logits 0, ln 2, ln 4 at temperature 1: probabilities 1/7, 2/7, 4/7. At 1/2 the weights are squared: 1/21, 4/21, 16/21. -inf is never drawn.
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(4.0f), -INFINITY};
  for (const auto& [temperature, shares] : {std::pair{1.0, std::vector<double>{1 / 7.0, 2 / 7.0, 4 / 7.0, 0}}, std::pair{0.5, std::vector<double>{1 / 21.0, 4 / 21.0, 16 / 21.0, 0}}}) {
    std::vector<int> drawn(4, 0);
    for (std::uint64_t draw = 0; draw < 9000; ++draw) ++drawn[static_cast<size_t>(sampled_token(logits, temperature, 1, draw))];
    for (size_t i = 0; i < 4; ++i) CHECK(drawn[i] / 9000.0 == Approx(shares[i]).margin(0.02));  // four standard deviations: 0.021
  }
  CHECK(sampled_token(logits, 1, 1, 17) == sampled_token(logits, 1, 1, 17));
  CHECK(sampled_token(logits, 1e-3, 1, 5) == 2);
  CHECK(sampled_token(std::vector<float>{1, std::nanf("")}, 1, 1, 0) == -1);
  CHECK(sampled_token(std::vector<float>{-INFINITY, -INFINITY}, 1, 1, 0) == -1);
  CHECK(sampled_token(std::vector<float>{1, INFINITY}, 1, 1, 0) == -1);
  std::vector<std::int64_t> first, second;
  for (std::uint64_t draw = 0; draw < 20; ++draw) first.push_back(sampled_token(logits, 1, 1, draw)), second.push_back(sampled_token(logits, 1, 2, draw));
  CHECK(first != second);  // another seed, other tokens
  // Two of 1000 tokens have nearly all of the chance, 2 : 1. Few trials of flat draws meet one of them, so most draws add up all.
  std::vector<float> peaked(1000, 0.0f);
  peaked[7] = 20, peaked[900] = 20 - std::log(2.0f);
  int likelier = 0, others = 0;
  for (std::uint64_t draw = 0; draw < 9000; ++draw) {
    const std::int64_t token = sampled_token(peaked, 1, 1, draw);
    likelier += token == 7, others += token != 7 && token != 900;
  }
  CHECK(likelier / 9000.0 == Approx(2 / 3.0).margin(0.02));  // four standard deviations: 0.020
  CHECK(others == 0);  // 998 e^-20 of 1.5: 1.4e-6 per draw
}

TEST_CASE("generated tokens take routed blocks at the wanted rate, drawn or greedy") {
  const Network network = small_mod();
  const std::int64_t prompt = 16, made = 65;
  for (const bool greedy : {false, true}) {
    for (const std::int64_t batch : {1, 8}) {
      CAPTURE(greedy, batch);
      const Bound prefill = bind_on(kCpu, network, prefill_scenario(batch, prompt)), decode = bind_on(kCpu, network, decode_scenario(batch, prompt + made));
      GenerateOptions options;
      options.tokens = made;
      if (!greedy) options.pick = [](std::span<const float> logits, std::uint64_t draw) { return sampled_token(logits, 1, 1, draw); };
      const auto rate = [&] {
        const Generation generation = generate(prefill.run(), decode.run(), options);
        double rows = 0, all = 0;
        for (const GeneratedStep& step : generation.steps)
          for (const std::int64_t n : step.rows) rows += static_cast<double>(n), all += static_cast<double>(batch);
        return rows / all;
      };
      calibrate_generation(prefill.run(), decode.run(), options);
      const double wanted = prefill.run().participation().front().wanted;
      CAPTURE(rate(), wanted);
      CHECK(std::abs(rate() - wanted) < 0.1);  // random prompts alone: 0.55 for one greedy sequence
      CHECK(prefill.run().thresholds() == decode.run().thresholds());
    }
  }
}

}  // namespace fathom::testing
#endif
