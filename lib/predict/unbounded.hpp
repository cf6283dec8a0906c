// Where an interval stops saying anything.
//
// Intervals double (in the logarithm) per octave outside what was calibrated. Once the upper end is a thousand times the prediction it is no estimate any more: it becomes
// infinity, and every output says "unbounded" there. The lower end is then the bound that the machine's ceilings give (light).
#pragma once

#include <limits>

namespace fathom {

inline constexpr double kUnboundedFactor = 1000;

// Upper end over prediction, as printed: infinity from kUnboundedFactor on.
inline double upper_factor(double factor) { return factor < kUnboundedFactor ? factor : std::numeric_limits<double>::infinity(); }

}  // namespace fathom
