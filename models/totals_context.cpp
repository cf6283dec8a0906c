#include "models/totals_context.hpp"

#include <algorithm>

#include "lib/error.hpp"
#include "models/fusion.hpp"
#include "models/totals_sums.hpp"

namespace fathom {
namespace {

constexpr int kContextPatience = 4;  // requests of a stretch before two of its steps are counted

// Whether only pairs and keys change: a routed block whose share follows from a number of slots takes fewer rows as the context grows.
bool applies(const Network& network, const Scenario& s) {
  if (s.phase != Phase::kDecode || s.context < 2 || !moderate(s) || needs_list(s.fusions)) return false;
  return std::all_of(network.kinds.begin(), network.kinds.end(), [&](const BlockConfig& kind) { return !kind.route || kind.route->capacity || s.participation; });
}

}  // namespace

const ListTotals* ContextLine::at(const Network& network, const Scenario& scenario, bool expectations) {
  if (!applies(network, scenario)) return nullptr;
  const std::int64_t stretch = stretch_of(network, scenario.context);
  if (batch_ != scenario.batch || stretch_ != stretch) {
    batch_ = scenario.batch;
    stretch_ = stretch;
    requests_ = 0;
    known_ = false;
  }
  if (!known_ && (++requests_ <= kContextPatience || !count(network, scenario, expectations))) return nullptr;
  if (scenario.context < first_) return nullptr;
  steps_ = scenario.context - first_;
  const auto steps = static_cast<u128>(steps_);
  current_ = plus(start_, slope_, steps);
  if (!expectations) return &current_;
  if (current_.affine_in_batch) {
    current_.expected = declared_as_expected(current_.total);
    return &current_;
  }
  // The sum of Output::totals(), in its order.
  current_.expected = {};
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const BlockExpectation& block = blocks_[i];
    ExpectedCost expected;
    for (const BlockExpectation::Random& op : block.random) {
      if (!op.attention) {
        expected += op.cost;
        continue;
      }
      const BlockExpectation::Random here = moved(op);
      expected += expected_at(here.units, here.rows, here.sequences, here.pairs, here.keys);
    }
    std::array<double, 5> fixed;
    for (std::size_t k = 0; k < fixed.size(); ++k) fixed[k] = to_double(block.fixed[k] + rise_[i][k] * steps);
    expected += ExpectedCost{0, fixed[0], fixed[1], fixed[2], fixed[3], fixed[4]};
    current_.expected += expected * block.uses;
  }
  return &current_;
}

bool ContextLine::count(const Network& network, const Scenario& scenario, bool expectations) {
  Scenario next = scenario;
  ++next.context;
  if (stretch_of(network, next.context) != stretch_) return false;
  std::vector<BlockExpectation> later;
  by_rows_ = false;
  start_ = expectations ? count_totals(network, scenario, blocks_, &by_rows_) : count_totals(network, scenario, false);
  const ListTotals second = expectations ? count_totals(network, next, later, &by_rows_) : count_totals(network, next, false);
  slope_ = minus(second, start_);
  first_ = scenario.context;
  known_ = true;
  if (!expectations || start_.affine_in_batch) {
    blocks_.clear();
    return true;
  }
  if (later.size() != blocks_.size()) throw_internal("a decode step has other blocks for another context");
  rise_.assign(blocks_.size(), {});
  steps_ = 1;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    for (std::size_t k = 0; k < rise_[i].size(); ++k) rise_[i][k] = checked_sub(later[i].fixed[k], blocks_[i].fixed[k]);
    known_ = known_ && later[i].random.size() == blocks_[i].random.size();
    for (std::size_t n = 0; known_ && n < later[i].random.size(); ++n) {
      const BlockExpectation::Random &was = blocks_[i].random[n], &is = later[i].random[n], here = moved(was);
      known_ = was.attention ? here.units.past == is.units.past && here.pairs == is.pairs && here.keys == is.keys : was.cost == is.cost;
    }
  }
  return known_;
}

BlockExpectation::Random ContextLine::moved(const BlockExpectation::Random& random) const {
  BlockExpectation::Random here = random;
  const std::int64_t past = first_ + steps_ - 1;
  here.units.past = static_cast<double>(past) * random.share;
  if (random.pairs < 0) return here;
  const ExpectedReach reach = expected_reach(random.chosen, past);
  here.pairs = reach.pairs;
  here.keys = reach.keys;
  return here;
}

std::vector<BlockExpectation> ContextLine::blocks() const {
  if (!by_rows_) return {};
  std::vector<BlockExpectation> here = blocks_;
  for (std::size_t i = 0; i < here.size(); ++i) {
    for (std::size_t k = 0; k < here[i].fixed.size(); ++k) here[i].fixed[k] += rise_[i][k] * static_cast<u128>(steps_);
    for (BlockExpectation::Random& op : here[i].random)
      if (op.attention) op = moved(op);
  }
  return here;
}

}  // namespace fathom
