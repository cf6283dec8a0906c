// Totals of prefills that differ in the length alone, where it is random which rows take part, or which keys they see.
//
// Every row may run with a chance that does not depend on the length (thresholds), or as many as there are slots run, any of them (capacities under windows, over the keys of
// all tokens, behind a cache): rows, pairs and keys are polynomials of degree 2 in the lengths of one residue class, from one break to the next (length_period()), and so are the
// declared sums and what an expectation is made of. Three counted lengths of a class give all later ones, exactly; two more, one of them far away, are counted and compared
// before that is believed. The expectation is worked out from the coefficients in the order of the op list, so that it is the same to the last bit.
#pragma once

#include <cstdint>
#include <vector>

#include "models/builder.hpp"
#include "models/totals_sums.hpp"

namespace fathom {

// Whether a LengthLine is what gives the totals of this prefill, and not a polynomial of its declared sums.
bool random_along_lengths(const Network& network, const Scenario& scenario, bool expectations);

class LengthLine {
 public:
  // The totals of this prefill, if they follow from others; nullptr: it has to be counted. The network and all of the scenario but batch and length must be those of
  // the calls before, else reset(). `period`: length_period(); `breaks`: length_breaks() of this very length.
  const ListTotals* at(const Network& network, const Scenario& scenario, bool expectations, std::int64_t period, const std::vector<std::int64_t>& breaks);
  void reset() { classes_.clear(), batch_ = 0; }
  // What the expectation of the last at() is made of, for other batches; empty where these do not follow.
  std::vector<BlockExpectation> blocks() const;

 private:
  struct Op {
    Parabolas<5> none;   // what it costs without rows
    Parabolas<1> rows;
  };
  // Lengths first, first + period, first + 2 period ... up to the next break.
  struct Class {
    std::int64_t residue = 0;
    std::vector<std::int64_t> breaks;
    int requests = 0;
    bool known = false, bent = false, by_rows = false, affine = false;
    std::int64_t first = 0;
    Parabolas<kSums> sums;
    std::vector<BlockExpectation> blocks;     // at `first`
    std::vector<Parabolas<5>> fixed;          // of each block's fixed sums
    std::vector<std::vector<Op>> ops;         // of its random ops
  };
  bool count(Class& c, const Network& network, const Scenario& scenario, bool expectations) const;
  static bool fit(Class& c, const std::vector<BlockExpectation>& one, const std::vector<BlockExpectation>& two);
  // False where a coefficient is too large to be exact.
  bool move_to(const Class& c, std::int64_t length, bool expectations, ListTotals& into) const;
  BlockExpectation::Random moved(const Class& c, std::size_t block, std::size_t op, std::int64_t length) const;

  std::int64_t batch_ = 0, length_ = 0, period_ = 0, past_ = 0;
  std::vector<Class> classes_;
  std::size_t last_ = 0;   // the class of the last at()
  ListTotals current_;
};

}  // namespace fathom
