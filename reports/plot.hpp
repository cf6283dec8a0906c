// Plots and routing maps as data: what is drawn, with units; how it is drawn is the renderers' business.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/cell.hpp"

namespace fathom {

struct PlotAxis {
  std::string label;  // without unit: "predicted time"; renderers add the unit with its prefix
  Unit unit = Unit::kNone;
  bool log = false;  // logarithmic; values <= 0 are left out and counted in the caption
};

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::optional<double> y_lo, y_hi;  // interval, drawn as a bar
  std::string label;                 // what the point is, shown on hover and in data files
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
  bool line = true;     // join the points
  bool markers = true;  // draw a mark at each
  bool dashed = false;
};

// Lines, scatters and rooflines over two numeric axes.
struct XyPlot {
  std::string key;  // file name stem and anchor: "roofline"
  std::string title;
  std::string caption;
  PlotAxis x, y;
  std::vector<PlotSeries> series;
  // The line y = x ("predicted = measured") and, when positive, a band of this relative width around it (0.1 = 10 %).
  bool ideal_line = false;
  double ideal_band = 0;
};

// Horizontal bars. Grouped: one bar per category and series. Stacked: one bar per category, the series are its parts
// (a negative part is left out: it has no place in a stack).
struct BarPlot {
  std::string key;
  std::string title;
  std::string caption;
  std::string value_label;
  Unit unit = Unit::kNone;
  std::vector<std::string> categories;
  struct Series {
    std::string name;
    std::vector<double> values;  // one per category; NaN: not available, shown as such
    int look = -1;               // reports/part_looks.hpp; -1: by its place among the series
  };
  std::vector<Series> series;
  bool stacked = false;
  // One per category where the number behind a bar is not its length (a count behind its logarithm): shown beside the bar instead of the length.
  std::vector<std::string> shown = {};
};

// A grid of blocks (rows, block 0 at the bottom) by tokens (columns): which token passes through which block.
// Several frames, for example one per capacity, can be looked at in turn in HTML.
struct RoutingMap {
  std::string key;
  std::string title;
  std::string caption;
  std::vector<std::string> blocks;                          // row labels, block 0 first
  std::vector<std::string> tokens;                          // column labels; may be empty (positions are shown)
  enum class State : char { kFull, kProcessed, kSkipped };  // full: the block is not routed, every token passes
  struct Frame {
    std::string label;                         // "capacity 1/4"; may be empty when there is one frame
    std::vector<std::vector<State>> states;    // [block][token]
    std::vector<std::vector<double>> weights;  // router weight per cell, for hover; empty or [block][token]
  };
  std::vector<Frame> frames;
  std::size_t prompt = 0;  // of a generation: tokens from this one on were generated, those before are the prompt; 0: nothing was generated
};

// Whether plots take the number: finite and, so that sums and margins stay finite too, below 1e290. Others count as
// missing.
bool plottable(double value);

// How a series of bars is drawn: its own look, else the plain one of its place (reports/part_looks.hpp).
int look_of(const BarPlot& plot, std::size_t series);

// The lengths of all bars that are drawn: the values, or per category their sum when stacked. What is not plottable is
// left out.
std::vector<double> bar_lengths(const BarPlot& plot);

// Throws an internal Error when sizes disagree (values per series, states per block) or nothing is there to draw.
void check_plot(const BarPlot& plot);
void check_plot(const RoutingMap& map);

}  // namespace fathom
