#include "lib/predict/binomial.hpp"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

constexpr double kStepsPerTerm = 100;
constexpr double kMaxGrid = 1 << 16;
constexpr double kNegligible = 1e-13;  // mass

// Drops empty ends, so that convolution stays short.
void trim(TimeDistribution& d) {
  size_t first = 0, last = d.mass.size();
  while (last > first + 1 && d.mass[last - 1] < kNegligible) --last;
  while (first + 1 < last && d.mass[first] < kNegligible) ++first;
  d.mass = std::vector<double>(d.mass.begin() + static_cast<std::ptrdiff_t>(first), d.mass.begin() + static_cast<std::ptrdiff_t>(last));
  d.origin += static_cast<double>(first) * d.step;
}

TimeDistribution convolve(const TimeDistribution& a, const TimeDistribution& b) {
  TimeDistribution r{a.origin + b.origin, a.step, std::vector<double>(a.mass.size() + b.mass.size() - 1, 0.0)};
  for (size_t i = 0; i < a.mass.size(); ++i) {
    if (a.mass[i] == 0) continue;
    for (size_t j = 0; j < b.mass.size(); ++j) r.mass[i + j] += a.mass[i] * b.mass[j];
  }
  trim(r);
  return r;
}

}  // namespace

std::vector<double> binomial(std::int64_t count, double p) {
  std::vector<double> mass(static_cast<size_t>(count) + 1, 0.0);
  if (p <= 0 || count == 0) {
    mass[0] = 1;
    return mass;
  }
  if (p >= 1) {
    mass.back() = 1;
    return mass;
  }
  // From the mode outwards by the ratio of neighbours, then normalised: no cancellation, no overflow.
  const double n = static_cast<double>(count);
  const auto mode = static_cast<std::int64_t>(std::min(n, std::floor((n + 1) * p)));
  mass[static_cast<size_t>(mode)] = 1;
  for (std::int64_t i = mode; i < count; ++i)
    mass[static_cast<size_t>(i) + 1] = mass[static_cast<size_t>(i)] * (n - static_cast<double>(i)) / (static_cast<double>(i) + 1) * (p / (1 - p));
  for (std::int64_t i = mode; i > 0; --i)
    mass[static_cast<size_t>(i) - 1] = mass[static_cast<size_t>(i)] * static_cast<double>(i) / (n - static_cast<double>(i) + 1) * ((1 - p) / p);
  double sum = 0;
  for (const double m : mass) sum += m;
  for (double& m : mass) m /= sum;
  return mass;
}

double TimeDistribution::mean() const {
  double sum = 0, weight = 0;
  for (size_t i = 0; i < mass.size(); ++i) {
    sum += mass[i] * static_cast<double>(i);
    weight += mass[i];
  }
  return origin + step * (weight > 0 ? sum / weight : 0);
}

double TimeDistribution::quantile(double q) const {
  double total = 0;
  for (const double m : mass) total += m;
  double below = 0;
  for (size_t i = 0; i < mass.size(); ++i) {
    below += mass[i];
    if (below >= q * total * (1 - 1e-12)) return origin + step * static_cast<double>(i);
  }
  return origin + step * static_cast<double>(mass.size() - 1);
}

TimeDistribution sum_of_terms(double base, const std::vector<RandomTerm>& terms) {
  double widest = 0, whole = 0;
  for (const RandomTerm& t : terms) {
    const auto [low, high] = std::minmax_element(t.time.begin(), t.time.end());
    widest = std::max(widest, *high - *low);
    whole += (*high - *low) * static_cast<double>(t.repeats);
  }
  TimeDistribution result;
  result.origin = base;
  if (!(widest > 0)) {
    for (const RandomTerm& t : terms) result.origin += t.time.front() * static_cast<double>(t.repeats);
    return result;
  }
  result.step = std::max(widest / kStepsPerTerm, whole / kMaxGrid);
  for (const RandomTerm& t : terms) {
    const double low = *std::min_element(t.time.begin(), t.time.end());
    const double high = *std::max_element(t.time.begin(), t.time.end());
    TimeDistribution one{low, result.step, std::vector<double>(static_cast<size_t>((high - low) / result.step) + 2, 0.0)};
    for (size_t i = 0; i < t.time.size(); ++i) {
      const double at = (t.time[i] - low) / result.step;
      const auto cell = static_cast<size_t>(at);
      const double above = at - static_cast<double>(cell);
      one.mass[cell] += t.probability[i] * (1 - above);
      one.mass[cell + 1] += t.probability[i] * above;
    }
    trim(one);
    for (std::int64_t left = t.repeats; left > 0; left /= 2) {  // powers by squaring
      if (left % 2 == 1) result = convolve(result, one);
      if (left > 1) one = convolve(one, one);
    }
  }
  return result;
}

}  // namespace fathom
