#include "lib/validate.hpp"

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"

namespace fathom {
namespace {

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

// -1, 0 or 1: the order of two measurements, 0 inside their noise.
int order(const GradedItem& a, const GradedItem& b) {
  const double band = std::hypot(a.noise * a.measured, b.noise * b.measured);
  const double difference = a.measured - b.measured;
  return std::abs(difference) <= band ? 0 : difference > 0 ? 1 : -1;
}

}  // namespace

Accuracy accuracy(std::span<const GradedItem> items) {
  Accuracy a;
  a.count = static_cast<int>(items.size());
  if (items.empty()) return a;
  std::vector<double> errors, noises;
  double off = 0, total = 0, logs = 0;
  int hits = 0, quiet = 0;
  const double n = static_cast<double>(items.size());
  for (const GradedItem& item : items) {
    if (!(item.measured > 0) || !(item.predicted > 0)) throw_internal("accuracy: an item without a prediction or a measurement");
    const double error = (item.predicted - item.measured) / item.measured;
    const double log = std::log(item.predicted / item.measured);
    errors.push_back(std::abs(error));
    noises.push_back(item.noise);
    a.mape += std::abs(error) / n;
    a.bias += error / n;
    a.log2 += std::abs(log) / std::log(2.0) / n;
    logs += log / n;
    off += std::abs(item.predicted - item.measured);
    total += item.measured;
    quiet += std::abs(error) <= item.noise;
    if (item.hi > item.lo) {
      ++a.intervals;
      hits += item.measured >= item.lo && item.measured <= item.hi;
    }
  }
  std::sort(errors.begin(), errors.end());
  std::sort(noises.begin(), noises.end());
  a.median = quantile(errors, 0.5);
  a.p90 = quantile(errors, 0.9);
  a.worst = errors.back();
  a.geometric = std::exp(logs);
  a.wape = off / total;
  a.within_noise = quiet / n;
  a.coverage = a.intervals > 0 ? static_cast<double>(hits) / a.intervals : 0;
  a.noise = quantile(noises, 0.5);
  return a;
}

Ranking ranking(std::span<const GradedItem> items) {
  Ranking r;
  const size_t n = items.size();
  if (n < 2) return r;
  double agree = 0, measured_ties = 0, predicted_ties = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      const int m = order(items[i], items[j]);
      const int p = (items[i].predicted > items[j].predicted) - (items[i].predicted < items[j].predicted);
      ++r.pairs;
      measured_ties += m == 0;
      predicted_ties += p == 0;
      r.ties += m == 0 || p == 0;
      agree += m * p;
    }
  }
  const double pairs = r.pairs;
  const double scale = std::sqrt((pairs - measured_ties) * (pairs - predicted_ties));
  r.tau = scale > 0 ? agree / scale : 0;
  const double count = static_cast<double>(n);
  r.chance = std::sqrt(2 * (2 * count + 5) / (9 * count * (count - 1)));
  std::vector<const GradedItem*> by_prediction;
  double best = items[0].measured;
  for (const GradedItem& item : items) {
    by_prediction.push_back(&item);
    best = std::min(best, item.measured);
  }
  std::stable_sort(by_prediction.begin(), by_prediction.end(), [](const GradedItem* a, const GradedItem* b) { return a->predicted < b->predicted; });
  r.regret = by_prediction[0]->measured / best - 1;
  double of_three = by_prediction[0]->measured;
  for (size_t i = 1; i < std::min<size_t>(3, n); ++i) of_three = std::min(of_three, by_prediction[i]->measured);
  r.regret_of_three = of_three / best - 1;
  return r;
}

}  // namespace fathom
