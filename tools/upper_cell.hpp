// The upper end of an interval as a cell: far outside the calibrated range there is none (lib/predict/unbounded.hpp), and every format says so.
#pragma once

#include <cmath>

#include "reports/cell.hpp"

namespace fathom {

inline constexpr const char* kUnbounded = "unbounded";

inline Cell upper_cell(double seconds) { return std::isinf(seconds) ? Cell::status(kUnbounded) : Cell::number(seconds); }

}  // namespace fathom
