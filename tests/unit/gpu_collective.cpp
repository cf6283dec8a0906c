// Collectives: the form by hand, the table inside, what happens at its edges.
#include <catch2/catch.hpp>
#include <cmath>

#include "lib/error.hpp"
#include "lib/gpu/collective.hpp"

using namespace fathom;
using namespace fathom::gpu;

namespace {

std::vector<CollectiveRow> synthetic() {
  std::vector<CollectiveRow> rows;
  for (int gpus : {2, 8}) {
    CollectiveFit truth;
    truth.op = "all_reduce", truth.gpus = gpus;
    truth.alpha_us = 18, truth.sigma_us = 12, truth.beta = 390e9, truth.q = 2;
    for (double bytes = 1024; bytes <= 1 << 30; bytes *= 4) rows.push_back({"h200", "nccl", "all_reduce", gpus, bytes, truth.form_s(bytes) * 1e6});
    for (double bytes = 1024; bytes <= 1 << 20; bytes *= 4) rows.push_back({"h200", "oneshot", "all_reduce", gpus, bytes, 5 + bytes / 1e4});
  }
  return rows;
}

}  // namespace

// 8 GPUs, 100 MB, bus 400 GB/s: 2·7/8·1e8/4e11 = 437.5 us; alpha 30, sigma 2·sqrt(100) = 20; q = 1 adds: 487.5 us.
// As an all_gather the traffic halves: 218.75 + 50 = 268.75 us.
TEST_CASE("collective form by hand") {
  CollectiveFit fit;
  fit.op = "all_reduce", fit.gpus = 8, fit.alpha_us = 30, fit.sigma_us = 2, fit.beta = 4e11, fit.q = 1;
  CHECK(fit.form_s(1e8) == Approx(487.5e-6));
  fit.op = "all_gather";
  CHECK(fit.form_s(1e8) == Approx(268.75e-6));
}

TEST_CASE("collective fit recovers its form; the table answers inside, the form outside without a step") {
  const auto fits = fit_collectives(synthetic(), "h200");
  REQUIRE(fits.size() == 4);
  for (const auto& fit : fits)
    if (fit.library == "nccl") CHECK(fit.form_error < 1.0);
  const auto at = predict_collective(fits, "all_reduce", 8, 1 << 20, "nccl");
  CHECK(std::string(at.provenance) == "probed");
  CHECK(at.low_s <= at.seconds);
  CHECK(at.high_s >= at.seconds);
  const double top = 1 << 30;
  const auto edge = predict_collective(fits, "all_reduce", 8, top, "nccl"), above = predict_collective(fits, "all_reduce", 8, top * 1.0001, "nccl"),
             far = predict_collective(fits, "all_reduce", 8, top * 8, "nccl");
  CHECK(std::string(above.provenance) == "extrapolated");
  CHECK(above.seconds == Approx(edge.seconds).epsilon(1e-3));
  CHECK(far.seconds == Approx(8 * edge.seconds).epsilon(0.05));
  CHECK(far.high_s / far.seconds >= above.high_s / above.seconds);
}

TEST_CASE("collectives: fastest library, gpu counts between and above, refusal") {
  const auto fits = fit_collectives(synthetic(), "h200");
  CHECK(predict_collective(fits, "all_reduce", 8, 4096).library == "oneshot");
  CHECK(predict_collective(fits, "all_reduce", 8, 1 << 28).library == "nccl");
  const double two = predict_collective(fits, "all_reduce", 2, 1 << 28).seconds, eight = predict_collective(fits, "all_reduce", 8, 1 << 28).seconds;
  const auto four = predict_collective(fits, "all_reduce", 4, 1 << 28);
  CHECK(four.seconds > two);
  CHECK(four.seconds < eight);
  CHECK(std::string(four.provenance) == "extrapolated");
  CHECK(predict_collective(fits, "all_reduce", 1, 1 << 28).seconds == 0);
  CHECK_THROWS_AS(predict_collective(fits, "all_reduce", 16, 1024), Error);
  CHECK_THROWS_AS(predict_collective(fits, "alltoall", 8, 1024), Error);
  CHECK_THROWS_AS(predict_collective(fits, "all_reduce", 8, 1024, "mpi"), Error);
}

TEST_CASE("collective table reader names file and line") {
  CHECK(parse_collectives("op,chip,library,gpus,bytes,time_us\nall_reduce,h200,nccl,8,1024,16.5\n", "c.csv").at(0).gpus == 8);
  CHECK_THROWS_AS(parse_collectives("chip,library,op,gpus,bytes\n", "c.csv"), Error);
  try {
    parse_collectives("chip,library,op,gpus,bytes,time_us\nh200,nccl,all_reduce,8,1024,0\n", "c.csv");
    FAIL("accepted a time of 0");
  } catch (const Error& error) {
    CHECK(error.where().line == 2);
  }
}
