// Random networks on the CPU against the reference, op by op: everything the op list can express, in every phase, in f32 and bf16.
#include <catch2/catch.hpp>

#if FATHOM_CPU
#include "lib/error.hpp"
#include "tests/kernels/cpu_against_reference.hpp"
#include "tests/random_networks.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

// False where the builder states that there is no such list.
bool buildable(const Network& network, const Scenario& scenario) {
  try {
    build(network, scenario);
    return true;
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return false;
  }
}

void run(DType dtype, std::uint64_t first, std::uint64_t last, double tolerance) {
  int ran = 0;
  for (std::uint64_t seed = first; seed < last; ++seed) {
    const Network network = random_network(seed);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      Scenario scenario = random_scenario(seed, phase);
      scenario.dtype = scenario.grad_dtype = scenario.kv_dtype = dtype;
      if (!buildable(network, scenario)) continue;
      CAPTURE(seed, phase_name(phase));
      compare_with_reference(network, scenario, tolerance, 0);
      ++ran;
    }
  }
  CHECK(ran > static_cast<int>(last - first));
}

}  // namespace

TEST_CASE("random networks on the CPU equal the reference", "[cpu][random]") { run(DType::kF32, 0, 200, 2e-5); }
TEST_CASE("random networks on the CPU equal the reference in bf16", "[cpu][random]") { run(DType::kBF16, 200, 300, 2e-2); }
#endif
