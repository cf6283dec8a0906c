// Totals of networks that differ in one size alone, in even steps of it.
//
// Cost rules multiply and add sizes, so every sum is a polynomial of degree 2 or less in one of them (rows times one or two sizes, pairs of a window), from one break to the
// next (models/totals_breaks.hpp): whole numbers that no rule rounds. Three counted networks in a row give all later ones up to the next break, exactly; two more are counted and
// compared before that is believed. Five points that agree also settle quotients of such polynomials (a head size of width / heads): the difference from a parabola, times
// the divisor, would have five zeros and at most degree four. Where only rows are random, the coefficients of an expectation are such polynomials too (whole numbers, exact in a
// double below 2^53); the expectation is worked out from them in the order of the list, with the pairs that the mask of this very step makes visible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/network.hpp"
#include "models/scenario.hpp"
#include "models/totals.hpp"
#include "models/totals_sums.hpp"

namespace fathom {

class NetworkLine {
 public:
  // The totals of `network`, which is step `at` of a line, from what counted() was told; nullptr: they have to be counted, and told next.
  const ListTotals* totals(std::uint64_t line, std::int64_t at, const Network& network, const Scenario& scenario, bool expectations);
  // The counted totals of the network that totals() was just asked for. `blocks`: what the expectation is made of (TotalsMemo::blocks); empty where it does not follow.
  void counted(const ListTotals& totals, const std::vector<BlockExpectation>& blocks);

 private:
  // A coefficient of an expectation that is not the same at every step.
  struct Moving {
    ExpectedCost ExpectedUnits::*part;
    double ExpectedCost::*figure;
    double rise, bend;
  };
  struct MovingOp {
    std::vector<Moving> coefficients;
    Mask mask;               // how its mask moves per step
  };
  // nullptr: a sum or a coefficient is too large to be exact.
  const ListTotals* value(std::int64_t at);
  bool expect(std::int64_t at);
  bool take_blocks(const std::vector<BlockExpectation>& blocks);

  std::uint64_t line_ = 0;
  std::int64_t first_ = 0, asked_ = 0;
  int known_ = 0;         // networks counted in a row
  bool bent_ = false;     // this line is no such polynomial
  bool expectations_ = false, affine_ = false;
  Scenario scenario_;
  std::vector<std::int64_t> breaks_, here_;
  std::array<Sums, 3> points_{};
  Parabolas<kSums> sums_;
  double largest_[3] = {};  // start, rise and bend of sums_, without their signs
  ListTotals current_;
  std::vector<BlockExpectation> blocks_[3];        // of the first networks
  std::vector<Parabolas<5>> fixed_;                // of each block's fixed sums
  std::vector<std::vector<MovingOp>> moving_;      // by block and random op
  double largest_coefficient_[3] = {};             // as largest_, of the expectation's
};

}  // namespace fathom
