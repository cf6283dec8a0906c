// What `fathom calibrate` executes: small workloads with a network's own block shapes, at sizes that nobody is graded on.
//
// A network is cut to one layer of each of its block kinds, because layers that are alike cost alike. Lengths and batches stand off the usual
// grid of powers of two, so that (m, n, k) triples of graded configurations stay unseen (DECISIONS "Validation"); a decode step with batch 1 is
// the exception: one row is a code path of its own.
#pragma once

#include <string>
#include <vector>

#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

struct CalibrationCase {
  std::string label;   // "mod-60m, prefill 544"
  Network network;
  Scenario scenario;
};

struct CalibrationSetOptions {
  DType dtype = DType::kF32;
  bool prefill = true;
  bool decode = true;
  bool train = true;
  std::int64_t max_length = 3000;  // of prefill; the curve should reach past what will be asked
};

// One layer of each block kind that `network` uses, in the order of first use.
Network cut_to_kinds(const Network& network);
std::vector<CalibrationCase> calibration_set(const Network& network, const CalibrationSetOptions& options = {});

}  // namespace fathom
