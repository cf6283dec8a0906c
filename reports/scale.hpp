// Axes: ranges, ticks and labels shared by the SVG and terminal plots.
#pragma once

#include <string>
#include <vector>

#include "reports/plot.hpp"

namespace fathom {

struct Scale {
  struct Tick {
    double value = 0;
    std::string label;
  };
  double lo = 0, hi = 1;
  bool log = false;
  std::vector<Tick> ticks;
  std::string title;  // axis label with its unit: "measured time (ms)"

  // 0 at lo, 1 at hi; values outside give results outside.
  double position(double value) const;
  bool drawable(double value) const;  // plottable, and positive on a log axis
};

// Covers `values` with round limits. Linear axes start at zero when `from_zero`. Ticks are about `wanted` in number. On
// a linear axis all labels share one SI prefix, named in the title; on a log axis each tick carries its own.
Scale make_scale(const PlotAxis& axis, const std::vector<double>& values, int wanted, bool from_zero = false);

}  // namespace fathom
