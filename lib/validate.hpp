// Statistics of predicted against measured time over many items: what a claim of accuracy consists of.
//
// Everything here is a function of numbers: no clock, no machine. Errors are relative to the measurement, (predicted - measured) / measured.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fathom {

// One prediction that was graded.
struct GradedItem {
  double predicted = 0;
  double lo = 0, hi = 0;     // interval; hi <= lo: none was given
  double measured = 0;       // > 0
  double noise = 0;          // A/A spread of the measurement, relative
};

struct Accuracy {
  int count = 0;
  double mape = 0;           // mean |error|
  double median = 0, p90 = 0, worst = 0;   // of |error|; quantiles linear between order statistics
  double bias = 0;           // mean error, signed
  double geometric = 1;      // geometric mean of predicted / measured
  double log2 = 0;           // mean |log2(predicted / measured)|: does not favour low predictions as MAPE does
  double wape = 0;           // sum |predicted - measured| / sum measured
  double within_noise = 0;   // share of items whose |error| is at most their own noise
  int intervals = 0;         // items with an interval
  double coverage = 0;       // share of these whose interval holds the measurement
  double noise = 0;          // median A/A spread: no error below it means anything
};
// Items without a measurement or a prediction are an internal Error: the caller drops, lists and counts them.
Accuracy accuracy(std::span<const GradedItem> items);

// How well predictions order the items.
struct Ranking {
  int pairs = 0;
  int ties = 0;              // pairs whose measurements differ by less than their noise, or whose predictions are equal
  double tau = 0;            // Kendall tau-b, measured ties inside the noise band
  double chance = 0;         // standard deviation of tau under random order, without ties
  double regret = 0;         // measured time of the item predicted fastest / the fastest measured - 1
  double regret_of_three = 0;  // the same for the best of the three predicted fastest
};
// Two measurements tie when they differ by at most hypot(noise_a x a, noise_b x b). Fewer than two items: all zero.
Ranking ranking(std::span<const GradedItem> items);

// The noise gate: an item is noisy iff its A/A spread exceeds half the target of its class.
inline bool too_noisy(double noise, double target) { return noise > target / 2; }

}  // namespace fathom
