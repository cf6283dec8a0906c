#include "reports/gnuplot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.hpp"
#include "reports/json_writer.hpp"
#include "reports/part_looks.hpp"
#include "reports/routing_grid.hpp"
#include "reports/scale.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

constexpr std::size_t kLineTypes = 8;   // the SVG renderer's palette and marks

// A bar's colour and fill.
std::string bar_style(int look) {
  if (look == kOtherLook) return "lc rgb '#c3cad3'";
  return fmt::format("lt {}{}", look_colour(look) + 1, look_hatched(look) ? " fs pattern 5" : "");
}

// A single-quoted gnuplot string; a quote inside is doubled.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : printable(text)) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + "'";
}

// A tick label: gnuplot takes a percent sign in one for a format.
std::string tick_label(std::string_view text) {
  std::string out = quoted(text);
  for (std::size_t at = out.find('%'); at != std::string::npos; at = out.find('%', at + 2)) out.insert(at, 1, '%');
  return out;
}

// Range, ticks and title of one axis, as the SVG renderer has them.
std::string axis(const char* name, const Scale& scale) {
  std::string ticks;
  for (const Scale::Tick& tick : scale.ticks) {
    ticks += (ticks.empty() ? "" : ", ") + tick_label(tick.label) + " " + shortest(tick.value);
  }
  return fmt::format("set {0}label {1}\nset {0}range [{2}:{3}]\nset {0}tics ({4})\n{5}", name, quoted(scale.title),
                     shortest(scale.lo), shortest(scale.hi), ticks,
                     scale.log ? fmt::format("set logscale {}\n", name) : "");
}

std::string prologue(const std::string& key, const std::string& title) {
  return fmt::format(R"(if (!exists("format")) format = "svg"
if (format eq "png") {{ set terminal pngcairo size 1140,720 noenhanced fontscale 1.2 }} else {{ set terminal svg size 760,480 noenhanced font "sans-serif,12" background "white" }}
set output {}.".".format
set title {}
set grid lc rgb "#dfe3e8"
set key tmargin left Left reverse horizontal
set pointsize 1.3
set linetype 1 lc rgb "#0072b2" pt 7
set linetype 2 lc rgb "#d55e00" pt 5
set linetype 3 lc rgb "#009e73" pt 9
set linetype 4 lc rgb "#b4568c" pt 13
set linetype 5 lc rgb "#c98a00" pt 2
set linetype 6 lc rgb "#56b4e9" pt 1
set linetype 7 lc rgb "#7a5c3e" pt 3
set linetype 8 lc rgb "#6b7280" pt 4
)",
                     quoted(key), quoted(title));
}

}  // namespace

std::string gnuplot_script(const XyPlot& plot) {
  std::string out = prologue(plot.key, plot.title);
  std::vector<double> xs, ys;
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    out += fmt::format("$data{} << EOD\n", s);
    for (const PlotPoint& point : plot.series[s].points) {
      if (!plottable(point.x) || !plottable(point.y)) continue;
      xs.push_back(point.x);
      ys.push_back(point.y);
      double lo = point.y_lo.value_or(point.y), hi = point.y_hi.value_or(point.y);
      if (!plottable(lo) || !plottable(hi)) lo = hi = point.y;
      out += fmt::format("{} {} {} {}\n", shortest(point.x), shortest(point.y), shortest(lo), shortest(hi));
    }
    out += "EOD\n";
  }
  if (plot.ideal_line) {
    xs.insert(xs.end(), ys.begin(), ys.end());
    ys = xs;
  }
  const Scale x = make_scale(plot.x, xs, 6), y = make_scale(plot.y, ys, 5);
  out += axis("x", x) + axis("y", y) + "set samples 400\n";
  std::string parts;
  const auto add = [&](const std::string& part) { parts += (parts.empty() ? "plot " : ", \\\n     ") + part; };
  if (plot.ideal_line && plot.ideal_band > 0) {
    add(fmt::format("'+' using 1:($1*{}):($1*{}) with filledcurves fc rgb '#e4e7ea' title {}",
                    shortest(1 - plot.ideal_band), shortest(1 + plot.ideal_band),
                    quoted(fmt::format("within {:g} %", plot.ideal_band * 100))));
  }
  if (plot.ideal_line) add("x with lines lc rgb '#333333' dt 2 title 'predicted = measured'");
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    const PlotSeries& series = plot.series[s];
    const std::string data = fmt::format("$data{}", s);
    if (std::any_of(series.points.begin(), series.points.end(), [](const auto& p) { return p.y_lo || p.y_hi; })) {
      add(fmt::format("{} using 1:2:3:4 with yerrorbars lt {} notitle", data, s % kLineTypes + 1));
    }
    const char* style = series.line ? (series.markers ? "linespoints" : "lines") : "points";
    add(fmt::format("{} using 1:2 with {} lt {}{} title {}", data, style, s % kLineTypes + 1,
                    series.line && series.dashed ? " dt 2" : "", quoted(series.name)));
  }
  return out + parts + "\n";
}

std::string gnuplot_script(const BarPlot& plot) {
  check_plot(plot);
  std::string out = prologue(plot.key, plot.title);
  out += "$data << EOD\n";
  for (std::size_t c = 0; c < plot.categories.size(); ++c) {
    std::string label;
    for (const char ch : printable(plot.categories[c])) label += ch == '"' ? '\'' : ch;
    out += "\"" + label + "\"";
    for (const auto& series : plot.series)
      out += " " + (plottable(series.values[c]) ? shortest(series.values[c]) : "NaN");
    out += "\n";
  }
  out += "EOD\n";
  out += axis("y", make_scale({plot.value_label, plot.unit, false}, bar_lengths(plot), 6, true));
  out += fmt::format(
      "set style data histograms\nset style histogram {}\nset style fill solid 1.0 border lc rgb 'white'\nset boxwidth "
      "0.8\n",
      plot.stacked ? "rowstacked" : "clustered gap 1");
  // Labels that would run into each other lean.
  constexpr std::size_t kLettersAcross = 70;
  std::size_t longest = 0;
  for (const std::string& category : plot.categories) longest = std::max(longest, static_cast<std::size_t>(display_width(printable(category))) + 2);
  if (longest * plot.categories.size() > kLettersAcross) out += "set xtics rotate by -35\n";
  if (plot.series.size() == 1) out += "unset key\n";
  std::string parts;
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    parts += (parts.empty() ? "plot " : ", \\\n     ") + fmt::format("$data using {}{} {} title {}", s + 2, s == 0 ? ":xtic(1)" : "",
                                                                     bar_style(look_of(plot, s)), quoted(plot.series[s].name));
  }
  return out + parts + "\n";
}

std::string gnuplot_script(const RoutingMap& map, std::size_t which) {
  check_plot(map);
  constexpr std::size_t kCells = 256;
  const RoutingMap::Frame& frame = map.frames.at(which);
  const RoutingGrid grid = bucket(frame, kCells);
  std::string out = prologue(map.key, frame.label.empty() ? map.title : map.title + ", " + frame.label);
  // Cell values: the share of its tokens that the block processed, 0 to 1; -1 in rows of blocks that are not routed.
  out += "$map << EOD\n";
  for (std::size_t b = 0; b < grid.shares.size(); ++b) {
    for (std::size_t c = 0; c < grid.shares[b].size(); ++c) out += (c > 0 ? " " : "") + (grid.full[b] ? std::string("-1") : shortest(grid.shares[b][c]));
    out += "\n";
  }
  out += "EOD\n";
  std::string names, shares;
  for (std::size_t b = 0; b < map.blocks.size(); ++b) {
    names += fmt::format("{}{} {}", b > 0 ? ", " : "", tick_label(map.blocks[b]), b);
    shares += fmt::format("{}{} {}", b > 0 ? ", " : "", tick_label(grid.full[b] ? "full" : format_value(grid.participation[b], Unit::kPercent)), b);
  }
  const double rows = static_cast<double>(map.blocks.size()), cells = static_cast<double>(grid.shares[0].size());
  out += fmt::format("unset grid\nunset colorbox\nset palette defined (-1 '#c3cad3', -0.01 '#c3cad3', 0 '#eceff2', 1 '#0072b2')\nset cbrange [-1:1]\n"
                     "set xrange [-0.5:{0}]\nset yrange [-0.5:{1}]\nset y2range [-0.5:{1}]\nset ytics ({2}) nomirror\nset y2tics ({3})\nset xlabel {4}\n",
                     shortest(cells - 0.5), shortest(rows - 0.5), names, shares, quoted(grid.tokens_per_cell == 1 ? "token" : fmt::format("token ({} per cell: darker where more are processed)", grid.tokens_per_cell)));
  if (grid.tokens_per_cell > 1) {
    std::string ticks;
    for (std::size_t quarter = 0; quarter <= 4; ++quarter)
      ticks += fmt::format("{}'{}' {}", quarter > 0 ? ", " : "", (frame.states[0].size() - 1) * quarter / 4, shortest(cells * static_cast<double>(quarter) / 4 - 0.5));
    out += fmt::format("set xtics ({})\n", ticks);
  }
  if (map.prompt > 0) {
    const double at = static_cast<double>(map.prompt) / static_cast<double>(grid.tokens_per_cell) - 0.5;
    out += fmt::format("set arrow from first {0}, graph 0 to first {0}, graph 1 nohead front lw 2 lc rgb '#d55e00'\nset label 'generated' at first {0}, graph 1.03 left tc rgb '#d55e00'\n", shortest(at));
  }
  const bool full = std::find(grid.full.begin(), grid.full.end(), true) != grid.full.end();
  return out + "plot $map matrix with image notitle, NaN with points pt 5 lc rgb '#0072b2' title 'processed', \\\n     NaN with points pt 5 lc rgb '#eceff2' title 'skipped'" +
         (full ? ", NaN with points pt 5 lc rgb '#c3cad3' title 'full block'\n" : "\n");
}

}  // namespace fathom
