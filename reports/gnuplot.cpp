#include "reports/gnuplot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/json_writer.hpp"
#include "reports/scale.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

// A single-quoted gnuplot string; a quote inside is doubled.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : printable(text)) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + "'";
}

// Range, ticks and title of one axis, as the SVG renderer has them.
std::string axis(const char* name, const Scale& scale) {
  std::string ticks;
  for (const Scale::Tick& tick : scale.ticks) {
    ticks += (ticks.empty() ? "" : ", ") + quoted(tick.label) + " " + shortest(tick.value);
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
set key outside below
set linetype 1 lc rgb "#0072b2" pt 7
set linetype 2 lc rgb "#d55e00" pt 5
set linetype 3 lc rgb "#009e73" pt 9
set linetype 4 lc rgb "#b4568c" pt 13
set linetype 5 lc rgb "#c98a00" pt 2
set linetype 6 lc rgb "#56b4e9" pt 1
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
      add(fmt::format("{} using 1:2:3:4 with yerrorbars lt {} notitle", data, s % 6 + 1));
    }
    const char* style = series.line ? (series.markers ? "linespoints" : "lines") : "points";
    add(fmt::format("{} using 1:2 with {} lt {}{} title {}", data, style, s % 6 + 1,
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
  std::string parts;
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    parts += (parts.empty() ? "plot " : ", \\\n     ") + fmt::format("$data using {}{} lt {} title {}", s + 2,
                                                                     s == 0 ? ":xtic(1)" : "", s % 6 + 1,
                                                                     quoted(plot.series[s].name));
  }
  return out + parts + "\n";
}

}  // namespace fathom
