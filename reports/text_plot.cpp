// Plots on a terminal: bars, a character grid for scatters and lines, and the routing map.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.hpp"
#include "reports/part_looks.hpp"
#include "reports/routing_grid.hpp"
#include "reports/scale.hpp"
#include "reports/text.hpp"
#include "reports/text_style.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// One fill per series, told apart without colour.
std::string fill(const BarPlot& plot, std::size_t series, const TextOptions& options) { return std::string(look_fill(look_of(plot, series), options.unicode)); }

std::string titled(const std::string& title, const TextOptions& options) {
  std::string out;
  if (title.empty()) return out;
  for (const std::string& line : wrap(printable(title), std::max(options.width, 20))) out += bold(line, options) + "\n";
  return out;
}

std::string captioned(const std::string& caption, const TextOptions& options) {
  std::string out;
  if (caption.empty()) return out;
  for (const std::string& line : wrap(without_ticks(printable(caption)), std::max(options.width, 20)))
    out += dim(line, options) + "\n";
  return out;
}

std::string legend(const BarPlot& plot, const TextOptions& options) {
  std::vector<std::string> items;
  for (std::size_t s = 0; s < plot.series.size(); ++s)
    items.push_back(fill(plot, s, options) + " " + printable(plot.series[s].name));
  std::string out;
  for (const std::string& line : wrap_items(items, std::max(options.width, 20))) out += line + "\n";
  return out;
}

}  // namespace

std::string render_text(const BarPlot& plot, const TextOptions& options) {
  check_plot(plot);
  const int width = std::max(options.width, 20);
  int label_width = 0;
  for (const std::string& category : plot.categories)
    label_width = std::max(label_width, display_width(printable(category)));
  double largest = 0;
  int value_width = 0;
  for (const double length : bar_lengths(plot)) {
    largest = std::max(largest, length);
    value_width = std::max(value_width, display_width(format_value(length, plot.unit)));
  }
  for (const std::string& shown : plot.shown) value_width = std::max(value_width, display_width(printable(shown)));
  // A label that leaves little room stands on a line of its own above its bar: cut short it would name another configuration.
  constexpr int kLeastBar = 10, kIndent = 2;
  const bool above = label_width > width / 2 || width - label_width - value_width - 3 < kLeastBar;
  const int margin = above ? kIndent : label_width;
  const int room = std::max(width - margin - value_width - 3, 4);
  const auto cells = [&](double value) {
    return largest > 0 ? static_cast<int>(std::lround(std::clamp(value / largest, 0.0, 1.0) * room)) : 0;
  };
  // Bars have no axis here: what the numbers beside them are stands behind the title, unless their unit says it.
  const bool told = plot.title.empty() || plot.value_label.empty() || plot.unit == Unit::kSeconds;
  std::string out = titled(told ? plot.title : plot.title + ": " + plot.value_label, options);
  for (std::size_t c = 0; c < plot.categories.size(); ++c) {
    if (above)
      for (const std::string& line : wrap(printable(plot.categories[c]), width)) out += line + "\n";
    const std::string label = pad_right(above ? "" : printable(plot.categories[c]), margin);
    if (plot.stacked) {
      double sum = 0;
      std::string bar;
      int drawn = 0;
      for (std::size_t s = 0; s < plot.series.size(); ++s) {
        if (!(plot.series[s].values[c] > 0) || !plottable(plot.series[s].values[c])) continue;
        sum += plot.series[s].values[c];
        const int until = cells(sum);  // cumulative, so that rounding errors do not add up
        bar += repeat(fill(plot, s, options), until - drawn);
        drawn = until;
      }
      out += label + " " + bar + " " + format_value(sum, plot.unit) + "\n";
      continue;
    }
    for (std::size_t s = 0; s < plot.series.size(); ++s) {
      const double value = plot.series[s].values[c];
      out += (s == 0 ? label : std::string(static_cast<std::size_t>(margin), ' ')) + " ";
      out += plottable(value)
                 ? repeat(fill(plot, s, options), std::max(cells(value), 0)) + " " + (plot.shown.empty() ? format_value(value, plot.unit) : printable(plot.shown[c]))
                 : "n/a";
      out += "\n";
    }
  }
  if (plot.series.size() > 1) out += legend(plot, options);
  return out + captioned(plot.caption, options);
}

std::string render_text(const XyPlot& plot, const TextOptions& options) {
  const int width = std::max(options.width, 20);
  std::vector<double> xs, ys;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  if (plot.ideal_line) {  // both axes cover both ranges, or the line would not be a diagonal
    xs.insert(xs.end(), ys.begin(), ys.end());
    ys = xs;
  }
  const int rows = width >= 70 ? 16 : 10;
  const Scale x = make_scale(plot.x, xs, std::max(2, width / 18)), y = make_scale(plot.y, ys, 4);
  int margin = 0;
  for (const Scale::Tick& tick : y.ticks) margin = std::max(margin, display_width(tick.label));
  const int columns = std::max(width - margin - 2, 8);
  std::vector<std::vector<std::string>> grid(static_cast<std::size_t>(rows),
                                             std::vector<std::string>(static_cast<std::size_t>(columns), " "));
  const auto put = [&](double px, double py, const std::string& mark, bool over) {
    if (!x.drawable(px) || !y.drawable(py)) return;
    const long column = std::lround(x.position(px) * (columns - 1)),
               row = std::lround((1 - y.position(py)) * (rows - 1));
    if (column < 0 || column >= columns || row < 0 || row >= rows) return;
    std::string& cell = grid[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
    if (over || cell == " ") cell = mark;
  };
  const auto between = [&](double lo, double hi, double t) {
    return x.log ? lo * std::pow(hi / lo, t) : lo + (hi - lo) * t;
  };
  if (plot.ideal_line) {
    for (int i = 0; i < columns; ++i) {
      const double v = between(x.lo, x.hi, i / double(columns - 1));
      put(v, v, options.unicode ? "·" : ".", false);
    }
  }
  std::vector<std::string> names;
  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    static constexpr const char* kMarks[] = {"o", "x", "+", "*", "@", "%", "#", "&"};
    const PlotSeries& series = plot.series[s];
    const std::string mark = kMarks[s % 8];
    if (series.line) {
      for (std::size_t i = 1; i < series.points.size(); ++i) {
        const PlotPoint &a = series.points[i - 1], &b = series.points[i];
        if (!x.drawable(a.x) || !x.drawable(b.x) || !y.drawable(a.y) || !y.drawable(b.y)) continue;
        for (int k = 0; k <= columns; ++k) {
          const double t = k / double(columns);
          put(x.log ? a.x * std::pow(b.x / a.x, t) : a.x + (b.x - a.x) * t,
              y.log ? a.y * std::pow(b.y / a.y, t) : a.y + (b.y - a.y) * t, options.unicode ? "·" : ".", false);
        }
      }
    }
    if (series.markers || !series.line) {
      for (const PlotPoint& point : series.points) put(point.x, point.y, mark, true);
    }
    names.push_back(mark + " " + printable(series.name));
  }
  std::string out = titled(plot.title, options) + clip_middle(y.title, width) + "\n";
  for (int r = 0; r < rows; ++r) {
    std::string label;
    for (const Scale::Tick& tick : y.ticks) {
      if (std::lround((1 - y.position(tick.value)) * (rows - 1)) == r) label = tick.label;
    }
    std::string line = pad_left(label, margin) + (options.unicode ? " │" : " |");
    for (const std::string& cell : grid[static_cast<std::size_t>(r)]) line += cell;
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  out += std::string(static_cast<std::size_t>(margin), ' ') + (options.unicode ? " └" : " +") +
         repeat(options.unicode ? "─" : "-", columns) + "\n";
  std::string ticks(static_cast<std::size_t>(width), ' ');
  int free_from = 0;
  for (const Scale::Tick& tick : x.ticks) {
    const int size = display_width(tick.label);
    if (size > width) continue;
    const int centre = margin + 2 + static_cast<int>(std::lround(x.position(tick.value) * (columns - 1)));
    const int start = std::clamp(centre - size / 2, 0, width - size);
    if (start < free_from) continue;
    ticks.replace(static_cast<std::size_t>(start), tick.label.size(), tick.label);  // tick labels are ASCII
    free_from = start + size + 1;
  }
  ticks.erase(ticks.find_last_not_of(' ') + 1);
  out += ticks + "\n";
  out += pad_left(clip_middle(x.title, width), std::min(width, margin + 2 + (columns + display_width(x.title)) / 2)) +
         "\n";
  for (const std::string& line : wrap_items(names, width)) out += line + "\n";
  return out + captioned(plot.caption, options);
}

std::string render_text(const RoutingMap& map, const TextOptions& options) {
  check_plot(map);
  const int width = std::max(options.width, 20);
  int label_width = 0;
  for (const std::string& block : map.blocks) label_width = std::max(label_width, display_width(printable(block)));
  label_width = std::min(label_width, width / 3);
  std::string out = titled(map.title, options);
  const bool unicode = options.unicode;
  bool any_full = false;
  for (const RoutingMap::Frame& frame : map.frames) {
    const RoutingGrid grid = bucket(frame, static_cast<std::size_t>(std::max(width - label_width - 8, 4)));
    any_full = any_full || std::find(grid.full.begin(), grid.full.end(), true) != grid.full.end();
    if (!frame.label.empty()) out += printable(frame.label) + "\n";
    for (std::size_t b = map.blocks.size(); b-- > 0;) {
      std::string line = pad_right(clip_middle(printable(map.blocks[b]), label_width), label_width) + " ";
      for (const double share : grid.shares[b]) {
        if (grid.full[b]) {
          line += unicode ? "═" : "=";
        } else if (grid.tokens_per_cell == 1) {
          line += share > 0 ? (unicode ? "█" : "#") : (unicode ? "·" : ".");
        } else {
          static constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
          static constexpr const char* kDigits[] = {".", "1", "2", "3", "#"};
          const auto level =
              static_cast<std::size_t>(share <= 0 ? 0 : std::min(4, 1 + static_cast<int>(share * 3.999)));
          line += unicode ? kShades[level] : kDigits[level];
        }
      }
      out +=
          line + " " + pad_left(grid.full[b] ? "full" : format_value(grid.participation[b], Unit::kPercent), 6) + "\n";
    }
    if (map.prompt > 0) {
      const std::size_t at = static_cast<std::size_t>(label_width) + 1 + map.prompt / grid.tokens_per_cell;
      out += std::string(at, ' ') + (unicode ? "▲" : "^") + "\n";
    }
    if (grid.tokens_per_cell > 1) {
      for (const std::string& line :
           wrap(fmt::format("one character is {} tokens; darker: more of them processed", grid.tokens_per_cell),
                width)) {
        out += dim(line, options) + "\n";
      }
    }
  }
  std::vector<std::string> key = unicode ? std::vector<std::string>{"█ processed", "· skipped"} : std::vector<std::string>{"# processed", ". skipped"};
  if (any_full) key.emplace_back(unicode ? "═ full block (not routed)" : "= full block (not routed)");
  if (map.prompt > 0) key.push_back(fmt::format("{} from token {} on: generated", unicode ? "▲" : "^", map.prompt));
  for (const std::string& line : wrap_items(key, width)) out += line + "\n";
  return out + captioned(map.caption, options);
}

}  // namespace fathom
