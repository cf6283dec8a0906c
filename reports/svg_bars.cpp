// Horizontal bars: grouped, or stacked with the parts labelled where they have room. Labels too long for the margin stand above their bars.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.hpp"
#include "reports/part_looks.hpp"
#include "reports/scale.hpp"
#include "reports/svg_canvas.hpp"
#include "reports/utf8.hpp"

namespace fathom {

std::string render_svg(const BarPlot& plot, const SvgOptions& options) {
  check_plot(plot);
  const double width = options.width;
  const std::vector<double> lengths = bar_lengths(plot);  // when stacked: one per category
  double label = 0;
  for (const std::string& category : plot.categories) label = std::max(label, text_width(category, 12));
  // On a phone the category stands above its bars; so it does where the margin would cut it.
  constexpr double kMargin = 240;
  const bool narrow = width < 500 || label > kMargin;
  const Scale scale = make_scale({plot.value_label, plot.unit, false}, lengths, width < 500 ? 3 : 6, true);

  const double left = narrow ? 14 : label + 22;
  double value_room = 0;
  for (const double length : lengths)
    value_room = std::max(value_room, text_width(format_value(length, plot.unit), 12));
  for (const std::string& shown : plot.shown) value_room = std::max(value_room, text_width(shown, 12));
  const double right = width - value_room - 16;
  const double bar = plot.stacked ? 26 : 18, gap = 14, head = narrow ? 18 : 0;
  const double group = plot.stacked ? bar : bar * static_cast<double>(plot.series.size());

  double y = plot.title.empty() ? 10 : 32;
  SvgCanvas* canvas = nullptr;
  // The legend's height decides where the bars start, so it is laid out before anything is drawn.
  std::vector<std::pair<double, double>> legend;
  if (plot.series.size() > 1) {
    double x = left;
    y += 10;
    for (const auto& series : plot.series) {
      const double need = 20 + text_width(series.name, 12) + 14;
      if (x > left && x + need > width - 10) {
        x = left;
        y += 18;
      }
      legend.emplace_back(x, y);
      x += need;
    }
    y += 12;
  }
  const double top = y;
  const double bottom = top + static_cast<double>(plot.categories.size()) * (group + gap + head) + 2;
  SvgCanvas drawing(width, bottom + 44, plot.title, options);
  canvas = &drawing;
  canvas->title(left, plot.title);
  for (std::size_t s = 0; s < legend.size(); ++s) {
    canvas->filled(legend[s].first, legend[s].second - 10, 12, 12, look_of(plot, s), "");
    canvas->text(legend[s].first + 18, legend[s].second, plot.series[s].name, "start");
  }
  const auto at_x = [&](double v) { return left + (right - left) * scale.position(v); };
  for (const Scale::Tick& tick : scale.ticks) {
    canvas->line(at_x(tick.value), top, at_x(tick.value), bottom, "g");
    canvas->text(at_x(tick.value), bottom + 16, tick.label, "middle");
  }
  canvas->line(at_x(0), top, at_x(0), bottom, "a");
  canvas->text((left + right) / 2, bottom + 36, scale.title, "middle", "d");

  for (std::size_t c = 0; c < plot.categories.size(); ++c) {
    y += gap / 2;
    if (narrow) {
      canvas->text(left + 4, y + 12, plot.categories[c], "start");  // clear of the axis
      y += head;
    } else {
      canvas->text(left - 8, y + group / 2 + 4, plot.categories[c], "end");
    }
    double sum = 0;
    for (std::size_t s = 0; s < plot.series.size(); ++s) {
      const double value = plot.series[s].values[c];
      const double from = plot.stacked ? sum : 0;
      const double row = plot.stacked ? y : y + bar * static_cast<double>(s);
      if (!plottable(value) || (plot.stacked && value < 0)) {
        if (!plot.stacked) canvas->text(at_x(0) + 4, row + bar / 2 + 4, "n/a", "start", "d");
        continue;
      }
      const double x1 = std::min(at_x(from), at_x(from + value)), x2 = std::max(at_x(from), at_x(from + value));
      const std::string shown = plot.shown.empty() ? format_value(value, plot.unit) : printable(plot.shown[c]);
      std::string hover = fmt::format("{}, {}: {}", plot.categories[c], plot.series[s].name, shown);
      if (plot.stacked && lengths[c] > 0)
        hover += fmt::format(" ({})", format_value(value / lengths[c], Unit::kPercent));
      canvas->filled(x1, row, x2 - x1, bar - (plot.stacked ? 0 : 2), look_of(plot, s), "seg", hover);
      if (!plot.stacked) {
        canvas->text(x2 + 5, row + bar / 2 + 3, shown, "start", "d");
      } else if (lengths[c] > 0) {
        const std::string share = fmt::format("{:.0f} %", 100 * value / lengths[c]);
        if (x2 - x1 > text_width(share, 12) + 8) canvas->text((x1 + x2) / 2, row + bar / 2 + 4, share, "middle", (look_hatched(look_of(plot, s)) ? "in halo " : "in ") + look_class(look_of(plot, s)));
      }
      sum += value;
    }
    if (plot.stacked) canvas->text(at_x(sum) + 6, y + bar / 2 + 4, format_value(sum, plot.unit), "start");
    y += group + gap / 2;
  }
  return drawing.finish();
}

}  // namespace fathom
