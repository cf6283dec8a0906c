// --fail-on of one run: what is met, what noise hides, what is absent.
#include "tools/fail_on.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using namespace fathom;

namespace {

// A routed model of 60 % of the FLOPs that took `ratio` of its twin's time, to `noise`; NaN: it has no twin.
Record routed(double ratio, double noise) {
  Record record;
  Result result;
  result.model = "mod";
  result.scenario.set("phase", Cell::text("prefill"));
  result.scenario.set("routing", Cell::text("topk"));
  result.totals.set("predicted_s", Cell::number(1.0));
  if (!std::isnan(ratio)) {
    result.totals.set("flops_ratio", Cell::number(0.6));
    result.totals.set("measured_ratio", Cell::number(ratio));
    result.totals.set("ratio_noise", Cell::number(noise));
    result.totals.set("realised", Cell::number((1 - ratio) / 0.4));
  }
  record.results.push_back(result);
  return record;
}

std::vector<std::string> reasons(const char* condition, const Record& record) { return met(parse_conditions({condition}, false), record); }

}  // namespace

TEST_CASE("realised= is met by what is told, and by what is absent", "[tools]") {
  // (1 - .84) / .4 = 40 %; the noise of the ratio is .84 x noise / .4
  CHECK(reasons("realised=50%", routed(0.84, 0)).size() == 1);
  CHECK(reasons("realised=39%", routed(0.84, 0)).empty());
  CHECK(reasons("realised=50%", routed(0.84, 0.04)) == std::vector<std::string>{"realised=50%: mod, prefill turned only 40.0 % of its saved FLOPs into time (± 8.4 points)"});
  CHECK(reasons("realised=50%", routed(0.84, 0.05)).empty());  // ± 10.5 points
  CHECK(reasons("realised=50%", routed(0.84, 0.3)).empty());   // ± 63 points: nothing is known
  CHECK(reasons("realised=50%", routed(NAN, 0)) == std::vector<std::string>{"realised=50%: mod, prefill: no realised fraction: add the dense twin"});
  Record dense = routed(NAN, 0);
  dense.results[0].scenario = {};
  CHECK(reasons("realised=50%", dense) == std::vector<std::string>{"realised=50%: no realised fraction: add the dense twin"});
  Record interrupted = routed(0.84, 0);
  interrupted.results[0].totals.set("realised", Cell::status("not measured"));
  CHECK(reasons("realised=50%", interrupted) == std::vector<std::string>{"realised=50%: mod, prefill: no realised fraction: not measured"});
}

TEST_CASE("error= is met where there is no error to tell", "[tools]") {
  Record record = routed(NAN, 0);
  CHECK(reasons("error=25%", record) == std::vector<std::string>{"error=25%: mod, prefill has no error: it was not measured"});
  record.results[0].totals.set("measured_s", Cell::number(0.9));  // 1 / 0.9 - 1 = 11.1 %
  CHECK(reasons("error=25%", record).empty());
  CHECK(reasons("error=11%", record).size() == 1);
}
