#include "models/totals_line.hpp"

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "models/totals_sums.hpp"

namespace fathom {
namespace {

constexpr int kBelieved = 5;  // three points and two that agree

// a - b, if no sum of b is larger.
bool difference(const ListTotals& a, const ListTotals& b, ListTotals& into) {
  bool rising = true;
  into = combine(a, b, [&](u128 x, u128 y) {
    rising = rising && x >= y;
    return x - y;
  });
  return rising;
}

bool equal(const ListTotals& a, const ListTotals& b, bool expectations) {
  return a.total == b.total && a.flops_by_part == b.flops_by_part && a.flops_by_pass == b.flops_by_pass && (!expectations || a.expected == b.expected);
}

constexpr double kExact = 9007199254740992.0;  // 2^53

// f(a, b) of every coefficient.
template <class F>
ExpectedCost coefficients(const ExpectedCost& a, const ExpectedCost& b, F&& f) {
  return {f(a.rows, b.rows), f(a.flops, b.flops), f(a.flops_recompute, b.flops_recompute), f(a.elements, b.elements), f(a.read, b.read), f(a.written, b.written)};
}
template <class F>
void coefficients(const ExpectedUnits& a, const ExpectedUnits& b, ExpectedUnits& into, F&& f) {
  for (ExpectedCost ExpectedUnits::*part : {&ExpectedUnits::none, &ExpectedUnits::slope, &ExpectedUnits::fixed, &ExpectedUnits::pair, &ExpectedUnits::key}) into.*part = coefficients(a.*part, b.*part, f);
}

// Everything of a random op but its coefficients.
bool same_rows(const BlockExpectation::Random& a, const BlockExpectation::Random& b) {
  return a.rows == b.rows && a.sequences == b.sequences && a.pairs == b.pairs && a.keys == b.keys && a.units.probability == b.units.probability && a.units.each == b.units.each &&
         a.units.attention == b.units.attention && a.units.cached == b.units.cached && a.units.past == b.units.past;
}

}  // namespace

// blocks_[known_] = blocks; the third turns all into a start and differences. False where they are no such line.
bool NetworkLine::take_blocks(const std::vector<BlockExpectation>& blocks) {
  const std::size_t point = static_cast<std::size_t>(known_);
  blocks_[point] = blocks;
  if (blocks.empty()) return false;
  const std::vector<BlockExpectation>& first = blocks_[0];
  if (blocks.size() != first.size()) return false;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].uses != first[i].uses || blocks[i].random.size() != first[i].random.size()) return false;
    for (std::size_t n = 0; n < blocks[i].random.size(); ++n)
      if (!same_rows(blocks[i].random[n], first[i].random[n])) return false;
  }
  if (point < 2) return true;
  const auto minus = [](double x, double y) { return x - y; };
  for (int pass = 0; pass < 2; ++pass)  // second minus first and third minus second; then the difference of these
    for (std::size_t to = 2; to > static_cast<std::size_t>(pass); --to)
      for (std::size_t i = 0; i < first.size(); ++i) {
        for (std::size_t k = 0; k < first[i].fixed.size(); ++k) {
          if (blocks_[to][i].fixed[k] < blocks_[to - 1][i].fixed[k]) return false;
          blocks_[to][i].fixed[k] -= blocks_[to - 1][i].fixed[k];
        }
        for (std::size_t n = 0; n < first[i].random.size(); ++n) {
          ExpectedUnits& units = blocks_[to][i].random[n].units;
          coefficients(units, blocks_[to - 1][i].random[n].units, units, minus);
        }
      }
  return true;
}

// The sum of Output::totals(), in its order.
bool NetworkLine::expect(std::int64_t at) {
  const std::int64_t step = at - first_, pairs = step * (step - 1) / 2;
  const double linear = static_cast<double>(step), square = static_cast<double>(pairs);
  double largest = 0;
  const auto risen = [&](double x, double y) { return x + linear * y; };
  const auto bent = [&](double x, double y) {
    const double sum = x + square * y;
    largest = std::max(largest, std::abs(sum));
    return sum;
  };
  current_.expected = {};
  for (std::size_t i = 0; i < blocks_[0].size(); ++i) {
    const BlockExpectation &start = blocks_[0][i], &rise = blocks_[1][i], &bend = blocks_[2][i];
    ExpectedCost expected;
    for (std::size_t n = 0; n < start.random.size(); ++n) {
      const BlockExpectation::Random& op = start.random[n];
      ExpectedUnits units = op.units;
      coefficients(units, rise.random[n].units, units, risen);
      coefficients(units, bend.random[n].units, units, bent);
      expected += expected_at(units, op.rows, op.sequences, op.pairs, op.keys);
    }
    std::array<double, 5> fixed;
    for (std::size_t k = 0; k < fixed.size(); ++k)
      fixed[k] = to_double(checked_add(start.fixed[k], checked_add(checked_mul(rise.fixed[k], static_cast<u128>(step)), checked_mul(bend.fixed[k], static_cast<u128>(pairs)))));
    expected += ExpectedCost{0, fixed[0], fixed[1], fixed[2], fixed[3], fixed[4]};
    current_.expected += expected * start.uses;
  }
  return largest < kExact;
}

const ListTotals* NetworkLine::value(std::int64_t at) {
  const auto steps = static_cast<u128>(at - first_);
  current_ = plus(plus(start_, rise_, steps), bend_, steps * (steps - 1) / 2);
  current_.affine_in_batch = start_.affine_in_batch;
  if (!expectations_) return &current_;
  if (start_.affine_in_batch) {
    current_.expected = declared_as_expected(current_.total);
    return &current_;
  }
  return expect(at) ? &current_ : nullptr;
}

const ListTotals* NetworkLine::totals(std::uint64_t line, std::int64_t at, const Scenario& scenario, bool expectations) {
  if (known_ < kBelieved || bent_ || at < first_ || !same(line, scenario, expectations)) return nullptr;
  return value(at);
}

void NetworkLine::counted(std::uint64_t line, std::int64_t at, const Scenario& scenario, bool expectations, const ListTotals& totals, const std::vector<BlockExpectation>& blocks) {
  if (!same(line, scenario, expectations) || at != first_ + known_) {
    if (known_ >= kBelieved && same(line, scenario, expectations)) return;  // a bent line stays bent
    line_ = line, first_ = at, scenario_ = scenario, expectations_ = expectations;
    known_ = 0, bent_ = false;
  }
  if (known_ == 0) start_ = totals;
  if (totals.affine_in_batch != start_.affine_in_batch) bent_ = true;
  if (!bent_ && known_ == 1) bent_ = !difference(totals, start_, rise_);
  if (!bent_ && known_ == 2) {
    ListTotals second;
    bent_ = !difference(totals, last_, second) || !difference(second, rise_, bend_);
  }
  if (!bent_ && expectations && !totals.affine_in_batch && known_ < 3) bent_ = !take_blocks(blocks);
  if (!bent_ && known_ > 2 && known_ < kBelieved) {
    const ListTotals* follows = value(at);
    bent_ = !follows || !equal(*follows, totals, expectations);
  }
  last_ = totals;
  ++known_;
}

}  // namespace fathom
