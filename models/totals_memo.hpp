// Totals of configurations that differ in batch and length alone, without counting each: what makes a sweep fast.
//
// Every row, pair and key count of an op list is a number per sequence times the batch, and the cost rules are affine in them. So every declared sum is a + b x batch, unless a number of distinct experts enters or rows are random: two counted points
// give all others, exactly. What is not affine (ListTotals::affine_in_batch) is counted each time; so is whatever could overflow.
//
// Over the length S of a prefill or training step, a and b are polynomials of degree 2 (rows S, causal pairs S (S + 1) / 2) from the end of one window or chunk to the next;
// in a routed block C = round(rho S) and C (C + 1) / 2 take part, and with rho = p / q the step from S to S + q adds p slots, whatever the rounding: within one
// residue class modulo q they are polynomials as well, as long as C > 0 (an op without rows reads no weights). Where all routed blocks have the same C, every sum is one
// polynomial of degree 2 in (S, C), whatever the capacity: six counted points, found with slots instead of a share, give all lengths.
//
// Random rows (decode, thresholds) leave the declared sums affine in the batch; the expectation is worked out anew, op by op, from coefficients that do not depend on it
// (along contexts: models/totals_context.hpp, along lengths: models/totals_length.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/builder.hpp"
#include "models/totals_context.hpp"
#include "models/totals_length.hpp"
#include "models/totals_sums.hpp"

namespace fathom {

class TotalsMemo {
 public:
  // count_totals(network, scenario, expectations). `network_id` tells networks apart: the same id must mean the same network.
  const ListTotals& totals(const Network& network, std::uint64_t network_id, const Scenario& scenario, bool expectations);
  // What the expectation of those totals is made of, where they were counted and only rows are random; else of other totals, or empty.
  const std::vector<BlockExpectation>& blocks() const { return blocks_; }

 private:
  // f(S0 + t Q) = at + t d1 + t (t - 1) / 2 d2.
  struct Polynomial {
    ListTotals at, d1, d2;
    ListTotals value(std::int64_t t) const;
  };
  // Lengths of one residue, with the same routed blocks empty, and the same bypass adapters.
  struct LengthClass {
    std::int64_t residue = 0;
    std::array<std::uint64_t, 2> idle{};
    std::int64_t stretch = 0;
    int requests = 0;
    std::int64_t first = 0;               // S0; 0: not counted yet
    Polynomial single, per_sequence;      // batch 1, and the rise per further sequence
  };
  // f(S, C) = at + x dS + y dC + x (x - 1) / 2 dSS + x y dSC + y (y - 1) / 2 dCC with x = S - kFirstLength, y = C - 1, modulo 2^128 (differences may be negative).
  struct Surface {
    Sums at, ds, dc, dss, dsc, dcc;
    Sums value(std::int64_t length, std::int64_t slots) const;
  };
  void count_surfaces(const Network& network, const Scenario& scenario);
  bool expectation_slopes(u128 steps, const std::vector<BlockExpectation>& one);
  ExpectedCost expected_along(std::int64_t batch) const;
  LengthClass* class_of(const Network& network, const Scenario& scenario);
  void follow(const Network& network, const Scenario& scenario);
  ListTotals along(std::int64_t batch) const;

  std::uint64_t id_ = 0;
  std::optional<Scenario> scenario_;      // of `first_`
  bool expectations_ = false;
  ListTotals first_, current_;
  std::optional<ListTotals> slope_;       // per sequence
  std::int64_t period_ = 0;               // of lengths; 0: lengths are counted one by one
  std::vector<LengthClass> classes_;
  bool one_capacity_ = false;
  int requests_ = 0;                      // of lengths with that many slots
  std::optional<std::pair<Surface, Surface>> surfaces_;   // batch 1, and per further sequence
  ContextLine contexts_;
  LengthLine lengths_;
  // first_ is the last of contexts_ or lengths_, with an expectation that blocks_ does not hold yet.
  enum class Line : std::uint8_t { kNone, kContexts, kLengths } on_line_ = Line::kNone;
  std::vector<BlockExpectation> blocks_, blocks_slope_;   // of `first_`, where only rows are random; per sequence (fixed sums alone)
};

}  // namespace fathom
