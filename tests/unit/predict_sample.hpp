// A machine with round figures and one-op workloads, for tests that are worked by hand.
#pragma once

#include "lib/machine.hpp"
#include "lib/workload.hpp"

namespace fathom::testing {

inline Figure figure(double value) { return {value, Provenance::kProbed, "test"}; }

// One thread: 100 GFLOP/s, caches of 1 MB (private) and 8 MB, 40 / 20 / 10 GB/s; 1 us per call. Two threads: twice the rates, 2 us per region.
inline Machine toy_machine() {
  Machine m;
  m.name = "toy";
  m.board = "toy board";
  m.kind = MachineKind::kCpu;
  m.isa = "avx512";
  m.cores = 2;
  m.peaks.push_back({DType::kF32, "fma", {{1, figure(100e9)}, {2, figure(200e9)}}, {{1, figure(110e9)}, {2, figure(220e9)}}});
  const auto level = [](const char* name, bool shared, double capacity, double rate) {
    MemoryLevel l;
    l.name = name;
    l.shared = shared;
    if (capacity > 0) l.capacity = figure(capacity);
    for (PerThreads& r : l.rate) r = {{1, figure(rate)}, {2, figure(2 * rate)}};
    return l;
  };
  m.levels = {level("L2", false, 1e6, 40e9), level("L3", true, 8e6, 20e9), level("DRAM", true, 0, 10e9)};
  m.launch = {{1, figure(1e-6)}, {2, figure(1e-6)}};
  m.region = {{2, figure(2e-6)}};
  m.exp_element = figure(1e-9);
  m.select_element = figure(20e-9);
  return m;
}

// `layers` uses of one product Y[rows, out] = X[rows, in] W, each with its own weights.
inline Workload product_workload(std::int64_t rows, std::int64_t in, std::int64_t out, int layers, Fraction probability = {1, 1}) {
  WorkloadBuilder b;
  const TensorId x = b.tensor("x", Role::kActivation, Scope::kLayer, rows, in, DType::kF32);
  const TensorId w = b.tensor("w", Role::kWeight, Scope::kWeights, in, out, DType::kF32);
  const TensorId y = b.tensor("y", Role::kActivation, Scope::kLayer, rows, out, DType::kF32);
  const int block = b.begin_block("layer", true);
  Gemm gemm;
  gemm.rows = {rows, probability};
  gemm.in = in;
  gemm.out = out;
  b.op("product", Part::kProjection, Pass::kForward, gemm, {{x, 0}, {w, 0}}, {{y, 0}});
  for (int layer = 0; layer < layers; ++layer) b.step(block, layer, layer);
  return b.finish();
}

}  // namespace fathom::testing
