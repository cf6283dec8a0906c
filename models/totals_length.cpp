#include "models/totals_length.hpp"

#include <algorithm>

#include "models/fusion.hpp"
#include "models/pairs.hpp"
#include "models/totals_breaks.hpp"

namespace fathom {
namespace {

constexpr int kLengthPatience = 4;                 // requests of a class before lengths are counted for it
constexpr std::size_t kMostClasses = 128;
constexpr double kExactDouble = 9007199254740992.0;  // 2^53: whole numbers up to here are exact doubles

std::array<double, 5> row_of(const ExpectedCost& cost) { return {cost.flops, cost.flops_recompute, cost.elements, cost.read, cost.written}; }

template <std::size_t N>
bool whole(const std::array<double, N>& values, std::array<u128, N>& row) {
  for (std::size_t k = 0; k < N; ++k) {
    if (values[k] < 0 || values[k] >= kExactDouble) return false;
    row[k] = static_cast<u128>(values[k]);
    if (to_double(row[k]) != values[k]) return false;
  }
  return true;
}

}  // namespace

bool random_along_lengths(const Network& network, const Scenario& s, bool expectations) {
  if (s.phase != Phase::kPrefill || !expectations || needs_list(s.fusions)) return false;
  bool random = false;
  for (const BlockConfig& kind : network.kinds) {
    if (kind.mlp && kind.mlp->moe) return false;  // distinct experts are no polynomial
    if (!kind.route) continue;
    const bool local = kind.attention && (kind.attention->window > 0 || kind.attention->chunk > 0);
    random = random || !ranked(s) || local || s.past > 0 || kind.route->kv == KvPolicy::kAll;
  }
  return random;
}

const ListTotals* LengthLine::at(const Network& network, const Scenario& scenario, bool expectations, std::int64_t period, const std::vector<std::int64_t>& breaks) {
  if (batch_ != scenario.batch) {
    classes_.clear();
    batch_ = scenario.batch;
  }
  if (period == 0 || !moderate(scenario)) return nullptr;
  period_ = period;
  past_ = scenario.past;
  const std::int64_t residue = scenario.length % period;
  last_ = 0;
  while (last_ < classes_.size() && !(classes_[last_].residue == residue && classes_[last_].breaks == breaks)) ++last_;
  if (last_ == classes_.size()) {
    if (classes_.size() == kMostClasses) classes_.clear(), last_ = 0;  // lengths rise, and leave classes behind
    classes_.emplace_back();
    classes_.back().residue = residue;
    classes_.back().breaks = breaks;
  }
  Class& c = classes_[last_];
  if (c.bent) return nullptr;
  if (!c.known) {
    if (++c.requests <= kLengthPatience) return nullptr;
    c.known = count(c, network, scenario, expectations);
    c.bent = !c.known;
    if (c.bent) return nullptr;
  }
  length_ = scenario.length;
  return scenario.length >= c.first && move_to(c, scenario.length, expectations, current_) ? &current_ : nullptr;
}

bool LengthLine::count(Class& c, const Network& network, const Scenario& scenario, bool expectations) const {
  c.first = scenario.length;
  Scenario at = scenario;
  const auto reaches = [&](std::int64_t steps) {
    at.length = c.first + steps * period_;
    return before_break(network, at, c.breaks);
  };
  std::vector<BlockExpectation> blocks[3];
  Sums sums[3];
  for (std::int64_t k = 0; k < 3; ++k) {
    if (!reaches(k)) return false;
    const ListTotals totals = expectations ? count_totals(network, at, blocks[k], &c.by_rows) : count_totals(network, at, false);
    if (k > 0 && totals.affine_in_batch != c.affine) return false;
    c.affine = totals.affine_in_batch;
    sums[k] = sums_of(totals);
  }
  c.sums = Parabolas<kSums>::through(sums[0], sums[1], sums[2]);
  if (expectations && !c.affine) {
    if (!c.by_rows) return false;
    c.blocks = std::move(blocks[0]);
    if (!fit(c, blocks[1], blocks[2])) return false;
  }
  int agreed = 0;
  for (const std::int64_t steps : {3, 1000, 250, 60, 15, 4}) {
    if (agreed == 2) break;
    if (!reaches(steps)) continue;
    ListTotals there;
    if (!move_to(c, at.length, expectations, there) || !same_totals(there, count_totals(network, at, expectations), expectations)) return false;
    ++agreed;
  }
  return agreed == 2;
}

bool LengthLine::fit(Class& c, const std::vector<BlockExpectation>& one, const std::vector<BlockExpectation>& two) {
  const std::vector<BlockExpectation>& blocks = c.blocks;
  c.ops.assign(blocks.size(), {});
  if (one.size() != blocks.size() || two.size() != blocks.size()) return false;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    c.fixed.push_back(Parabolas<5>::through(blocks[i].fixed, one[i].fixed, two[i].fixed));
    if (one[i].random.size() != blocks[i].random.size() || two[i].random.size() != blocks[i].random.size()) return false;
    for (std::size_t n = 0; n < blocks[i].random.size(); ++n) {
      std::array<u128, 5> none[3];
      std::array<u128, 1> rows[3];
      int k = 0;
      for (const BlockExpectation::Random* op : {&blocks[i].random[n], &one[i].random[n], &two[i].random[n]}) {
        if (!whole(row_of(op->units.none), none[k]) || op->units.none.rows != 0 || !whole(std::array<double, 1>{op->rows}, rows[k])) return false;
        ++k;
      }
      c.ops[i].push_back({Parabolas<5>::through(none[0], none[1], none[2]), Parabolas<1>::through(rows[0], rows[1], rows[2])});
    }
  }
  return true;
}

BlockExpectation::Random LengthLine::moved(const Class& c, std::size_t block, std::size_t op, std::int64_t length) const {
  BlockExpectation::Random here = c.blocks[block].random[op];
  const Op& along = c.ops[block][op];
  const std::int64_t steps = (length - c.first) / period_;
  const std::array<u128, 5> none = along.none.value(steps);
  here.units.none = {0, to_double(none[0]), to_double(none[1]), to_double(none[2]), to_double(none[3]), to_double(none[4])};
  here.rows = to_double(along.rows.value(steps)[0]);
  if (here.pairs < 0) return here;
  // As many queries of a sequence as it has rows, out of all its tokens.
  here.chosen.length = length;
  here.chosen.queries = here.sequences > 0 ? static_cast<std::int64_t>(here.rows / here.sequences) : 0;
  const ExpectedReach reach = expected_reach(here.chosen, past_);
  here.pairs = reach.pairs;
  here.keys = reach.keys;
  return here;
}

bool LengthLine::move_to(const Class& c, std::int64_t length, bool expectations, ListTotals& into) const {
  into = totals_of(c.sums.value((length - c.first) / period_));
  into.affine_in_batch = c.affine;
  if (!expectations) return true;
  if (c.affine) {
    into.expected = declared_as_expected(into.total);
    return true;
  }
  // The sum of Output::totals(), in its order.
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    ExpectedCost expected;
    for (std::size_t n = 0; n < c.blocks[i].random.size(); ++n) {
      const BlockExpectation::Random here = moved(c, i, n, length);
      for (const double each : row_of(here.units.none))
        if (each >= kExactDouble) return false;
      expected += expected_at(here.units, here.rows, here.sequences, here.pairs, here.keys);
    }
    const std::array<u128, 5> fixed = c.fixed[i].value((length - c.first) / period_);
    expected += ExpectedCost{0, to_double(fixed[0]), to_double(fixed[1]), to_double(fixed[2]), to_double(fixed[3]), to_double(fixed[4])};
    into.expected += expected * c.blocks[i].uses;
  }
  return true;
}

std::vector<BlockExpectation> LengthLine::blocks() const {
  const Class& c = classes_[last_];
  std::vector<BlockExpectation> here = c.blocks;
  for (std::size_t i = 0; i < here.size(); ++i) {
    here[i].fixed = c.fixed[i].value((length_ - c.first) / period_);
    for (std::size_t n = 0; n < here[i].random.size(); ++n) here[i].random[n] = moved(c, i, n, length_);
  }
  return here;
}

}  // namespace fathom
