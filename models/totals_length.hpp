// Totals of prefills that differ in the length alone, where a threshold decides which rows take part.
//
// Every row may run, with a chance that does not depend on the length: rows, pairs and keys are polynomials of degree 2 in it, and so are the declared sums and what an
// expectation is made of. Three counted lengths in a row give all later ones, exactly; two more, one of them far away, are counted and compared before that is believed. The
// expectation is worked out from the coefficients in the order of the op list, so that it is the same to the last bit.
#pragma once

#include <cstdint>
#include <vector>

#include "models/builder.hpp"
#include "models/totals_sums.hpp"

namespace fathom {

class LengthLine {
 public:
  // The totals of this prefill, if they follow from others; nullptr: it has to be counted. The network and all of the scenario but batch and length must be those of
  // the calls before, else reset().
  const ListTotals* at(const Network& network, const Scenario& scenario, bool expectations);
  void reset() { batch_ = 0; }
  // What the expectation of the last at() is made of, for other batches; empty where these do not follow.
  std::vector<BlockExpectation> blocks() const;

 private:
  bool count(const Network& network, const Scenario& scenario, bool expectations);
  bool fit(const std::vector<BlockExpectation>& one, const std::vector<BlockExpectation>& two);
  // Sets current_ to `length`; false where a coefficient is too large to be exact.
  bool move_to(std::int64_t length, bool expectations);
  BlockExpectation::Random moved(std::size_t block, std::size_t op) const;

  std::int64_t batch_ = 0, first_ = 0, length_ = 0, past_ = 0;
  int requests_ = 0;
  bool known_ = false, bent_ = false, by_rows_ = false, affine_ = false;
  Parabolas<kSums> sums_;
  ListTotals current_;
  std::vector<BlockExpectation> blocks_;                 // at first_
  std::vector<Parabolas<5>> fixed_;                      // of each block's fixed sums
  std::vector<std::vector<Parabolas<5>>> none_;          // of what each random op costs without rows
};

}  // namespace fathom
