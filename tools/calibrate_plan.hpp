// Which calibration workloads there is time for.
//
// A machine that is three times slower needs three times as long for the same list, so the list is fitted to the time: what a workload will take is guessed from
// the probed rates, the guesses are corrected by what the ones before took, and what does not fit is left out: first what costs most seconds for what it tells,
// which is how much further the nearest rows of the same network and phase would be without it. Ends tell more than what lies between two others (a curve's end
// holds for twice its rows before an answer is marked as extrapolated). Of each network and phase kFewestLeft stay whatever the time. The rule knows sizes and rates
// alone, no machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lib/machine.hpp"
#include "lib/workload.hpp"

namespace fathom {

inline constexpr int kFewestLeft = 2;
inline constexpr double kLeastSeconds = 0.3;

// Seconds of one calibration workload, as guessed.
struct CalibrationCost {
  std::string line;   // its network and phase
  double rows = 1;    // that its products have
  double once = 0;    // to allocate and fill it
  double pass = 0;    // op by op, with the references between the ops
  int passes = 0;     // at least, with those that are discarded
  int discarded() const { return passes > 5 ? 2 : 1; }
  double least() const { return once + passes * pass; }
  // What it is to be given: workloads of a few milliseconds are passed through more often.
  double planned() const { return once + std::max(kLeastSeconds, passes * pass); }
};

// `expected`: seconds of a plain pass by roofline. `bracketed_uses`: MeasureOptions.
CalibrationCost calibration_cost(const Workload& workload, const Machine& machine, double expected, int threads, std::int64_t bracketed_uses);

// For each: does it stay, if all that stay are to take at most `seconds`? More than that only where kFewestLeft of each line take longer. `done`: the rows of those
// of each line that are not in `costs`.
std::vector<bool> fit_to_time(std::span<const CalibrationCost> costs, double seconds, const std::map<std::string, std::vector<double>>& done = {});

}  // namespace fathom
