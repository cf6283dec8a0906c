// Any two models side by side: ratios of FLOPs and times to the first model asked for.
//
// A routed model and its dense twin have ratios of their own (flops_ratio, realised), because there the same work was to be saved. Two models
// that are no twins differ in what they compute; their ratios say how much bigger and slower one is, and there is no realised fraction.
#pragma once

#include <functional>
#include <vector>

#include "reports/record.hpp"

namespace fathom {

// Sets relative_to, relative_flops, relative_predicted, relative_measured and relative_noise of every result that shares its scenario (phase,
// sizes, types) with an earlier result of another model, against the first such, unless the two are twins. `twins(a, b)`: whether one of the
// two is the other's dense twin.
void add_relatives(std::vector<Result>& results, const std::function<bool(size_t, size_t)>& twins);

}  // namespace fathom
