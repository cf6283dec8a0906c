#include "models/totals_length.hpp"

#include <algorithm>

#include "models/fusion.hpp"
#include "models/pairs.hpp"

namespace fathom {
namespace {

constexpr int kLengthPatience = 4;                       // requests before lengths are counted for the line
constexpr std::int64_t kFar = 1000;                // how far away the last of them is
constexpr double kExactDouble = 9007199254740992.0;      // 2^53: whole numbers up to here are exact doubles

// Whether every sum is one polynomial in the length: thresholds over shares, no windows, no experts.
bool length_applies(const Network& network, const Scenario& s) {
  if (s.phase != Phase::kPrefill || needs_list(s.fusions)) return false;
  if (s.rule() != RoutingRule::kThreshold && s.rule() != RoutingRule::kPredictor) return false;
  return std::all_of(network.kinds.begin(), network.kinds.end(), [&](const BlockConfig& kind) {
    const bool local = kind.attention && (kind.attention->window > 0 || kind.attention->chunk > 0);
    return !local && !(kind.mlp && kind.mlp->moe) && (!kind.route || kind.route->capacity || s.participation);
  });
}

std::array<double, 5> row_of(const ExpectedCost& cost) { return {cost.flops, cost.flops_recompute, cost.elements, cost.read, cost.written}; }

bool whole(const ExpectedCost& cost, std::array<u128, 5>& row) {
  const std::array<double, 5> values = row_of(cost);
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (values[k] < 0 || values[k] >= kExactDouble) return false;
    row[k] = static_cast<u128>(values[k]);
  }
  return cost.rows == 0;
}

bool same(const ListTotals& a, const ListTotals& b, bool expectations) {
  return a.total == b.total && a.flops_by_part == b.flops_by_part && a.flops_by_pass == b.flops_by_pass && (!expectations || a.expected == b.expected);
}

}  // namespace

const ListTotals* LengthLine::at(const Network& network, const Scenario& scenario, bool expectations) {
  if (batch_ != scenario.batch) {
    batch_ = scenario.batch;
    requests_ = 0;
    known_ = false;
    bent_ = !length_applies(network, scenario);
  }
  if (bent_ || scenario.length < 2 || !moderate(scenario)) return nullptr;
  if (!known_) {
    if (++requests_ <= kLengthPatience) return nullptr;
    known_ = count(network, scenario, expectations);
    bent_ = !known_;
  }
  return known_ && scenario.length >= first_ && move_to(scenario.length, expectations) ? &current_ : nullptr;
}

bool LengthLine::count(const Network& network, const Scenario& scenario, bool expectations) {
  first_ = scenario.length;
  past_ = scenario.past;
  Scenario at = scenario;
  std::vector<BlockExpectation> blocks[3];
  Sums sums[3];
  for (std::int64_t k = 0; k < 3; ++k) {
    at.length = first_ + k;
    const ListTotals totals = expectations ? count_totals(network, at, blocks[k], &by_rows_) : count_totals(network, at, false);
    if (k > 0 && totals.affine_in_batch != affine_) return false;
    affine_ = totals.affine_in_batch;
    sums[k] = sums_of(totals);
  }
  sums_ = Parabolas<kSums>::through(sums[0], sums[1], sums[2]);
  if (expectations && !affine_) {
    if (!by_rows_) return false;
    blocks_ = std::move(blocks[0]);
    if (!fit(blocks[1], blocks[2])) return false;
  }
  for (const std::int64_t length : {first_ + 3, first_ + kFar}) {
    at.length = length;
    if (!move_to(length, expectations) || !same(current_, count_totals(network, at, expectations), expectations)) return false;
  }
  return true;
}

bool LengthLine::fit(const std::vector<BlockExpectation>& one, const std::vector<BlockExpectation>& two) {
  fixed_.clear();
  none_.assign(blocks_.size(), {});
  if (one.size() != blocks_.size() || two.size() != blocks_.size()) return false;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    fixed_.push_back(Parabolas<5>::through(blocks_[i].fixed, one[i].fixed, two[i].fixed));
    if (one[i].random.size() != blocks_[i].random.size() || two[i].random.size() != blocks_[i].random.size()) return false;
    for (std::size_t n = 0; n < blocks_[i].random.size(); ++n) {
      const BlockExpectation::Random &a = blocks_[i].random[n], &b = one[i].random[n], &c = two[i].random[n];
      std::array<u128, 5> rows[3];
      if (!whole(a.units.none, rows[0]) || !whole(b.units.none, rows[1]) || !whole(c.units.none, rows[2])) return false;
      none_[i].push_back(Parabolas<5>::through(rows[0], rows[1], rows[2]));
    }
  }
  return true;
}

BlockExpectation::Random LengthLine::moved(std::size_t block, std::size_t op) const {
  BlockExpectation::Random here = blocks_[block].random[op];
  const std::array<u128, 5> none = none_[block][op].value(length_ - first_);
  here.units.none = {0, to_double(none[0]), to_double(none[1]), to_double(none[2]), to_double(none[3]), to_double(none[4])};
  here.rows = here.rows / static_cast<double>(first_) * static_cast<double>(length_);  // a whole number of rows per token
  if (here.pairs < 0) return here;
  here.chosen.length = length_;
  if (here.chosen.queries > 0) here.chosen.queries = length_;
  const ExpectedReach reach = expected_reach(here.chosen, past_);
  here.pairs = reach.pairs;
  here.keys = reach.keys;
  return here;
}

bool LengthLine::move_to(std::int64_t length, bool expectations) {
  length_ = length;
  current_ = totals_of(sums_.value(length - first_));
  current_.affine_in_batch = affine_;
  if (!expectations) return true;
  if (affine_) {
    current_.expected = declared_as_expected(current_.total);
    return true;
  }
  // The sum of Output::totals(), in its order.
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    ExpectedCost expected;
    for (std::size_t n = 0; n < blocks_[i].random.size(); ++n) {
      const BlockExpectation::Random here = moved(i, n);
      for (const double each : row_of(here.units.none))
        if (each >= kExactDouble) return false;
      expected += expected_at(here.units, here.rows, here.sequences, here.pairs, here.keys);
    }
    const std::array<u128, 5> fixed = fixed_[i].value(length - first_);
    expected += ExpectedCost{0, to_double(fixed[0]), to_double(fixed[1]), to_double(fixed[2]), to_double(fixed[3]), to_double(fixed[4])};
    current_.expected += expected * blocks_[i].uses;
  }
  return true;
}

std::vector<BlockExpectation> LengthLine::blocks() const {
  std::vector<BlockExpectation> here = blocks_;
  for (std::size_t i = 0; i < here.size(); ++i) {
    here[i].fixed = fixed_[i].value(length_ - first_);
    for (std::size_t n = 0; n < here[i].random.size(); ++n) here[i].random[n] = moved(i, n);
  }
  return here;
}

}  // namespace fathom
