#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/measure.hpp"

namespace fathom {
namespace {

double quantile_of(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (at - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

// SplitMix64.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

double Samples::quantile(double q) const {
  std::vector<double> sorted = values;
  return quantile_of(sorted, q);
}

double Samples::mean() const {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Samples::min() const { return values.empty() ? 0 : *std::min_element(values.begin(), values.end()); }

double halves_spread(std::span<const double> values, std::uint64_t seed) {
  constexpr int kSplits = 64;
  if (values.size() < 2) return 0;
  std::vector<double> shuffled(values.begin(), values.end());
  std::vector<double> spreads;
  const size_t half = shuffled.size() / 2;
  for (int s = 0; s < kSplits; ++s) {
    for (size_t i = shuffled.size() - 1; i > 0; --i) std::swap(shuffled[i], shuffled[next(seed) % (i + 1)]);
    std::vector<double> a(shuffled.begin(), shuffled.begin() + static_cast<std::ptrdiff_t>(half));
    std::vector<double> b(shuffled.begin() + static_cast<std::ptrdiff_t>(half), shuffled.end());
    const double first = quantile_of(a, 0.5), second = quantile_of(b, 0.5);
    if (second > 0) spreads.push_back(std::abs(first / second - 1));
  }
  return quantile_of(spreads, 0.9);
}

std::string_view status_name(MeasureStatus status) {
  switch (status) {
    case MeasureStatus::kOk: return "ok";
    case MeasureStatus::kTooShort: return "too-short";
    case MeasureStatus::kDisturbed: return "disturbed";
    case MeasureStatus::kNotRun: return "not-run";
  }
  return "?";
}

}  // namespace fathom
