// The registry, and the fake backend's virtual clock.
#include <catch2/catch.hpp>

#include "kernels/fake/backend.hpp"
#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "tests/tiny_models.hpp"

using namespace fathom;
using namespace fathom::testing;

TEST_CASE("backends are found by name, with a hint for a typo", "[backends]") {
  CHECK(backend("reference").name() == "reference");
  CHECK(backend("fake").name() == "fake");
  CHECK(all_backends().size() == 4);
  try {
    backend("referense");
    FAIL("an unknown backend was accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.hint() == "did you mean 'reference'?");
  }
}

TEST_CASE("a backend that is not here says why", "[backends]") {
  for (const Backend* each : all_backends()) {
    const Support support = each->available();
    if (support.ok) continue;
    CHECK_FALSE(support.reason.empty());
    try {
      backend(each->name());
      FAIL("an absent backend was handed out");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kEnvironment);
      CHECK(error.message().find(support.reason) != std::string::npos);
    }
  }
}

TEST_CASE("the fake backend takes the time it is told and reports rounded expectations", "[backends]") {
  Tiny t;
  t.every = 2;
  t.capacity = Fraction{1, 4};
  const Workload w = build(network(t), scenario(Phase::kDecode, 6, 16));
  const auto execution = FakeBackend().bind(w, {});
  auto& fake = dynamic_cast<FakeExecution&>(*execution);
  const int count = static_cast<int>(w.instances().size());
  fake.run();
  CHECK(fake.virtual_now() == Approx(count * FakeExecution::kDefaultSeconds));
  std::vector<double> seconds(static_cast<size_t>(count), 0.0);
  seconds[0] = 2.0;
  seconds[1] = 0.5;
  fake.set_times(seconds);
  const double before = fake.virtual_now();
  fake.run();
  CHECK(fake.virtual_now() - before == Approx(2.5));
  CHECK_THROWS_AS(fake.set_times({1.0}), Error);
  // 6 sequences at 1/4: 1.5 rows expected, 2 rounded half up.
  int routed = 0;
  for (int i = 0; i < count; ++i) {
    const Op& op = w.ops()[static_cast<size_t>(w.instances()[static_cast<size_t>(i)].op)];
    if (!rows_of(op.spec).routed()) continue;
    CHECK(fake.executed(i).rows == 2);
    ++routed;
  }
  CHECK(routed > 10);
  CHECK(execution->allocated_bytes() == plan_memory(w).arena);
}
