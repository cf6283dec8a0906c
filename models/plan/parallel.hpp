// Step time of a network on several devices: data, tensor, pipeline, sequence and expert parallel.
//
// The op list of one micro-batch on one tensor rank is predicted like any other; layers are dealt to stages; every collective is priced from the
// machine's measured tables, or by a given latency and bandwidth where a group spans nodes, or the configuration is refused.
//   tensor    forward: one all-reduce of rows x width after attention and one after the MLP; backward the same; with sequence parallelism a
//             reduce-scatter and an all-gather instead, and norms and residuals on rows / g
//   routed    blocks carry their C rows in all of this; a sequence-parallel router needs an all-gather of the scores, and its rows are uneven
//   pipeline  t = (M + (P-1)/v) t_micro(slowest stage), sends included in t_micro
//   data      max(0, t_gradients - overlap t_backward) + last bucket; ZeRO 1, 2 same volume, ZeRO 3 two weight gathers more
//   experts   two all-to-alls forward and two backward; compute of the fullest rank
// Ranks are laid out tensor first, then data, then pipeline: a group's span in devices decides whether it leaves the node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/predict/prediction.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

// A network between nodes. Absent: groups that span nodes are refused.
struct InterNode {
  double bytes_per_s = 0;  // per device
  double latency_s = 0;
};

struct ParallelPlan {
  std::int64_t data = 1, tensor = 1, pipeline = 1, expert = 1;
  bool sequence = false;           // sequence parallelism of the tensor group
  std::int64_t micro_batches = 1;  // M, per pipeline
  std::int64_t interleave = 1;     // v
  int zero = 0;                    // 0 to 3
  double overlap = 0;              // share of the backward pass that hides gradient communication
  std::int64_t node = 8;           // devices per node
  std::optional<InterNode> network;

  std::int64_t devices() const { return data * tensor * pipeline; }
};

struct ParallelPrediction {
  double seconds = 0, lo = 0, hi = 0;
  double micro_s = 0;         // forward and backward of one micro-batch on the slowest stage, communication included
  double compute_s = 0;       // of the step, on the slowest stage
  double tensor_comm_s = 0, send_s = 0, data_comm_s = 0, expert_comm_s = 0;  // exposed, of the step
  double bubble_s = 0;
  double optimizer_s = 0;
  double memory_bytes = 0;    // of the fullest device: weights, gradients, optimizer state, activations in flight
  double weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0, activation_bytes = 0;
  Provenance provenance = Provenance::kFitted;
  int out_of_range = 0;

  double exposed_communication() const { return tensor_comm_s + send_s + data_comm_s + expert_comm_s; }
};

// The network of one tensor rank: heads, key heads, MLP widths and vocabulary divided. Throws Error(kInput) where something does not divide.
Network tensor_rank(const Network& network, std::int64_t ranks);

// `scenario.batch` is the global batch; a micro-batch has batch / (data x micro_batches) sequences. The machine needs a fitted GPU model (its
// collectives). Throws Error(kInput) for a plan that does not divide, or a collective that nobody measured.
ParallelPrediction predict_parallel(const Network& network, const Scenario& scenario, const Machine& machine, const ParallelPlan& plan, const PredictOptions& options);

// Expected largest count when `chosen` of `total` items are drawn and the items lie on `ranks` equal ranks (multivariate hypergeometric): the rows
// of the slowest rank when top-k runs over a sharded sequence. Exact.
double expected_most_rows(std::int64_t total, std::int64_t chosen, std::int64_t ranks);
// Expected largest count when `items` fall on `ranks` uniformly (multinomial): the rows of the fullest expert rank. Exact.
double expected_fullest(std::int64_t items, std::int64_t ranks);

}  // namespace fathom
