#include "models/totals_line.hpp"

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "models/totals_breaks.hpp"

namespace fathom {
namespace {

constexpr int kBelieved = 5;  // three points and two that agree
constexpr double kExactCoefficient = 9007199254740992.0;  // 2^53
constexpr double kLargestSum = 1e38;                      // below 2^127: a sum modulo 2^128 is the sum

constexpr ExpectedCost ExpectedUnits::*kUnitParts[] = {&ExpectedUnits::none, &ExpectedUnits::slope, &ExpectedUnits::fixed, &ExpectedUnits::pair, &ExpectedUnits::key};
constexpr double ExpectedCost::*kCostFigures[] = {&ExpectedCost::rows, &ExpectedCost::flops, &ExpectedCost::flops_recompute, &ExpectedCost::elements, &ExpectedCost::read, &ExpectedCost::written};

bool moves(const Mask& step) { return step.window != 0 || step.chunk != 0; }

// Everything of a random op but its coefficients and, where its mask moves, what that changes.
bool same_rows(const BlockExpectation::Random& a, const BlockExpectation::Random& b, bool mask_moves) {
  const bool pairs = mask_moves ? (a.pairs >= 0) == (b.pairs >= 0) : a.pairs == b.pairs && a.keys == b.keys;
  return pairs && a.by_rows && b.by_rows && a.rows == b.rows && a.sequences == b.sequences && a.units.probability == b.units.probability && a.units.each == b.units.each &&
         a.units.attention == b.units.attention && a.units.cached == b.units.cached && a.units.past == b.units.past;
}

double magnitude(u128 difference) { return to_double(difference >> 127 ? u128{0} - difference : difference); }

}  // namespace

// The third turns the three into a start and differences. False where they are no such line.
bool NetworkLine::take_blocks(const std::vector<BlockExpectation>& blocks) {
  const auto point = static_cast<std::size_t>(known_);
  blocks_[point] = blocks;
  const std::vector<BlockExpectation>& first = blocks_[0];
  if (blocks.empty() || blocks.size() != first.size()) return false;
  if (point == 1) moving_.assign(first.size(), {});
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].uses != first[i].uses || blocks[i].random.size() != first[i].random.size()) return false;
    if (point == 1) moving_[i].resize(first[i].random.size());
    for (std::size_t n = 0; n < blocks[i].random.size() && point > 0; ++n) {
      const BlockExpectation::Random &here = blocks[i].random[n], &start = first[i].random[n];
      const Mask &mask = here.chosen.mask, &from = start.chosen.mask;
      Mask& step = moving_[i][n].mask;
      if (point == 1) step.window = mask.window - from.window, step.chunk = mask.chunk - from.chunk;
      const auto steps = static_cast<std::int64_t>(point);
      if (mask.kind != from.kind || mask.window != from.window + steps * step.window || mask.chunk != from.chunk + steps * step.chunk) return false;
      if (!same_rows(here, start, moves(step))) return false;
    }
  }
  if (point < 2) return true;
  fixed_.clear();
  for (double& each : largest_coefficient_) each = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    fixed_.push_back(Parabolas<5>::through(blocks_[0][i].fixed, blocks_[1][i].fixed, blocks_[2][i].fixed));
    for (std::size_t n = 0; n < first[i].random.size(); ++n)
      for (const auto part : kUnitParts)
        for (const auto figure : kCostFigures) {
          const double zero = blocks_[0][i].random[n].units.*part.*figure, one = blocks_[1][i].random[n].units.*part.*figure, two = blocks_[2][i].random[n].units.*part.*figure;
          const double rise = one - zero, bend = (two - one) - rise;
          largest_coefficient_[0] = std::max(largest_coefficient_[0], std::abs(zero));
          largest_coefficient_[1] = std::max(largest_coefficient_[1], std::abs(rise));
          largest_coefficient_[2] = std::max(largest_coefficient_[2], std::abs(bend));
          if (rise != 0 || bend != 0) moving_[i][n].coefficients.push_back({part, figure, rise, bend});
        }
  }
  return true;
}

// The sum of Output::totals(), in its order.
bool NetworkLine::expect(std::int64_t at) {
  const std::int64_t step = at - first_;
  const double linear = static_cast<double>(step), square = static_cast<double>(step * (step - 1) / 2);
  const bool decode = scenario_.phase == Phase::kDecode;
  const std::int64_t past = decode ? scenario_.context - 1 : scenario_.past;
  if (largest_coefficient_[0] + linear * (largest_coefficient_[1] + linear * largest_coefficient_[2]) >= kExactCoefficient) return false;
  current_.expected = {};
  for (std::size_t i = 0; i < blocks_[0].size(); ++i) {
    const BlockExpectation& start = blocks_[0][i];
    ExpectedCost expected;
    for (std::size_t n = 0; n < start.random.size(); ++n) {
      const BlockExpectation::Random& op = start.random[n];
      ExpectedUnits units = op.units;
      const MovingOp& moving = moving_[i][n];
      for (const Moving& each : moving.coefficients) units.*each.part.*each.figure += linear * each.rise + square * each.bend;
      ExpectedReach reach{op.pairs, op.keys};
      if (op.pairs >= 0 && moves(moving.mask)) {
        ChosenCore core = op.chosen;
        core.mask.window += step * moving.mask.window;
        core.mask.chunk += step * moving.mask.chunk;
        if (core.probability < 0 && !decode) core.length = scenario_.length;  // ranked: the queries are some of them
        reach = expected_reach(core, past);
      }
      expected += expected_at(units, op.rows, op.sequences, reach.pairs, reach.keys);
    }
    const std::array<u128, 5> fixed = fixed_[i].value(step);
    expected += ExpectedCost{0, to_double(fixed[0]), to_double(fixed[1]), to_double(fixed[2]), to_double(fixed[3]), to_double(fixed[4])};
    current_.expected += expected * start.uses;
  }
  return true;
}

const ListTotals* NetworkLine::value(std::int64_t at) {
  const std::int64_t step = at - first_;
  const double linear = static_cast<double>(step);
  if (largest_[0] + linear * (largest_[1] + linear * largest_[2]) > kLargestSum) return nullptr;
  current_ = totals_of(sums_.value(step));
  current_.affine_in_batch = affine_;
  if (!expectations_) return &current_;
  if (affine_) {
    current_.expected = declared_as_expected(current_.total);
    return &current_;
  }
  return expect(at) ? &current_ : nullptr;
}

const ListTotals* NetworkLine::totals(std::uint64_t line, std::int64_t at, const Network& network, const Scenario& scenario, bool expectations) {
  asked_ = at;
  if (!moderate(scenario) || scenario.phase == Phase::kGenerate) {
    known_ = 0, bent_ = true;
    return nullptr;
  }
  breaks_of(network, scenario, here_);
  const bool same = line_ == line && expectations_ == expectations && here_ == breaks_ && scenario_ == scenario;
  if (same && known_ >= kBelieved && !bent_ && at >= first_) return value(at);
  const bool goes_on = same && at == first_ + known_;
  if (!goes_on && !(same && bent_)) {  // a bent line stays bent up to the next break
    line_ = line, first_ = at, scenario_ = scenario, expectations_ = expectations;
    breaks_.swap(here_);
    known_ = 0, bent_ = false;
  }
  return nullptr;
}

void NetworkLine::counted(const ListTotals& totals, const std::vector<BlockExpectation>& blocks) {
  if (bent_ || asked_ != first_ + known_) return;
  if (known_ == 0) affine_ = totals.affine_in_batch;
  bent_ = totals.affine_in_batch != affine_;
  if (!bent_ && known_ < 3) {
    points_[static_cast<std::size_t>(known_)] = sums_of(totals);
    if (expectations_ && !affine_) bent_ = !take_blocks(blocks);
  }
  if (!bent_ && known_ == 2) {
    sums_ = Parabolas<kSums>::through(points_[0], points_[1], points_[2]);
    for (std::size_t i = 0; i < 3; ++i) largest_[i] = 0;
    for (std::size_t k = 0; k < kSums; ++k) {
      largest_[0] = std::max(largest_[0], to_double(sums_.at[k]));
      largest_[1] = std::max(largest_[1], magnitude(sums_.rise[k]));
      largest_[2] = std::max(largest_[2], magnitude(sums_.bend[k]));
    }
  }
  if (!bent_ && known_ > 2 && known_ < kBelieved) {
    const ListTotals* follows = value(asked_);
    bent_ = !follows || !same_totals(*follows, totals, expectations_);
  }
  ++known_;
}

}  // namespace fathom
