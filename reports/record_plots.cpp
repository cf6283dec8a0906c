#include "reports/record_plots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "reports/part_looks.hpp"

namespace fathom {
namespace {

constexpr std::size_t kShown = 8;  // more parts than that, and the smallest are summed up as "other"

std::string words_of(const Figures& figures, const char* key) {
  const Cell* cell = figures.find(key);
  return cell && cell->words() ? *cell->words() : std::string();
}

// Models that occur in several scenarios are told apart by what differs.
std::string series_name(const Record& record, const Result& result) {
  std::string name = result.model;
  for (const char* key : {"record", "phase", "batch", "seq", "context"}) {
    const Cell* cell = result.scenario.find(key);
    const bool differs = std::any_of(record.results.begin(), record.results.end(), [&](const Result& other) {
      const Cell* each = other.scenario.find(key);
      return other.model == result.model && (!each != !cell || (cell && (cell->words() ? *cell->words() != words_of(other.scenario, key) : cell->value() != each->value())));
    });
    if (differs && cell) name += cell->words() ? ", " + *cell->words() : fmt::format(", {} {:.0f}", key, cell->value());
  }
  return name;
}

void add_scatter(Document& document, const Record& record) {
  XyPlot plot;
  plot.key = "predicted-measured";
  plot.title = "Predicted against measured, per op";
  plot.x = {"measured time", Unit::kSeconds, true};
  plot.y = {"predicted time", Unit::kSeconds, true};
  plot.ideal_line = true;
  plot.ideal_band = 0.25;
  for (const Result& result : record.results) {
    PlotSeries series;
    series.name = series_name(record, result);
    series.line = false;
    for (const Figures& op : result.ops)
      if (op.number("measured_s") > 0 && op.number("predicted_s") > 0) series.points.push_back({op.number("measured_s"), op.number("predicted_s"), {}, {}, words_of(op, "path")});
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  if (!plot.series.empty()) document.add(std::move(plot));
}

// FLOP rate over FLOP per byte, under the ceilings of the machine. Measured where there is a measurement, else predicted.
void add_roofline(Document& document, const Record& record) {
  XyPlot plot;
  plot.key = "roofline";
  plot.title = "Roofline: matrix ops under the machine's ceilings";
  plot.x = {"arithmetic intensity", Unit::kIntensity, true};
  plot.y = {"rate", Unit::kFlopRate, true};
  double peak = 0, bandwidth = 0, low = INFINITY, high = 0;
  bool measured = false;
  for (const Result& result : record.results) {
    peak = std::max(peak, result.totals.number("peak_flops_per_s") > 0 ? result.totals.number("peak_flops_per_s") : 0);
    bandwidth = std::max(bandwidth, result.totals.number("peak_bytes_per_s") > 0 ? result.totals.number("peak_bytes_per_s") : 0);
    PlotSeries series;
    series.name = series_name(record, result);
    series.line = false;
    for (const Figures& op : result.ops) {
      const double flops = op.number("flops_matmul"), bytes = op.number("bytes_read") + op.number("bytes_written");
      const bool ran = op.number("measured_s") > 0;
      const double seconds = ran ? op.number("measured_s") : op.number("predicted_s");
      if (!(flops > 0) || !(bytes > 0) || !(seconds > 0)) continue;
      measured = measured || ran;
      const double rate = ran && op.number("achieved_flops_per_s") > 0 ? op.number("achieved_flops_per_s") : flops / seconds;
      series.points.push_back({flops / bytes, rate, {}, {}, words_of(op, "path")});
      low = std::min(low, flops / bytes);
      high = std::max(high, flops / bytes);
    }
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  if (plot.series.empty() || !(peak > 0) || !(bandwidth > 0)) return;
  const double ridge = peak / bandwidth;
  PlotSeries roof;
  roof.name = "ceiling: memory, then compute";
  roof.markers = false;
  low = std::min(low, ridge) / 2;
  high = std::max(high, ridge) * 2;
  for (double x : {low, ridge, high}) roof.points.push_back({x, std::min(peak, bandwidth * x), {}, {}, ""});
  plot.series.push_back(std::move(roof));
  plot.caption = fmt::format("Rates are {}. The slope is main memory: an op whose operands stay in a cache may lie above it. Ops without matrix products are not shown.", measured ? "measured" : "predicted");
  document.add(std::move(plot));
}

void add_bars(Document& document, const Record& record) {
  BarPlot plot;
  plot.key = "where-the-time-goes";
  plot.title = "Where the time goes";
  plot.value_label = "time";
  plot.unit = Unit::kSeconds;
  plot.stacked = true;
  std::vector<std::string> parts;  // in the order of the list
  std::map<std::string, double> weight;
  std::vector<std::map<std::string, double>> sums;
  bool normalised = false;
  for (const Result& result : record.results)
    for (const char* which : {"predicted", "measured"}) {
      const std::string key = std::string(which) + "_s";
      std::map<std::string, double> sum;
      for (const Figures& op : result.ops) {
        const std::string part = part_of(op);
        if (part.empty() || !(op.number(key) > 0)) continue;
        if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
        sum[part] += op.number(key);
        weight[part] += op.number(key);
      }
      if (sum.empty()) continue;
      const bool one_by_one = key == "measured_s" && result.totals.number("normalised_s") > 0;
      plot.categories.push_back(series_name(record, result) + ", " + which + (one_by_one ? ", op by op" : ""));
      sums.push_back(std::move(sum));
      normalised = normalised || one_by_one;
    }
  if (plot.categories.empty()) return;
  if (normalised)
    plot.caption = "Bars are sums of ops. Measured op by op they were timed one at a time and scaled to one state of the machine: that is the `normalised` time, not `measured`, which is the step end to end. "
                   "Predicted bars are of ops timed in that way.";
  std::set<std::string> shown(parts.begin(), parts.end());
  while (shown.size() > (shown.size() == parts.size() ? kShown : kShown - 1))
    shown.erase(std::min_element(shown.begin(), shown.end(), [&](const std::string& a, const std::string& b) { return weight[a] < weight[b]; }));
  for (const std::string& part : parts)
    if (shown.count(part) > 0) plot.series.push_back({part, {}, part_look(part)});
  if (shown.size() < parts.size()) plot.series.push_back({"other", {}, kOtherLook});
  for (const auto& sum : sums)
    for (BarPlot::Series& series : plot.series) {
      double value = 0;
      for (const auto& [part, seconds] : sum)
        if (part == series.name || (series.name == "other" && shown.count(part) == 0)) value += seconds;
      series.values.push_back(value);
    }
  document.add(std::move(plot));
}

// Decode steps of one model at several batch sizes (else contexts).
void add_decode(Document& document, const Record& record) {
  for (const char* axis : {"batch", "context"}) {
    std::map<std::string, std::vector<const Result*>> by_model;
    std::vector<std::string> order;
    for (const Result& result : record.results) {
      if (words_of(result.scenario, "phase") != "decode") continue;
      if (by_model[result.model].empty()) order.push_back(result.model);
      by_model[result.model].push_back(&result);
    }
    XyPlot plot;
    plot.key = std::string("decode-") + axis;
    plot.title = fmt::format("Decode latency against {}", axis);
    plot.x = {std::string(axis) == "batch" ? "batch" : "context", Unit::kCount, true};
    plot.y = {"time per step", Unit::kSeconds, true};
    for (const std::string& model : order) {
      const std::vector<const Result*>& results = by_model[model];
      std::set<double> values;
      for (const Result* result : results) values.insert(result->scenario.number(axis));
      if (values.size() < 2 || values.size() != results.size()) continue;
      for (const char* which : {"predicted", "measured"}) {
        PlotSeries series;
        series.name = model + ", " + which;
        series.dashed = std::string(which) == "predicted";
        for (const Result* result : results) {
          const double y = result->totals.number(std::string(which) + "_s");
          if (!(y > 0)) continue;
          PlotPoint point{result->scenario.number(axis), y, {}, {}, model};
          const double lo = result->totals.number("predicted_lo_s"), hi = result->totals.number("predicted_hi_s");
          if (series.dashed && lo > 0 && hi > lo) point.y_lo = lo, point.y_hi = hi;
          series.points.push_back(std::move(point));
        }
        std::sort(series.points.begin(), series.points.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
        if (!series.points.empty()) plot.series.push_back(std::move(series));
      }
    }
    if (!plot.series.empty()) document.add(std::move(plot));
  }
}

}  // namespace

std::string part_of(const Figures& op) { return words_of(op, "part"); }

void add_record_plots(Document& document, const Record& record) {
  add_decode(document, record);
  add_scatter(document, record);
  add_roofline(document, record);
  add_bars(document, record);
  add_record_routing(document, record);
}

void add_record_routing(Document& document, const Record& record) {
  int index = 0;
  for (const Result& result : record.results) {
    if (result.routing.empty()) continue;
    add_routing(document, result.routing, series_name(record, result), index == 0 ? "" : fmt::format("-{}", index + 1));
    ++index;
  }
}

}  // namespace fathom
