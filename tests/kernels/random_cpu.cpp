// Random networks on the CPU against the reference, op by op: everything the op list can express, in every phase, in f32 and bf16.
#include <catch2/catch.hpp>

#if FATHOM_CPU
#include "lib/error.hpp"
#include "tests/kernels/cpu_against_reference.hpp"
#include "models/registry.hpp"
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
  for (std::uint64_t seed = first; seed < first + seeds(last - first); ++seed) {
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
  CHECK(ran > static_cast<int>(seeds(last - first)));
}

}  // namespace

TEST_CASE("every built-in network runs on the CPU: all ops have a kernel, and small ones are executed in every phase", "[cpu][networks]") {
  int executed = 0;
  for (const NetworkEntry& entry : list_networks()) {
    const Network network = builtin_network(entry.name);
    for (const Phase phase : {Phase::kTrain, Phase::kPrefill, Phase::kDecode}) {
      CAPTURE(entry.name, phase_name(phase));
      Scenario scenario;
      scenario.phase = phase;
      scenario.batch = 2;
      scenario.length = 12;
      scenario.context = 12;
      scenario.logits = LogitsKind::kAll;
      const Workload list = build(network, scenario);
      for (const Op& op : list.ops()) CHECK(cpu::CpuBackend().supports(op.spec).ok);
      if (network.width > 256) continue;
      const auto run = cpu::CpuBackend().bind(list, {});
      run->run();
      run->run();
      for (const Instance& instance : list.instances()) {
        const Op& op = list.ops()[static_cast<size_t>(instance.op)];
        const bool loss = std::holds_alternative<CrossEntropy>(op.spec), logits = phase != Phase::kTrain && op.part == Part::kLogits && std::holds_alternative<Gemm>(op.spec);
        if (!loss && !logits) continue;
        for (const float v : run->read(instance_of(list, list.program()[static_cast<size_t>(instance.step)], op.outputs[0]))) REQUIRE(std::isfinite(v));
      }
      ++executed;
    }
  }
  CHECK(executed >= 30);
}

TEST_CASE("random networks on the CPU equal the reference", "[cpu][random]") { run(DType::kF32, 0, 60, 2e-5); }
TEST_CASE("random networks on the CPU equal the reference in bf16", "[cpu][random]") { run(DType::kBF16, 60, 100, 2e-2); }
#endif
