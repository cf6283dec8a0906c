// Model and hardware FLOP utilisation.
//
//   MFU = model FLOPs / (time x devices x peak): forward and backward, attention backward 2x, no recomputation, no padding
//   HFU = executed FLOPs / (time x devices x peak): with recomputation, what a fused attention backward repeats, and the expert slots that stay empty
// Global-batch FLOPs go with all devices. Peak is the dense (non-sparse) peak of the type used.
#pragma once

#include <cstdint>

#include "lib/units.hpp"
#include "lib/workload.hpp"

namespace fathom {

// In expectation where rows are random: dropped tokens, choices of no-ops and what a window hides from routed rows are in neither.
struct StepFlops {
  double model = 0;
  double executed = 0;  // >= model
};
// Of one step's list. Experts with limited slots are executed as declared, empty slots included; a backend that leaves those out, or pads other
// rows, reports its own executed figure, which then replaces `executed`.
StepFlops step_flops(const Workload& list);

// A share of the peak: 0.42 is 42 %. Throws Error(kInput) unless time, devices and peak are positive and finite.
double utilization(double flops, Seconds step, std::int64_t devices, FlopRate peak);

}  // namespace fathom
