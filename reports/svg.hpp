// Plots as SVG: labelled axes with units, a palette that colour-blind readers can tell apart, light and dark.
//
// A standalone file carries its own style (with a dark variant by prefers-color-scheme) so that GitHub shows it well;
// inside HTML the page's style rules the same classes. Text is real text, every mark has a hover title, lines also
// differ by marker shape and dash, so colour is never the only difference.
#pragma once

#include <cstddef>
#include <string>

#include "reports/plot.hpp"

namespace fathom {

struct SvgOptions {
  int width = 760;         // drawing width in px; 360 suits a phone
  bool standalone = true;  // with XML namespace, background and style
  std::size_t frame = 0;   // which frame of a routing map
};

std::string render_svg(const XyPlot& plot, const SvgOptions& options = {});
std::string render_svg(const BarPlot& plot, const SvgOptions& options = {});
std::string render_svg(const RoutingMap& map, const SvgOptions& options = {});

// The rules for the classes used above, for embedding in a page; colours are the custom properties of svg_colours().
std::string svg_rules();
// The custom properties, light and dark.
std::string svg_colours();

// Escapes &, <, >, quotes; repairs UTF-8; drops characters that XML 1.0 forbids.
std::string xml_escape(std::string_view text);

}  // namespace fathom
