// Totals of configurations that differ in batch and length alone, without counting each: what makes a sweep fast.
//
// Every row, pair and key count of an op list is a number per sequence times the batch, and the cost rules are affine in them. So every declared sum is a + b x batch, unless a number of distinct experts enters or rows are random: two counted points
// give all others, exactly. What is not affine (ListTotals::affine_in_batch) is counted each time; so is whatever could overflow.
//
// Over the length S of a prefill or training step, a and b are polynomials of degree 2 (rows S, causal pairs S (S + 1) / 2) from one break to the next, in the lengths of one
// residue class where routed blocks have slots C = round(rho S) (models/totals_breaks.hpp). Where nothing rounds but the slots themselves, every sum is one polynomial of degree 2 in
// S and the slots of each routed block, whatever their capacities: 3 + 3 n counted points for n rules of slots, found with slots instead of shares, give all lengths.
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
  // Lengths of one residue class, up to the next break.
  struct LengthClass {
    std::int64_t residue = 0;
    std::vector<std::int64_t> breaks;
    int requests = 0;
    std::int64_t first = 0;               // S0; 0: not counted yet
    Polynomial single, per_sequence;      // batch 1, and the rise per further sequence
  };
  // f(S, C1, C2 ...) = at + x dS + x (x - 1) / 2 dSS + sum over i of (y dC + y (y - 1) / 2 dCC + x y dSC) with x = S - kFirstLength, y = Ci - 1, modulo 2^128 (differences may be
  // negative).
  struct Surface {
    struct Rise {
      Sums dc, dcc, dsc;
    };
    Sums at, ds, dss;
    std::vector<Rise> rises;   // by rule of slots
    Sums value(std::int64_t length, const std::vector<std::int64_t>& slots) const;
  };
  bool find_rules(const Network& network, const Scenario& scenario);
  bool on_surface(const Network& network, const Scenario& scenario);
  void count_surfaces(const Network& network, const Scenario& scenario);
  bool expectation_slopes(u128 steps, const std::vector<BlockExpectation>& one);
  ExpectedCost expected_along(std::int64_t batch) const;
  LengthClass* class_of(const Scenario& scenario);
  void follow(const Network& network, const Scenario& scenario);
  ListTotals along(std::int64_t batch) const;

  std::uint64_t id_ = 0;
  std::optional<Scenario> scenario_;      // of `first_`
  bool expectations_ = false;
  ListTotals first_, current_;
  std::optional<ListTotals> slope_;       // per sequence
  std::int64_t period_ = 0;               // of lengths; 0: lengths are counted one by one
  std::vector<LengthClass> classes_;
  std::vector<std::int64_t> breaks_;      // of the length asked for
  bool surfaced_ = false;
  std::vector<const Route*> rules_;       // one route of every rule of slots; of the network of this call
  std::vector<std::size_t> rule_of_;      // by kind
  std::vector<std::int64_t> slots_;       // by rule, at the length asked for
  int requests_ = 0;                      // of lengths that lie on the surfaces
  std::optional<std::pair<Surface, Surface>> surfaces_;   // batch 1, and per further sequence
  ContextLine contexts_;
  LengthLine lengths_;
  bool random_lengths_ = false;           // lengths_ it is, not classes_
  // first_ is the last of contexts_ or lengths_, with an expectation that blocks_ does not hold yet.
  enum class Line : std::uint8_t { kNone, kContexts, kLengths } on_line_ = Line::kNone;
  std::vector<BlockExpectation> blocks_, blocks_slope_;   // of `first_`, where only rows are random; per sequence (fixed sums alone)
};

}  // namespace fathom
