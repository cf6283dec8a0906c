// The few SVG primitives the plots need.
#pragma once

#include <string>
#include <string_view>

#include "reports/svg.hpp"

namespace fathom {

// A coordinate with at most two decimals.
std::string px(double value);

// Approximate width of `text` in a sans-serif font, for laying out labels.
double text_width(std::string_view text, double font_size);

class SvgCanvas {
 public:
  SvgCanvas(double width, double height, const std::string& title, const SvgOptions& options);

  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void rect(double x, double y, double width, double height, std::string_view classes, std::string_view hover = "");
  // A rectangle in a look of reports/part_looks.hpp; `classes` besides.
  void filled(double x, double y, double width, double height, int look, std::string_view classes, std::string_view hover = "");
  void path(const std::string& d, std::string_view classes, std::string_view hover = "");
  // anchor: start, middle or end. `rotate` degrees around the point.
  void text(double x, double y, std::string_view words, std::string_view anchor, std::string_view classes = "t",
            double rotate = 0);
  // The plot's title on the first line, starting at `left`: further left or condensed where the width asks for it.
  void title(double left, std::string_view words);
  // Marker shapes differ by series: circle, square, triangle, diamond, cross, plus.
  void marker(double x, double y, std::size_t series, std::string_view hover);
  std::string finish();

 private:
  double width_;
  std::string body_;
};

// Class of the n-th series: "c0".."c7", used with "l" (line), "f" (fill).
std::string series_class(std::size_t series);
// The same of what is filled in a look of reports/part_looks.hpp; "co": the neutral one.
std::string look_class(int look);

}  // namespace fathom
