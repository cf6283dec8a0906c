// Totals of networks that differ in one size alone, in even steps of it.
//
// Every cost rule is a polynomial of degree 2 or less in the width, the MLP width and the vocabulary (rows times one or two sizes), whole numbers that no
// rule rounds. Three counted networks in a row give all later ones of the line, exactly; two more are counted and compared before that is believed. Where only rows are random,
// the coefficients of an expectation are such polynomials too (whole numbers, exact in a double below 2^53); the expectation is worked out from them in the order of the list.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/scenario.hpp"
#include "models/totals.hpp"

namespace fathom {

class NetworkLine {
 public:
  // The totals at step `at` of a line, from what counted() was told; nullptr: they have to be counted.
  const ListTotals* totals(std::uint64_t line, std::int64_t at, const Scenario& scenario, bool expectations);
  // `blocks`: what the expectation is made of (TotalsMemo::blocks); empty where it does not follow.
  void counted(std::uint64_t line, std::int64_t at, const Scenario& scenario, bool expectations, const ListTotals& totals, const std::vector<BlockExpectation>& blocks);

 private:
  bool same(std::uint64_t line, const Scenario& scenario, bool expectations) const { return known_ > 0 && line_ == line && expectations_ == expectations && scenario_ == scenario; }
  // nullptr: an expectation's coefficients are too large to be exact.
  const ListTotals* value(std::int64_t at);
  bool expect(std::int64_t at);
  bool take_blocks(const std::vector<BlockExpectation>& blocks);

  std::uint64_t line_ = 0;
  std::int64_t first_ = 0;
  int known_ = 0;         // networks counted in a row
  bool bent_ = false;     // this line is no such polynomial, or its differences are negative
  bool expectations_ = false;
  Scenario scenario_;
  ListTotals start_, rise_, bend_, last_, current_;
  std::array<std::vector<BlockExpectation>, 3> blocks_;  // of the first networks; the later two then hold differences
};

}  // namespace fathom
