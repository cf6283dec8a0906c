// Two records compared: how they are joined, what counts as more than noise.
#include <catch2/catch.hpp>

#include <cmath>

#include "lib/error.hpp"
#include "reports/record_difference.hpp"

using namespace fathom;

namespace {

Result result(const std::string& model, const std::string& fingerprint, double measured, double noise, int batch = 1) {
  Result r;
  r.model = model;
  r.fingerprint = fingerprint;
  r.scenario.set("phase", Cell::text("prefill"));
  r.scenario.set("batch", Cell::count(static_cast<u128>(batch)));
  r.totals.set("measured_s", Cell::number(measured));
  if (noise >= 0) r.totals.set("noise", Cell::number(noise));
  r.totals.set("predicted_s", Cell::number(1.0));
  r.totals.set("peak_bytes", Cell::count(1000));
  return r;
}

Record record(std::vector<Result> results) {
  Record r;
  r.results = std::move(results);
  return r;
}

}  // namespace

TEST_CASE("a change is told where it is larger than both noises in quadrature") {
  // noises 3 % and 4 %: 5 % together. 1.00 -> 1.06 is told, 1.00 -> 1.04 is not.
  for (const auto& [after, judgement] : {std::pair{1.06, "slower"}, {1.04, "within noise"}, {0.94, "faster"}, {1.0, "same"}}) {
    const Record a = record({result("m", "f", 1.0, 0.03)}), b = record({result("m", "f", after, 0.04)});
    const RecordDifference d = compare_records(a, b);
    REQUIRE(d.pairs.size() == 1);
    const TimeChange& time = d.pairs[0].times[0];
    CHECK(time.figure == "measured_s");
    CHECK(time.noise == Approx(0.05));
    CHECK(time.judgement() == judgement);
  }
}

TEST_CASE("the spread counts where it says more than the A/A noise") {
  // 25 samples, spread 10 %: 2 * 0.93 * 0.10 / 5 = 3.72 %.
  Result a = result("m", "f", 1.0, 0.001), b = result("m", "f", 1.0, 0.0);
  a.totals.set("spread", Cell::number(0.10));
  a.totals.set("samples", Cell::count(25));
  const Record left = record({a}), right = record({b});
  CHECK(compare_records(left, right).pairs[0].times[0].noise == Approx(0.0372));
}

TEST_CASE("a record without a noise figure decides nothing") {
  const Record a = record({result("m", "f", 1.0, -1)}), b = record({result("m", "f", 2.0, 0.01)});
  const RecordDifference d = compare_records(a, b);
  CHECK(std::isnan(d.pairs[0].times[0].noise));
  CHECK_FALSE(d.pairs[0].times[0].told());
  CHECK(d.pairs[0].times[0].judgement() == "no noise figure");
}

TEST_CASE("configurations are joined by op list, then by name, in the same scenario only") {
  const Record a = record({result("old-name", "f1", 1, 0), result("m", "f2", 1, 0), result("m", "f2", 1, 0, 8)});
  const Record b = record({result("m", "f2", 1, 0, 8), result("new-name", "f1", 1, 0), result("m", "other", 1, 0), result("more", "f9", 1, 0)});
  const RecordDifference d = compare_records(a, b);
  REQUIRE(d.pairs.size() == 3);
  CHECK(d.pairs[0].before == &a.results[2]);
  CHECK(d.pairs[1].before == &a.results[0]);
  CHECK(d.pairs[2].before == &a.results[1]);
  CHECK(d.only_before.empty());
  REQUIRE(d.only_after.size() == 1);
  CHECK(d.only_after[0]->model == "more");
  REQUIRE(d.notes.size() == 1);
  CHECK(d.notes[0].text.find("op lists differ") != std::string::npos);
  const Record c = record({result("else", "f7", 1, 0)});
  CHECK_THROWS_AS(compare_records(a, c), Error);
}

TEST_CASE("predictions have no noise, and exact figures that differ are named") {
  Record a = record({result("m", "f", 1.0, 0.5)}), b = a;
  b.results[0].totals.set("predicted_s", Cell::number(1.001));
  b.results[0].totals.set("peak_bytes", Cell::count(1001));
  const RecordDifference d = compare_records(a, b);
  CHECK(d.pairs[0].times[1].judgement() == "slower");
  REQUIRE(d.pairs[0].counts.size() == 1);
  CHECK(d.pairs[0].counts[0] == "peak memory 1,000 -> 1,001");
}
