// gnuplot scripts for those who want to restyle a plot or need PNG.
#pragma once

#include <string>

#include "reports/plot.hpp"

namespace fathom {

// One self-contained script with its data as datablocks. `gnuplot KEY.gp` writes KEY.svg; `gnuplot -e "format='png'"
// KEY.gp` writes KEY.png. Axes, units, log scales, ideal line and band as in the SVG renderer.
std::string gnuplot_script(const XyPlot& plot);
std::string gnuplot_script(const BarPlot& plot);
// One frame of the map.
std::string gnuplot_script(const RoutingMap& map, std::size_t frame = 0);

}  // namespace fathom
