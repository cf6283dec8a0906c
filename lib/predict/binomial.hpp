// The number of rows a routed block executes, and the time of a step made of such blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/fraction.hpp"

namespace fathom {

// Bin(n; count, p) for n = 0 .. count; sums to 1 within 1e-12 up to count = 4096 and beyond (log space).
std::vector<double> binomial(std::int64_t count, double p);

// A time distribution on an even grid: mass[i] at origin + i * step.
struct TimeDistribution {
  double origin = 0;
  double step = 0;
  std::vector<double> mass = {1.0};

  double mean() const;
  // Smallest grid time whose cumulative mass is at least q.
  double quantile(double q) const;
};

// Sum of independent terms. Each term takes time[i] with probability[i]; it occurs `repeats` times. The grid is at most 1 % of the largest
// range of any term; a mass between grid points is split so that means stay exact.
struct RandomTerm {
  std::vector<double> time, probability;
  std::int64_t repeats = 1;
};
TimeDistribution sum_of_terms(double base, const std::vector<RandomTerm>& terms);

}  // namespace fathom
