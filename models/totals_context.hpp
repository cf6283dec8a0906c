// Totals of decode steps that differ in the number of cached keys alone.
//
// One new token per sequence: pairs, keys and rows of the cache are affine in the context while no window or chunk ends, and nothing else changes. Two
// counted steps give all later ones of that stretch, exactly. Of the expectation only attention over rows that a router chose is worked out anew, by the formula that the
// op list uses, so that it is the same to the last bit.
#pragma once

#include <cstdint>
#include <vector>

#include "models/builder.hpp"

namespace fathom {

class ContextLine {
 public:
  // The totals of this decode step, if they follow from others: nullptr says that it has to be counted. The network and all of the scenario but batch and context must be
  // those of the calls before, else reset().
  const ListTotals* at(const Network& network, const Scenario& scenario, bool expectations);
  void reset() { batch_ = 0; }
  // What the expectation of the last at() is made of, for other batches; empty where these do not follow.
  std::vector<BlockExpectation> blocks() const;

 private:
  bool count(const Network& network, const Scenario& scenario, bool expectations);
  BlockExpectation::Random moved(const BlockExpectation::Random& random) const;

  std::int64_t batch_ = 0, stretch_ = 0, first_ = 0, steps_ = 0;
  int requests_ = 0;
  bool known_ = false, by_rows_ = false;
  ListTotals start_, slope_, current_;
  std::vector<BlockExpectation> blocks_;
  std::vector<std::array<u128, 5>> rise_;  // of each block's fixed sums per key
};

}  // namespace fathom
