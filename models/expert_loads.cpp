#include "models/expert_loads.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "lib/error.hpp"

namespace fathom {

std::vector<ExpertLoad> expert_loads(const MoeConfig& moe) {
  const double picks = static_cast<double>(std::min(moe.picks, moe.experts)) * (1 - moe.noop_share.value());
  if (moe.skew == 0 && moe.loads.empty()) return {{picks / static_cast<double>(moe.experts), moe.experts}};
  std::vector<double> weights = moe.loads;
  if (weights.empty()) {
    weights.resize(static_cast<size_t>(moe.experts));
    for (size_t e = 0; e < weights.size(); ++e) weights[e] = std::pow(static_cast<double>(e + 1), -moe.skew);
  }
  std::sort(weights.begin(), weights.end(), std::greater<>());
  // Sums of the smallest, from the small end: differences would lose every digit where few experts get nearly everything.
  std::vector<double> tail(weights.size() + 1, 0.0);
  for (size_t e = weights.size(); e > 0; --e) tail[e - 1] = tail[e] + weights[e - 1];
  // The largest are full (p = 1) until the rest can share what is left in proportion.
  size_t full = 0;
  while (full < weights.size() && weights[full] > 0 && (picks - static_cast<double>(full)) * weights[full] >= tail[full]) ++full;
  std::vector<ExpertLoad> result;
  const double left = std::max(0.0, picks - static_cast<double>(full)), rest = tail[full];
  for (size_t e = 0; e < weights.size(); ++e) {
    const double chance = e < full ? 1.0 : rest > 0 ? std::min(1.0, left * weights[e] / rest) : 0.0;
    if (!result.empty() && result.back().chance == chance)
      ++result.back().experts;
    else
      result.push_back({chance, 1});
  }
  return result;
}

std::int64_t expert_slots(const MoeConfig& moe, std::int64_t tokens) {
  if (tokens == 0) return 0;
  std::int64_t den = 0, choices = 0;
  if (__builtin_mul_overflow(moe.capacity->den, moe.experts, &den)) throw_input("the capacity factor's denominator is too large", {"", 0, "expert_capacity"});
  if (__builtin_mul_overflow(tokens, moe.picks, &choices)) throw_input("tokens x picks is too large", {"", 0, "picks"});
  return std::max<std::int64_t>(1, make_fraction(moe.capacity->num, den).of(choices, moe.capacity_rounding));
}

double expected_distinct(const std::vector<ExpertLoad>& loads, std::int64_t tokens, double taken) {
  double sum = 0;
  for (const ExpertLoad& load : loads) {
    const double p = load.chance * taken;
    // -expm1(T log1p(-p)) keeps digits when p T is tiny.
    sum += static_cast<double>(load.experts) * (tokens <= 0 ? 0.0 : p >= 1 ? 1.0 : -std::expm1(static_cast<double>(tokens) * std::log1p(-p)));
  }
  return sum;
}

double expected_kept(const std::vector<ExpertLoad>& loads, std::int64_t tokens, double taken, std::int64_t slots) {
  double sum = 0;
  for (const ExpertLoad& load : loads) sum += static_cast<double>(load.experts) * expected_min(tokens, load.chance * taken, slots);
  return sum;
}

double expected_min(std::int64_t trials, double p, std::int64_t slots) {
  if (slots >= trials || p <= 0) return static_cast<double>(trials) * std::max(0.0, p);
  if (p >= 1) return static_cast<double>(slots);
  const double n = static_cast<double>(trials), mean = n * p, reach = 12 * std::sqrt(mean * (1 - p)) + 60;
  // Beyond `reach` of the mean there is less than 1e-20 of the distribution.
  if (static_cast<double>(slots) >= mean + reach) return mean;
  if (static_cast<double>(slots) <= mean - reach) return static_cast<double>(slots);
  // slots - E[(slots - n)+], summed upwards from where the masses begin.
  const auto first = static_cast<std::int64_t>(std::max(0.0, std::floor(mean - reach)));
  const double k = static_cast<double>(first);
  double mass = std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) + (n - k) * std::log1p(-p));
  const double odds = p / (1 - p);
  double missing = 0;
  for (std::int64_t j = first; j < slots; ++j) {
    missing += static_cast<double>(slots - j) * mass;
    mass *= static_cast<double>(trials - j) / static_cast<double>(j + 1) * odds;
  }
  return std::min(mean, static_cast<double>(slots) - missing);
}

}  // namespace fathom
