// Which model ran faster than which, by how much, and how far that is known: "`mod-60m` ran 1.66 ± 0.02 times faster than `dense-60m`".
//
// The ratio is that of the medians of the end-to-end passes. Its error follows from the samples of both by propagation to first order: relative errors of
// independent quantities in a product or a quotient add in quadrature,
//   Δr / r = sqrt(u_a² + u_b²),
// u being how well a median is known (median_uncertainty). Twins are measured in turn, so that a drift of the machine is in both and the true error is smaller.
#pragma once

#include <string>
#include <vector>

#include "reports/record.hpp"

namespace fathom {

// How well the median of these figures is known, relative: the larger of the A/A noise (halves of the samples against each other) and 1.86 spread / sqrt(samples), which
// is two standard errors of a normal sample's median (spread: the interquartile range, 1.349 deviations; a median's error is 1.2533 deviations / sqrt(n)).
// NaN where nothing says.
double median_uncertainty(const Figures& figures);

// Whether a step of that A/A noise is too noisy to be graded: what is said of it is marked. False for NaN.
bool step_is_noisy(double noise);

// A ratio with its error to one digit (two where that digit is 1), "1.66 ± 0.02"; without an error three digits, "1.66".
std::string ratio_text(double ratio, double error);

// One sentence per pair of models: the fastest of those that were given the same job against each other one; over more than four jobs the extremes. Empty where
// nothing was measured, or one model alone.
std::vector<std::string> faster_sentences(const Record& record);

}  // namespace fathom
