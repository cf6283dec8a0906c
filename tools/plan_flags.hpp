// Several devices, memory and serving on the command line of `fathom predict`.
#pragma once

#include <string>

#include "models/plan/parallel.hpp"
#include "reports/record.hpp"
#include "tools/timed.hpp"

namespace fathom {

struct PlanFlags {
  std::int64_t data = 1, tensor = 1, pipeline = 1, expert = 1, micro_batches = 1, interleave = 1, node = 8;
  bool sequence = false;
  int zero = 0;
  double overlap = 0;
  std::string network;        // "25GB/s:10us"
  double memory_limit = 0.9;

  bool several() const { return data > 1 || tensor > 1 || pipeline > 1 || expert > 1 || micro_batches > 1 || sequence; }
};
void add_plan_flags(CLI::App& app, PlanFlags& flags);

// Memory first: what does not fit loses its time and says why. A decode step that fits gets the number of sequences that memory allows, with the
// throughput and latency at that number. With several devices the step of the plan replaces that of one.
void apply_plan(Result& result, const Timed& timed, const Machine& machine, const TimedFlags& timed_flags, const PlanFlags& flags);

}  // namespace fathom
