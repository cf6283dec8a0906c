#include "models/totals_memo.hpp"

#include <algorithm>

#include "lib/error.hpp"
#include "models/totals_breaks.hpp"
#include "models/totals_sums.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kLongestPeriod = 64;
constexpr int kMemoPatience = 4;             // requests of a class before it is counted at six points
constexpr std::size_t kMostRules = 32;
constexpr std::int64_t kFirstLength = 4;     // where the surface begins: up to three slots fit
constexpr std::size_t kMostLengthClasses = 256;

}  // namespace

Sums TotalsMemo::Surface::value(std::int64_t length, const std::vector<std::int64_t>& slots) const {
  const std::int64_t x = length - kFirstLength;
  const u128 xx = wrap(x * (x - 1) / 2), ux = wrap(x);
  Sums sums = at;
  for (std::size_t k = 0; k < kSums; ++k)
    if ((at[k] | ds[k]) != 0) sums[k] += ux * ds[k] + xx * dss[k];
  for (std::size_t i = 0; i < rises.size(); ++i) {
    const std::int64_t y = slots[i] - 1;
    const u128 uy = wrap(y), yy = wrap(y * (y - 1) / 2), xy = wrap(x * y);
    const Rise& rise = rises[i];
    for (std::size_t k = 0; k < kSums; ++k)
      if ((rise.dc[k] | rise.dsc[k]) != 0) sums[k] += uy * rise.dc[k] + xy * rise.dsc[k] + yy * rise.dcc[k];
  }
  return sums;
}

// The rules by which routed blocks get their slots in a training or prefill step of S tokens, where every sum is a polynomial in S and those slots. False: it is not.
bool TotalsMemo::find_rules(const Network& network, const Scenario& s) {
  rules_.clear();
  rule_of_.assign(network.kinds.size(), 0);
  if ((s.phase != Phase::kTrain && s.phase != Phase::kPrefill) || !ranked(s) || s.past > 0) return false;
  for (std::size_t i = 0; i < network.kinds.size(); ++i) {
    const BlockConfig& kind = network.kinds[i];
    if (kind.attention && (kind.attention->window > 0 || kind.attention->chunk > 0)) return false;
    if (kind.mlp && kind.mlp->moe) return false;
    if (!kind.route) continue;
    const Route& route = *kind.route;
    if (route.kv == KvPolicy::kAll) return false;
    const auto known = std::find_if(rules_.begin(), rules_.end(), [&](const Route* rule) {
      return rule->capacity == route.capacity && rule->slots == route.slots && rule->rounding == route.rounding && rule->min_slots == route.min_slots;
    });
    rule_of_[i] = static_cast<std::size_t>(known - rules_.begin());
    if (known == rules_.end()) rules_.push_back(&route);
  }
  return !rules_.empty() && rules_.size() <= kMostRules;
}

// Sets first_ and slope_ from the surfaces, which are counted once they have been asked for often enough.
bool TotalsMemo::on_surface(const Network& network, const Scenario& scenario) {
  if (!surfaced_ || scenario.length < kFirstLength || !moderate(scenario)) return false;
  find_rules(network, scenario);
  slots_.clear();
  for (const Route* rule : rules_) slots_.push_back(slots_of(*rule, scenario.length));
  if (std::find(slots_.begin(), slots_.end(), 0) != slots_.end()) return false;  // an op without rows reads no weights
  for (std::size_t i = 0; i < network.kinds.size(); ++i)
    if (network.kinds[i].route && network.kinds[i].route->adapter > 0 && slots_[rule_of_[i]] == scenario.length) return false;
  if (!surfaces_) {
    if (++requests_ <= kMemoPatience * static_cast<int>(rules_.size())) return false;
    Network sample = network;
    Scenario at = scenario;
    std::vector<std::int64_t> slots;
    const auto surface = [&](std::int64_t batch, const Surface* less) {
      // Every rule has one slot, but `rule` has `other`.
      const auto count = [&](std::int64_t length, std::size_t rule, std::int64_t other) {
        slots.assign(rules_.size(), 1);
        if (rule < slots.size()) slots[rule] = other;
        for (std::size_t i = 0; i < sample.kinds.size(); ++i)
          if (std::optional<Route>& route = sample.kinds[i].route) route->capacity.reset(), route->slots = slots[rule_of_[i]], route->min_slots = 0;
        at.length = length;
        at.batch = batch;
        Sums sums = sums_of(count_totals(sample, at, false));
        if (!less) return sums;
        const Sums one = less->value(length, slots);
        for (std::size_t k = 0; k < kSums; ++k) sums[k] -= one[k];
        return sums;
      };
      constexpr std::int64_t s = kFirstLength;
      const std::size_t none = rules_.size();
      Surface result{};
      const Sums f = count(s, none, 1), fs = count(s + 1, none, 1), fss = count(s + 2, none, 1);
      result.at = f;
      for (std::size_t k = 0; k < kSums; ++k) result.ds[k] = fs[k] - f[k], result.dss[k] = fss[k] - 2 * fs[k] + f[k];
      for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
        const Sums fc = count(s, rule, 2), fcc = count(s, rule, 3), fsc = count(s + 1, rule, 2);
        Surface::Rise& rise = result.rises.emplace_back();
        for (std::size_t k = 0; k < kSums; ++k) {
          rise.dc[k] = fc[k] - f[k];
          rise.dcc[k] = fcc[k] - 2 * fc[k] + f[k];
          rise.dsc[k] = fsc[k] - fs[k] - fc[k] + f[k];
        }
      }
      return result;
    };
    const Surface single = surface(1, nullptr);
    surfaces_ = std::pair{single, surface(2, &single)};
  }
  slope_ = totals_of(surfaces_->second.value(scenario.length, slots_));
  first_ = plus(totals_of(surfaces_->first.value(scenario.length, slots_)), *slope_, static_cast<u128>(scenario.batch - 1));
  first_.affine_in_batch = true;
  if (expectations_) first_.expected = declared_as_expected(first_.total);
  return true;
}

// The sum of Output::totals(), in its order.
ExpectedCost TotalsMemo::expected_along(std::int64_t batch) const {
  const double scale = static_cast<double>(batch), from = static_cast<double>(scenario_->batch);
  ExpectedCost sum;
  ExpectedUnits units;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const BlockExpectation& block = blocks_[i];
    ExpectedCost expected;
    for (std::size_t n = 0; n < block.random.size(); ++n) {
      const BlockExpectation::Random& op = block.random[n];
      // What the op costs without rows may grow with the batch: a selection looks at every candidate. One sequence's pairs and keys are known (expectation_slopes).
      units = op.units;
      units.none += blocks_slope_[i].random[n].units.none * (scale - from);
      expected += expected_at(units, op.rows / from * scale, op.sequences / from * scale, op.pairs < 0 ? -1 : op.pairs * scale, op.keys * scale);
    }
    std::array<double, 5> fixed;
    for (std::size_t k = 0; k < fixed.size(); ++k) fixed[k] = to_double(block.fixed[k] + blocks_slope_[i].fixed[k] * static_cast<u128>(batch - scenario_->batch));
    expected += ExpectedCost{0, fixed[0], fixed[1], fixed[2], fixed[3], fixed[4]};
    sum += expected * block.uses;
  }
  return sum;
}

ListTotals TotalsMemo::Polynomial::value(std::int64_t t) const {
  const u128 steps = static_cast<u128>(t);
  return t == 0 ? at : plus(plus(at, d1, steps), d2, steps * (steps - 1) / 2);
}

ListTotals TotalsMemo::along(std::int64_t batch) const {
  ListTotals totals = plus(first_, *slope_, static_cast<u128>(batch - scenario_->batch));
  if (expectations_) totals.expected = blocks_.empty() ? declared_as_expected(totals.total) : expected_along(batch);
  return totals;
}

// Turns blocks_slope_ from the expectations of `steps` further sequences into those per sequence; `one`: of a single one. False where more than the rows differs.
bool TotalsMemo::expectation_slopes(u128 steps, const std::vector<BlockExpectation>& one) {
  if (blocks_slope_.size() != blocks_.size() || one.size() != blocks_.size()) return false;
  const double by = to_double(steps);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    BlockExpectation &first = blocks_[i], &later = blocks_slope_[i];
    if (later.random.size() != first.random.size() || one[i].random.size() != first.random.size()) return false;
    for (std::size_t k = 0; k < first.fixed.size(); ++k) {
      const u128 rise = checked_sub(later.fixed[k], first.fixed[k]);
      if (rise % steps != 0) return false;
      later.fixed[k] = rise / steps;
    }
    for (std::size_t n = 0; n < first.random.size(); ++n) {
      const ExpectedUnits &a = first.random[n].units, &b = later.random[n].units;
      if (!(a.slope == b.slope && a.fixed == b.fixed && a.pair == b.pair && a.key == b.key && a.past == b.past && a.probability == b.probability)) return false;
      first.random[n].pairs = one[i].random[n].pairs;
      first.random[n].keys = one[i].random[n].keys;
      later.random[n].units.none = {0, (b.none.flops - a.none.flops) / by, (b.none.flops_recompute - a.none.flops_recompute) / by, (b.none.elements - a.none.elements) / by,
                                    (b.none.read - a.none.read) / by, (b.none.written - a.none.written) / by};
    }
  }
  return true;
}

TotalsMemo::LengthClass* TotalsMemo::class_of(const Scenario& scenario) {
  if (period_ == 0 || !moderate(scenario)) return nullptr;
  const std::int64_t residue = scenario.length % period_;
  for (auto known = classes_.rbegin(); known != classes_.rend(); ++known)
    if (known->residue == residue && known->breaks == breaks_) return &*known;
  if (classes_.size() == kMostLengthClasses) classes_.clear();  // lengths rise, and leave classes behind
  classes_.emplace_back();
  classes_.back().residue = residue;
  classes_.back().breaks = breaks_;
  return &classes_.back();
}

// Sets first_ and slope_ for this length, from its class where that has been asked for often enough, else by counting.
void TotalsMemo::follow(const Network& network, const Scenario& scenario) {
  slope_.reset();
  blocks_.clear();
  on_line_ = Line::kNone;
  if (const ListTotals* totals = contexts_.at(network, scenario, expectations_)) {
    first_ = *totals;
    if (expectations_ && !first_.affine_in_batch) on_line_ = Line::kContexts;
    return;
  }
  if (on_surface(network, scenario)) return;
  if (period_ > 0) length_breaks(network, scenario, breaks_);
  if (random_lengths_) {
    if (const ListTotals* totals = lengths_.at(network, scenario, expectations_, period_, breaks_)) {
      first_ = *totals;
      if (expectations_ && !first_.affine_in_batch) on_line_ = Line::kLengths;
      return;
    }
  }
  LengthClass* lengths = random_lengths_ ? nullptr : class_of(scenario);
  if (lengths && lengths->first == 0 && ++lengths->requests > kMemoPatience) {
    ListTotals one[3], two[3];
    bool same = true;
    Scenario at = scenario;
    for (int k = 0; k < 3 && same; ++k) {
      at.length = scenario.length + k * period_;
      at.batch = 1;
      same = before_break(network, at, lengths->breaks);
      if (!same) break;
      one[k] = count_totals(network, at, expectations_);  // which are affine too, or else no class is made
      at.batch = 2;
      two[k] = minus(count_totals(network, at, false), one[k]);
      same = one[k].affine_in_batch;
    }
    if (same) {
      const auto fit = [](const ListTotals* f) { return Polynomial{f[0], minus(f[1], f[0]), minus(minus(f[2], f[1]), minus(f[1], f[0]))}; };
      lengths->single = fit(one);
      lengths->per_sequence = fit(two);
      lengths->first = scenario.length;
    } else {
      lengths->requests = -8 * kMemoPatience;
    }
  }
  if (lengths && lengths->first > 0 && scenario.length >= lengths->first) {
    const std::int64_t t = (scenario.length - lengths->first) / period_;
    slope_ = lengths->per_sequence.value(t);
    first_ = plus(lengths->single.value(t), *slope_, static_cast<u128>(scenario.batch - 1));
    first_.affine_in_batch = true;
    if (expectations_) first_.expected = declared_as_expected(first_.total);
    return;
  }
  first_ = expectations_ ? count_totals(network, scenario, blocks_) : count_totals(network, scenario, false);
  if (first_.affine_in_batch) blocks_.clear();
}

const ListTotals& TotalsMemo::totals(const Network& network, std::uint64_t network_id, const Scenario& scenario, bool expectations) {
  bool same = scenario_ && id_ == network_id && expectations_ == expectations;
  bool same_length = false;
  if (same) {
    Scenario base = scenario;
    base.batch = scenario_->batch;
    same_length = base == *scenario_;
    base.length = scenario_->length;
    if (scenario.phase == Phase::kDecode) base.context = scenario_->context;
    same = same_length || base == *scenario_;
  }
  if (!same) {
    id_ = network_id;
    expectations_ = expectations;
    surfaced_ = find_rules(network, scenario);
    period_ = length_period(network, scenario, kLongestPeriod);
    random_lengths_ = random_along_lengths(network, scenario, expectations);
    classes_.clear();
    surfaces_.reset();
    requests_ = 0;
    blocks_.clear();
    contexts_.reset();
    lengths_.reset();
  }
  if (!same_length) {
    scenario_.reset();  // nothing is remembered if counting throws
    follow(network, scenario);
    scenario_ = scenario;
    return first_;
  }
  if (scenario.batch == scenario_->batch) return first_;
  if (on_line_ == Line::kContexts) blocks_ = contexts_.blocks();
  if (on_line_ == Line::kLengths) blocks_ = lengths_.blocks();
  on_line_ = Line::kNone;
  const bool affine = first_.affine_in_batch || !blocks_.empty();
  if (!affine || scenario.batch < scenario_->batch || !moderate(scenario)) return current_ = count_totals(network, scenario, expectations);
  if (slope_) return current_ = along(scenario.batch);
  current_ = blocks_.empty() ? count_totals(network, scenario, expectations) : count_totals(network, scenario, blocks_slope_);
  const u128 steps = static_cast<u128>(scenario.batch - scenario_->batch);
  bool whole = true;
  slope_ = combine(current_, first_, [&](u128 x, u128 y) {
    const u128 rise = checked_sub(x, y);
    whole = whole && rise % steps == 0;
    return rise / steps;
  });
  if (!blocks_.empty()) {
    std::vector<BlockExpectation> one;
    Scenario single = scenario;
    single.batch = 1;
    count_totals(network, single, one);
    if (!expectation_slopes(steps, one)) {
      blocks_.clear();  // each batch is counted
      slope_.reset();
    }
  }
  if (!whole) throw_internal("the sums over an op list are not affine in the batch");
  return current_;
}

}  // namespace fathom
