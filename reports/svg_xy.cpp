// Lines, scatters, rooflines: two numeric axes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.hpp"
#include "reports/scale.hpp"
#include "reports/svg_canvas.hpp"

namespace fathom {
namespace {

struct Area {
  double left, top, right, bottom;
  const Scale &x, &y;
  double at_x(double v) const { return left + (right - left) * x.position(v); }
  double at_y(double v) const { return bottom - (bottom - top) * y.position(v); }
  bool holds(double vx, double vy) const { return x.drawable(vx) && y.drawable(vy); }
};

double along(const Scale& scale, double t) {
  return scale.log ? scale.lo * std::pow(scale.hi / scale.lo, t) : scale.lo + (scale.hi - scale.lo) * t;
}

// y = x, and the band between x(1-w) and x(1+w), clipped to the area.
void draw_ideal(SvgCanvas& canvas, const Area& area, double band) {
  constexpr int kSteps = 64;
  const auto clip_y = [&](double v) { return std::clamp(area.at_y(v), area.top, area.bottom); };
  const double lo = std::max(area.x.lo, area.y.lo), hi = std::min(area.x.hi, area.y.hi);
  if (hi <= lo) return;
  if (band > 0) {
    std::string upper, lower;
    for (int i = 0; i <= kSteps; ++i) {
      const double v = along(area.x, i / double(kSteps));
      upper += (i == 0 ? "M" : "L") + px(area.at_x(v)) + " " + px(clip_y(std::max(v * (1 + band), area.y.lo)));
      lower = "L" + px(area.at_x(v)) + " " + px(clip_y(std::max(v * (1 - band), area.y.lo))) + lower;
    }
    canvas.path(upper + lower + "Z", "band", fmt::format("within {:g} %", band * 100));
  }
  canvas.line(area.at_x(lo), area.at_y(lo), area.at_x(hi), area.at_y(hi), "ideal");
}

void draw_series(SvgCanvas& canvas, const Area& area, const XyPlot& plot, std::size_t index) {
  const PlotSeries& series = plot.series[index];
  const std::string colour = series_class(index);
  if (series.line) {
    std::string d;
    bool pen_down = false;
    for (const PlotPoint& point : series.points) {
      if (!area.holds(point.x, point.y)) {
        pen_down = false;  // a gap, not a line across what is missing
        continue;
      }
      d += (pen_down ? "L" : "M") + px(area.at_x(point.x)) + " " + px(area.at_y(point.y));
      pen_down = true;
    }
    if (!d.empty()) canvas.path(d, "l " + colour + (series.dashed ? " dash" : ""), series.name);
  }
  for (const PlotPoint& point : series.points) {
    if (!area.holds(point.x, point.y)) continue;
    const double cx = area.at_x(point.x);
    if (point.y_lo && point.y_hi && area.y.drawable(*point.y_lo) && area.y.drawable(*point.y_hi)) {
      const double y1 = area.at_y(*point.y_lo), y2 = area.at_y(*point.y_hi);
      canvas.path(fmt::format("M{0} {1}L{0} {2}M{3} {1}L{4} {1}M{3} {2}L{4} {2}", px(cx), px(y1), px(y2), px(cx - 3),
                              px(cx + 3)),
                  "e " + colour);
    }
    if (series.markers) {
      std::string hover = point.label.empty() ? series.name : point.label;
      hover += fmt::format("\n{}: {}\n{}: {}", plot.x.label, format_value(point.x, plot.x.unit), plot.y.label,
                           format_value(point.y, plot.y.unit));
      canvas.marker(cx, area.at_y(point.y), index, hover);
    }
  }
}

struct LegendEntry {
  std::string name;
  double x = 0, y = 0;
};

// The series, then the ideal line and its band. Entries flow from left to right and break at the right margin.
std::vector<LegendEntry> place_legend(const XyPlot& plot, double left, double right, double top) {
  std::vector<LegendEntry> entries;
  for (const PlotSeries& series : plot.series) entries.push_back({series.name});
  if (plot.ideal_line) entries.push_back({"predicted = measured"});
  if (plot.ideal_line && plot.ideal_band > 0) entries.push_back({fmt::format("within {:g} %", plot.ideal_band * 100)});
  if (entries.size() == 1) entries.clear();  // the title says it
  double x = left, y = top;
  for (LegendEntry& entry : entries) {
    const double need = 28 + text_width(entry.name, 12) + 16;
    if (x > left && x + need > right) {
      x = left;
      y += 18;
    }
    entry.x = x;
    entry.y = y;
    x += need;
  }
  return entries;
}

void draw_legend(SvgCanvas& canvas, const XyPlot& plot, const std::vector<LegendEntry>& entries) {
  for (std::size_t s = 0; s < entries.size(); ++s) {
    const LegendEntry& at = entries[s];
    if (s < plot.series.size()) {
      const PlotSeries& series = plot.series[s];
      if (series.line) {
        canvas.path("M" + px(at.x) + " " + px(at.y - 4) + "L" + px(at.x + 22) + " " + px(at.y - 4),
                    "l " + series_class(s) + (series.dashed ? " dash" : ""));
      }
      if (series.markers) canvas.marker(at.x + 11, at.y - 4, s, "");
    } else if (s == plot.series.size()) {
      canvas.line(at.x, at.y - 4, at.x + 22, at.y - 4, "ideal");
    } else {
      canvas.rect(at.x, at.y - 10, 22, 12, "band");
    }
    canvas.text(at.x + 28, at.y, at.name, "start");
  }
}

}  // namespace

std::string render_svg(const XyPlot& plot, const SvgOptions& options) {
  std::vector<double> xs, ys;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
      if (point.y_lo) ys.push_back(*point.y_lo);
      if (point.y_hi) ys.push_back(*point.y_hi);
    }
  }
  if (plot.ideal_line) {
    xs.insert(xs.end(), ys.begin(), ys.end());
    ys = xs;
  }
  const double width = options.width;
  const Scale x = make_scale(plot.x, xs, plot.ideal_line ? 5 : std::max(3, options.width / 110)),
              y = make_scale(plot.y, ys, 5);
  std::size_t omitted = 0;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) omitted += x.drawable(point.x) && y.drawable(point.y) ? 0 : 1;
  }
  double label = 0;
  for (const Scale::Tick& tick : y.ticks) label = std::max(label, text_width(tick.label, 12));
  const double title_height = plot.title.empty() ? 8 : 30;
  const double left = 10 + 16 + label + 6, right = width - 18;
  const std::vector<LegendEntry> legend = place_legend(plot, left, right, title_height + 12);
  const double legend_height = legend.empty() ? 0 : legend.back().y - title_height + 6;
  const double top = title_height + legend_height + 8;
  const double bottom = top + std::max(220.0, std::min(width * 0.48, 360.0));
  const double height = bottom + 46 + (omitted > 0 ? 18 : 0);
  const Area area{left, top, right, bottom, x, y};

  SvgCanvas canvas(width, height, plot.title, options);
  canvas.title(left, plot.title);
  double last_label_end = -1e9;
  for (const Scale::Tick& tick : x.ticks) {
    const double at = area.at_x(tick.value), half = text_width(tick.label, 12) / 2;
    canvas.line(at, top, at, bottom, "g");
    if (at - half < last_label_end + 6) continue;
    canvas.text(std::min(at, width - half - 2), bottom + 16, tick.label, "middle", "t");
    last_label_end = at + half;
  }
  for (const Scale::Tick& tick : y.ticks) {
    const double at = area.at_y(tick.value);
    canvas.line(left, at, right, at, "g");
    canvas.text(left - 6, at + 4, tick.label, "end", "t");
  }
  canvas.line(left, bottom, right, bottom, "a");
  canvas.line(left, top, left, bottom, "a");
  canvas.text((left + right) / 2, bottom + 36, x.title, "middle", "d");
  canvas.text(18, (top + bottom) / 2, y.title, "middle", "d", -90);
  if (plot.ideal_line) draw_ideal(canvas, area, plot.ideal_band);
  for (std::size_t s = 0; s < plot.series.size(); ++s) draw_series(canvas, area, plot, s);
  draw_legend(canvas, plot, legend);
  if (omitted > 0) {
    canvas.text(left, height - 6,
                fmt::format("{} point{} not drawable on these axes left out", omitted, omitted == 1 ? "" : "s"),
                "start", "d");
  }
  return canvas.finish();
}

}  // namespace fathom
