// What a validation says where noise leaves nothing to grade.
#include "tools/validation_report.hpp"

#include <catch2/catch.hpp>

#include "models/registry.hpp"
#include "reports/text.hpp"
#include "tests/unit/predict_sample.hpp"

using namespace fathom;

namespace {

// The routed model and its dense twin, as the fake backend measures them; then with that A/A spread of both steps.
std::string page(double noise) {
  ValidationRun run;
  run.machine = fathom::testing::toy_machine();
  run.threads = 2;
  run.backend = "fake";
  TimedFlags flags;
  flags.backend = run.backend;
  flags.threads = run.threads;
  flags.rounds = 2;
  run.options = predict_options(run.machine, flags);
  for (const bool routed : {true, false}) {
    GradedCase each;
    each.source.network = builtin_network("mod-60m");
    if (!routed) each.source.network = dense_twin(each.source.network);
    each.source.label = each.source.network.name;
    each.source.scenario.length = 32;
    each.timed = make_timed({{each.source.network, each.source.scenario, each.source.label}});
    predict_all(each.timed, run.machine, flags, true);
    Record record;
    measure_all(each.timed, flags, &run.machine, true, record);
    each.timed[0].comparison.normalised.noise = noise;
    run.cases.push_back(std::move(each));
  }
  return render_text(validation_report(run, false), {300, false, false});
}

}  // namespace

TEST_CASE("what is dropped as noisy has no rank and no result") {
  const std::string calm = page(0.02), wild = page(0.03);  // a step is graded up to 2.5 %
  CHECK(calm.find("over 2 of 2 configurations.") != std::string::npos);
  CHECK(calm.find("No result") == std::string::npos);
  CHECK(calm.find("graded\n") != std::string::npos);
  CHECK(wild.find("No result: 2 of 2 dropped as noisy (A/A spread above 2.5 %).") != std::string::npos);
  const size_t ranking = wild.find("\nRanking\n");
  REQUIRE(ranking != std::string::npos);
  const std::string ranks = wild.substr(ranking, wild.find("[1] fewer than two graded", ranking) - ranking);
  const size_t all = ranks.find("\nall ");
  CHECK(ranks.substr(all, ranks.find('\n', all + 1) - all).find("n/a [1]") != std::string::npos);
  CHECK(wild.find("noisy\n") != std::string::npos);  // beside what is realised
}
