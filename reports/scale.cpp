#include "reports/scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.hpp"

namespace fathom {
namespace {

// The nearest of 1, 2, 5 x 10^k at or above `step`.
double nice_step(double step) {
  const double decade = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    if (step <= factor * decade * (1 + 1e-9)) return factor * decade;
  }
  return 10 * decade;
}

// "0.25", "40": as few decimals as show every tick exactly.
std::string plain(double value, double step) {
  if (std::fabs(value) >= 1e7 || step < 1e-7) return fmt::format("{:.4g}", value);
  int decimals = 0;
  while (decimals < 9 &&
         std::fabs(step * std::pow(10.0, decimals) - std::round(step * std::pow(10.0, decimals))) > 1e-6)
    ++decimals;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  return text == "-0" ? "0" : text;
}

std::string tick_with_unit(double value, Unit unit) {
  if (unit == Unit::kPercent || unit == Unit::kSignedPercent) return fmt::format("{:g} %", value * 100);
  const SiPrefix prefix = prefix_for(value, unit);
  const std::string symbol = prefix.symbol + std::string(unit == Unit::kIntensity ? "" : unit_symbol(unit));
  if (unit == Unit::kCount && value < 10000) return fmt::format("{:g}", value);
  return fmt::format("{:g}{}{}", value / std::pow(10.0, prefix.exponent), symbol.empty() ? "" : " ", symbol);
}

void linear(Scale& scale, const PlotAxis& axis, int wanted, bool from_zero) {
  if (from_zero) {
    scale.lo = std::min(scale.lo, 0.0);
    scale.hi = std::max(scale.hi, 0.0);
  }
  // No range, or one too small to number its ticks: widen it around the value.
  if (scale.hi - scale.lo <= 1e-9 * std::max(std::fabs(scale.lo), std::fabs(scale.hi)) ||
      scale.hi - scale.lo < 1e-290) {
    const double size = std::max(std::fabs(scale.lo), std::fabs(scale.hi));
    const double pad = size < 1e-290 ? 1 : size / 2;
    scale.hi += pad;
    if (!from_zero || scale.lo < 0) scale.lo -= pad;
  }
  const double step = nice_step((scale.hi - scale.lo) / std::max(wanted, 1));
  scale.lo = std::floor(scale.lo / step + 1e-9) * step;
  scale.hi = std::ceil(scale.hi / step - 1e-9) * step;
  const SiPrefix prefix = prefix_for(std::max(std::fabs(scale.lo), std::fabs(scale.hi)), axis.unit);
  const bool percent = axis.unit == Unit::kPercent || axis.unit == Unit::kSignedPercent;
  const double divisor = percent ? 0.01 : std::pow(10.0, prefix.exponent);
  const int count = static_cast<int>(std::round((scale.hi - scale.lo) / step));
  for (int i = 0; i <= count; ++i) {
    const double value = scale.lo + i * step;
    scale.ticks.push_back({value, plain(value / divisor, step / divisor)});
  }
  const std::string symbol = prefix.symbol + std::string(unit_symbol(axis.unit));
  scale.title = axis.label + (symbol.empty() ? "" : " (" + symbol + ")");
}

// Round values from one step below the data to one above: powers of two, or factors of each decade.
std::vector<double> log_candidates(double lo, double hi, const std::vector<double>& factors, bool base_two) {
  std::vector<double> values;
  if (base_two) {
    for (int e = static_cast<int>(std::floor(std::log2(lo))) - 1; e <= std::ceil(std::log2(hi)) + 1; ++e)
      values.push_back(std::exp2(e));
    return values;
  }
  const int first = static_cast<int>(std::floor(std::log10(lo) + 1e-9)) - 1;
  const int last = static_cast<int>(std::ceil(std::log10(hi) - 1e-9)) + 1;
  for (int e = first; e <= last; ++e) {
    for (const double f : factors) values.push_back(f * std::pow(10.0, e));
  }
  return values;
}

// The candidates between the last at or below the data and the first at or above it.
std::vector<double> covering(const std::vector<double>& candidates, double lo, double hi) {
  std::size_t first = 0, last = candidates.size() - 1;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i] <= lo * (1 + 1e-9)) first = i;
  }
  for (std::size_t i = candidates.size(); i-- > 0;) {
    if (candidates[i] >= hi * (1 - 1e-9)) last = i;
  }
  if (first == last) {  // a single value: one step on either side
    first -= first > 0 ? 1 : 0;
    last += last + 1 < candidates.size() ? 1 : 0;
  }
  return {candidates.begin() + static_cast<std::ptrdiff_t>(first),
          candidates.begin() + static_cast<std::ptrdiff_t>(last) + 1};
}

void logarithmic(Scale& scale, const PlotAxis& axis, int wanted, bool base_two) {
  static const std::vector<std::vector<double>> kFactors{{1, 1.5, 2, 3, 4, 5, 6, 8}, {1, 2, 5}, {1, 3}, {1}};
  std::vector<double> ticks;
  for (const auto& factors : kFactors) {  // the finest that is not crowded
    ticks = covering(log_candidates(scale.lo, scale.hi, factors, base_two), scale.lo, scale.hi);
    if (base_two || static_cast<int>(ticks.size()) <= wanted + 1) break;
  }
  scale.lo = ticks.front();
  scale.hi = ticks.back();
  const auto room = static_cast<std::size_t>(wanted + 1);
  const std::size_t stride = std::max<std::size_t>(1, (ticks.size() + room - 1) / room);
  for (std::size_t i = 0; i < ticks.size(); i += stride)
    scale.ticks.push_back({ticks[i], tick_with_unit(ticks[i], axis.unit)});
  scale.title = axis.label + (axis.unit == Unit::kIntensity ? " (FLOP/B)" : "");
}

bool is_power_of_two(double value) {
  int exponent = 0;
  return value > 0 && std::frexp(value, &exponent) == 0.5;
}

}  // namespace

double Scale::position(double value) const {
  if (log) return std::log(value / lo) / std::log(hi / lo);
  return (value - lo) / (hi - lo);
}

bool Scale::drawable(double value) const {
  return plottable(value) && (!log || value > 1e-290);
}

Scale make_scale(const PlotAxis& axis, const std::vector<double>& values, int wanted, bool from_zero) {
  Scale scale;
  scale.log = axis.log;
  bool any = false, base_two = axis.unit == Unit::kCount;  // batch sizes and lengths: 1, 2, 4, ...
  for (const double value : values) {
    if (!scale.drawable(value)) continue;
    scale.lo = any ? std::min(scale.lo, value) : value;
    scale.hi = any ? std::max(scale.hi, value) : value;
    any = true;
    base_two = base_two && is_power_of_two(value);
  }
  if (!any) {
    scale.lo = axis.log ? 1 : 0;
    scale.hi = axis.log ? 10 : 1;
  }
  if (axis.log) {
    logarithmic(scale, axis, std::max(wanted, 2), base_two);
  } else {
    // A linear axis starts at zero unless that would waste most of it.
    linear(scale, axis, wanted, from_zero || (scale.lo > 0 && scale.lo < 0.6 * scale.hi));
  }
  return scale;
}

}  // namespace fathom
