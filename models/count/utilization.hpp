// Model and hardware FLOP utilisation.
//
//   MFU = model FLOPs / (time x devices x peak): forward and backward, attention backward 2x, no recomputation, no padding
//   HFU = executed FLOPs / (time x devices x peak): with recomputation and what a fused attention backward repeats
// Global-batch FLOPs go with all devices. Peak is the dense (non-sparse) peak of the type used.
#pragma once

#include <cstdint>

#include "lib/units.hpp"
#include "models/totals.hpp"

namespace fathom {

struct StepFlops {
  Flops model;
  Flops executed;  // >= model
};
// Of the sums of one step's list. A backend that pads rows reports its own executed figure, which then replaces `executed`.
StepFlops step_flops(const ListTotals& totals);

// A share of the peak: 0.42 is 42 %. Throws Error(kInput) unless time, devices and peak are positive and finite.
double utilization(Flops flops, Seconds step, std::int64_t devices, FlopRate peak);

}  // namespace fathom
