// What `fathom calibrate` executes: small workloads with a network's own block shapes, at sizes that nobody is graded on.
//
// A network is cut to one layer of each of its block kinds, because layers that are alike cost alike. Lengths and batches stand off the usual
// grid of powers of two, so that (m, n, k) triples of graded configurations stay unseen; a decode step with batch 1 is
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

// Small networks that cover common widths: what is calibrated when no model is named, and what validation is built from (at other depths, row counts
// and capacities). `layers` dense blocks with RoPE, RMSNorm and a tied head.
struct SmallShape {
  std::int64_t width = 0;
  std::int64_t heads = 0, head_dim = 0;
  std::int64_t mlp = 0;
  bool gated = false;             // SiLU, gated; else GELU
  std::int64_t experts = 0, picks = 0;  // experts of width `mlp` instead of one MLP
};
inline constexpr std::int64_t kSmallVocab = 4096;
Network small_network(const SmallShape& shape, std::int64_t layers);
// Widths 256, 512 (gated), 768 and 1024, head sizes 64 and 128; the last one has experts.
const std::vector<SmallShape>& small_shapes();
// The calibration workloads of all small shapes, each as a dense and a routed block.
std::vector<CalibrationCase> default_calibration_set(DType dtype);

// One layer of each block kind that `network` uses, in the order of first use.
Network cut_to_kinds(const Network& network);
std::vector<CalibrationCase> calibration_set(const Network& network, const CalibrationSetOptions& options = {});

}  // namespace fathom
