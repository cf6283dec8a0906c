#include "models/totals_line.hpp"

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

bool equal(const ListTotals& a, const ListTotals& b) { return a.total == b.total && a.flops_by_part == b.flops_by_part && a.flops_by_pass == b.flops_by_pass; }

}  // namespace

const ListTotals& NetworkLine::value(std::int64_t at) {
  const auto steps = static_cast<u128>(at - first_);
  current_ = plus(plus(start_, rise_, steps), bend_, steps * (steps - 1) / 2);
  current_.affine_in_batch = start_.affine_in_batch;
  if (expectations_) current_.expected = declared_as_expected(current_.total);
  return current_;
}

const ListTotals* NetworkLine::totals(std::uint64_t line, std::int64_t at, const Scenario& scenario, bool expectations) {
  if (known_ < kBelieved || bent_ || at < first_ || !same(line, scenario, expectations)) return nullptr;
  return &value(at);
}

void NetworkLine::counted(std::uint64_t line, std::int64_t at, const Scenario& scenario, bool expectations, const ListTotals& totals) {
  if (!same(line, scenario, expectations) || at != first_ + known_) {
    if (known_ >= kBelieved && same(line, scenario, expectations)) return;  // a bent line stays bent
    line_ = line, first_ = at, scenario_ = scenario, expectations_ = expectations;
    known_ = 0, bent_ = false;
  }
  // Random rows: the expectation is no polynomial.
  if (expectations && !totals.affine_in_batch) bent_ = true;
  if (known_ == 0) start_ = totals;
  if (!bent_ && known_ == 1) bent_ = !difference(totals, start_, rise_);
  if (!bent_ && known_ == 2) {
    ListTotals second;
    bent_ = !difference(totals, last_, second) || !difference(second, rise_, bend_);
  }
  if (!bent_ && known_ > 2) bent_ = !equal(value(at), totals);
  last_ = totals;
  ++known_;
}

}  // namespace fathom
