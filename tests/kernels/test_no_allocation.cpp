// T24: after warm-up a step allocates nothing, whatever its row counts; libraries are counted too. The one exception is inside oneDNN, whose
// execute makes a handful of small control blocks per call and frees them before it returns.
#if FATHOM_CPU
#include <catch2/catch.hpp>

#include <cmath>

#include "tests/kernels/allocation_count.hpp"
#include "tests/kernels/run_testing.hpp"
#include "tests/tiny_models.hpp"

namespace fathom::testing {
namespace {

constexpr std::int64_t kPerLibraryCall = 8;

struct Counted {
  std::int64_t own = 0;       // all ops but products that the library computes
  std::int64_t products = 0;  // the others, per call
};

Counted allocations_of_runs(const Network& net, const Scenario& scenario) {
  const cpu::CpuBackend backend;
  Bound bound = bind_on(backend, net, scenario);
  ProgramExecution& run = bound.run();
  run.calibrate_participation(1, 8);
  run.vary_tokens(true);
  // Both extremes and usual row counts, then the count.
  const std::vector<float> usual = run.thresholds();
  for (const float threshold : {-INFINITY, INFINITY}) {
    run.set_thresholds(std::vector<float>(usual.size(), threshold));
    run.run();
  }
  run.set_thresholds(usual);
  for (int i = 0; i < 20; ++i) run.run();
  Counted counted;
  for (int step = 0; step < 20; ++step) {
    std::int64_t before = allocations();
    run.begin_pass();
    counted.own += allocations() - before;
    for (int i = 0; i < run.instance_count(); ++i) {
      before = allocations();
      run.run_instance(i);
      const std::int64_t made = allocations() - before;
      const bool library = std::holds_alternative<Gemm>(*run.bound(i).spec);
      if (library)
        counted.products = std::max(counted.products, made);
      else
        counted.own += made;
    }
  }
  return counted;
}

}  // namespace

TEST_CASE("T24: steps in steady state allocate nothing") {
  const std::int64_t before = allocations();
  if (before < 0) return;  // cannot be counted in this build
  std::vector<int> grown(1000);
  REQUIRE(allocations() > before);  // the hook is live
  const Network mod = small_mod();
  Tiny tiny;
  tiny.every = 2;
  tiny.router_bias = true;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(dtype_name(dtype));
    // Few rows stream their weights: no library call at all.
    for (const std::int64_t batch : {1, 5}) {
      const Counted counted = allocations_of_runs(mod, decode_scenario(batch, 30, dtype));
      CHECK(counted.own == 0);
      CHECK(counted.products == 0);
    }
    Scenario top = prefill_scenario(2, 40, 0, dtype);
    top.routing = RoutingRule::kTopK;
    Scenario train = top;
    train.phase = Phase::kTrain;
    train.grad_dtype = dtype;
    for (const Scenario& scenario : {decode_scenario(40, 12, dtype), prefill_scenario(2, 40, 0, dtype), prefill_scenario(2, 40, 9, dtype), top, train}) {
      CAPTURE(phase_name(scenario.phase), scenario.batch, scenario.past);
      const Counted counted = allocations_of_runs(scenario.phase == Phase::kTrain ? network(tiny) : mod, scenario);
      CHECK(counted.own == 0);
      CHECK(counted.products <= kPerLibraryCall);
    }
  }
}

}  // namespace fathom::testing
#endif
