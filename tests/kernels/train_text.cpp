// mod-tiny learns a text of four KiB that was written for these tests: the loss falls below the entropy of single bytes, learned routing ends lower
// than routing by scores without content, and the predictor agrees with the selection better than always skipping would.
#if FATHOM_CPU
#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

#include "kernels/cpu/backend.hpp"
#include "lib/error.hpp"
#include "models/registry.hpp"
#include "tools/train_text.hpp"

using namespace fathom;

namespace {

std::string north_light() {
  std::ifstream file(std::string(FATHOM_SOURCE_DIR) + "/tests/data/text/north_light.txt");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TextTraining training(RoutingRule rule) {
  TextTraining t;
  t.network = builtin_network("mod-tiny");
  t.scenario.phase = Phase::kTrain;
  t.scenario.batch = 8;
  t.scenario.length = 128;
  t.scenario.routing = rule;
  t.text = north_light();
  t.steps = 160;
  return t;
}

}  // namespace

TEST_CASE("byte entropy, by hand", "[text]") {
  CHECK(byte_entropy("aaaa") == 0);
  CHECK(byte_entropy("abab") == Approx(std::log(2.0)));
  CHECK(byte_entropy("aab") == Approx(std::log(3.0) - 2.0 / 3.0 * std::log(2.0)));  // 2/3 ln(3/2) + 1/3 ln 3
}

TEST_CASE("a predictor's score, by hand", "[text]") {
  const PredictorScore score{1, 3, 1, 10, 2};  // 5 of 16 selected; 3 hit, 10 of 11 rejections right
  CHECK(score.accuracy() == Approx(13.0 / 16));
  CHECK(score.balanced_accuracy() == Approx((3.0 / 5 + 10.0 / 11) / 2));
  CHECK(score.share() == Approx(5.0 / 16));
}

TEST_CASE("mod-tiny learns a text, better with learned routing than with random", "[text]") {
  const TextReport learned = train_on_text(cpu::CpuBackend(), training(RoutingRule::kTopK));
  const TextReport random = train_on_text(cpu::CpuBackend(), training(RoutingRule::kRandom));
  INFO("byte entropy " << learned.byte_entropy << ", learned " << learned.late_loss(20) << ", random " << random.late_loss(20) << ", held out " << learned.held_out_loss << " and "
                       << random.held_out_loss);
  CHECK(learned.losses.front() == Approx(std::log(256.0)).margin(0.2));  // a fresh model knows nothing
  CHECK(learned.late_loss(20) < learned.byte_entropy);
  CHECK(learned.late_loss(20) < random.late_loss(20));
  REQUIRE(learned.predictors.size() == 2);
  for (const PredictorScore& score : learned.predictors) {
    CAPTURE(score.layer, score.accuracy(), score.balanced_accuracy());
    CHECK(score.share() == 0.25);
    CHECK(score.accuracy() > 0.75);           // always skipping
    CHECK(score.balanced_accuracy() > 0.6);   // 0.5 is knowing nothing
  }
  REQUIRE(learned.participation.size() == 2);
  for (const Participation& block : learned.participation) CHECK(block.rate() == 0.25);
}

TEST_CASE("texts that cannot be trained on are refused with the reason", "[text]") {
  TextTraining t = training(RoutingRule::kTopK);
  t.text.resize(200);
  CHECK_THROWS_WITH(train_on_text(cpu::CpuBackend(), t), Catch::Contains("too short"));
  t = training(RoutingRule::kTopK);
  t.scenario.phase = Phase::kPrefill;
  CHECK_THROWS_AS(train_on_text(cpu::CpuBackend(), t), Error);
  t = training(RoutingRule::kTopK);
  t.network.vocab = 100;
  CHECK_THROWS_WITH(train_on_text(cpu::CpuBackend(), t), Catch::Contains("vocabulary of 256"));
}
#endif
