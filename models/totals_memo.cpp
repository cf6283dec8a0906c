#include "models/totals_memo.hpp"

#include <algorithm>
#include <numeric>

#include "lib/error.hpp"
#include "models/totals_sums.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kLongestPeriod = 64;
constexpr int kMemoPatience = 4;  // requests of a class before it is counted at six points

bool local(const BlockConfig& kind) { return kind.attention && (kind.attention->window > 0 || kind.attention->chunk > 0); }

// Period in the length over which every sum is a polynomial while no window or chunk ends (stretch_of), 0 where there is none.
std::int64_t length_period(const Network& network, const Scenario& s, bool expectations) {
  if (s.phase != Phase::kTrain && s.phase != Phase::kPrefill) return 0;
  std::int64_t period = 1;
  for (const BlockConfig& kind : network.kinds) {
    // Without a limit per expert all of them are read once there are as many rows (ListTotals::affine_in_batch says whether there are).
    if (kind.mlp && kind.mlp->moe && expectations) return 0;
    if (!kind.route) continue;
    if (local(kind)) return 0;
    const Route& route = *kind.route;
    if (s.rule() != RoutingRule::kTopK || !route.capacity || route.min_slots > 0 || route.kv == KvPolicy::kAll) return 0;
    period = std::lcm(period, std::min(route.capacity->den, kLongestPeriod + 1));
    if (period > kLongestPeriod) return 0;
  }
  return network.kinds.size() <= 64 ? period : 0;
}

// Which routed blocks have rows: one whose slots are empty reads no weights, nor does a bypass adapter that no row is left for. Two bits a kind.
std::array<std::uint64_t, 2> idle_parts(const Network& network, std::int64_t length) {
  std::array<std::uint64_t, 2> idle{};
  for (size_t i = 0; i < network.kinds.size(); ++i) {
    const std::optional<Route>& route = network.kinds[i].route;
    if (!route) continue;
    const std::int64_t slots = slots_of(*route, length);
    if (slots == 0) idle[0] |= std::uint64_t{1} << i;
    if (slots == length && route->adapter > 0) idle[1] |= std::uint64_t{1} << i;
  }
  return idle;
}

constexpr std::int64_t kFirstLength = 4;  // where the surface begins: up to three slots fit

// The route whose slots all routed blocks have in a training or prefill step of S tokens, where every sum is a polynomial in S and those slots. nullptr: there is none.
const Route* common_route(const Network& network, const Scenario& s) {
  if ((s.phase != Phase::kTrain && s.phase != Phase::kPrefill) || s.rule() != RoutingRule::kTopK || (s.phase == Phase::kPrefill && s.past > 0)) return nullptr;
  const Route* common = nullptr;
  for (const BlockConfig& kind : network.kinds) {
    if (local(kind) || (kind.mlp && kind.mlp->moe)) return nullptr;
    if (!kind.route) continue;
    const Route& route = *kind.route;
    if (!route.capacity || route.slots || route.min_slots > 0 || route.kv == KvPolicy::kAll) return nullptr;
    if (common && !(common->capacity == route.capacity && common->rounding == route.rounding)) return nullptr;
    common = &route;
  }
  return common;
}

}  // namespace

Sums TotalsMemo::Surface::value(std::int64_t length, std::int64_t slots) const {
  const std::int64_t x = length - kFirstLength, y = slots - 1;
  const u128 xx = wrap(x * (x - 1) / 2), xy = wrap(x * y), yy = wrap(y * (y - 1) / 2), ux = wrap(x), uy = wrap(y);
  Sums sums = at;
  for (std::size_t i = 0; i < kSums; ++i)
    if ((at[i] | ds[i] | dc[i] | dsc[i]) != 0) sums[i] += ux * ds[i] + uy * dc[i] + xx * dss[i] + xy * dsc[i] + yy * dcc[i];
  return sums;
}

void TotalsMemo::count_surfaces(const Network& network, const Scenario& scenario) {
  Network sample = network;
  Scenario at = scenario;
  const auto surface = [&](std::int64_t batch, const Surface* less) {
    const auto count = [&](std::int64_t length, std::int64_t slots) {
      for (BlockConfig& kind : sample.kinds)
        if (kind.route) kind.route->capacity.reset(), kind.route->slots = slots;
      at.length = length;
      at.batch = batch;
      Sums sums = sums_of(count_totals(sample, at, false));
      if (less) {
        const Sums one = less->value(length, slots);
        for (std::size_t i = 0; i < kSums; ++i) sums[i] -= one[i];
      }
      return sums;
    };
    constexpr std::int64_t s = kFirstLength;
    const Sums f = count(s, 1), fs = count(s + 1, 1), fss = count(s + 2, 1), fc = count(s, 2), fcc = count(s, 3), fsc = count(s + 1, 2);
    Surface result{};
    result.at = f;
    for (std::size_t i = 0; i < kSums; ++i) {
      result.ds[i] = fs[i] - f[i];
      result.dc[i] = fc[i] - f[i];
      result.dss[i] = fss[i] - 2 * fs[i] + f[i];
      result.dcc[i] = fcc[i] - 2 * fc[i] + f[i];
      result.dsc[i] = fsc[i] - fs[i] - fc[i] + f[i];
    }
    return result;
  };
  const Surface single = surface(1, nullptr);
  surfaces_ = std::pair{single, surface(2, &single)};
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

TotalsMemo::LengthClass* TotalsMemo::class_of(const Network& network, const Scenario& scenario) {
  if (period_ == 0 || scenario.length < 2 || !moderate(scenario)) return nullptr;  // one token needs no gathering of the last
  const std::int64_t residue = scenario.length % period_;
  const std::array<std::uint64_t, 2> idle = idle_parts(network, scenario.length);
  const std::int64_t stretch = stretch_of(network, scenario.past + scenario.length);
  if (!classes_.empty() && classes_.back().stretch != stretch) classes_.clear();  // lengths rise, and leave a stretch behind
  for (LengthClass& known : classes_)
    if (known.residue == residue && known.idle == idle) return &known;
  classes_.emplace_back();
  classes_.back().residue = residue;
  classes_.back().idle = idle;
  classes_.back().stretch = stretch;
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
  if (const ListTotals* totals = lengths_.at(network, scenario, expectations_)) {
    first_ = *totals;
    if (expectations_ && !first_.affine_in_batch) on_line_ = Line::kLengths;
    return;
  }
  if (one_capacity_ && scenario.length >= kFirstLength && moderate(scenario)) {
    const std::int64_t slots = slots_of(*common_route(network, scenario), scenario.length);
    const bool spare = slots < scenario.length || std::none_of(network.kinds.begin(), network.kinds.end(), [](const BlockConfig& kind) { return kind.route && kind.route->adapter > 0; });
    if (slots > 0 && spare && (surfaces_ || ++requests_ > kMemoPatience)) {
      if (!surfaces_) count_surfaces(network, scenario);
      slope_ = totals_of(surfaces_->second.value(scenario.length, slots));
      first_ = plus(totals_of(surfaces_->first.value(scenario.length, slots)), *slope_, static_cast<u128>(scenario.batch - 1));
      first_.affine_in_batch = true;
      if (expectations_) first_.expected = declared_as_expected(first_.total);
      return;
    }
  }
  LengthClass* lengths = class_of(network, scenario);
  if (lengths && lengths->first == 0 && ++lengths->requests > kMemoPatience) {
    ListTotals one[3], two[3];
    bool same = stretch_of(network, scenario.past + scenario.length + 2 * period_) == lengths->stretch;
    Scenario at = scenario;
    for (int k = 0; k < 3 && same; ++k) {
      at.length = scenario.length + k * period_;
      at.batch = 1;
      one[k] = count_totals(network, at, false);
      at.batch = 2;
      two[k] = minus(count_totals(network, at, false), one[k]);
      same = same && one[k].affine_in_batch;
      same = same && idle_parts(network, at.length) == lengths->idle;
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
    one_capacity_ = common_route(network, scenario) != nullptr;
    period_ = one_capacity_ ? 0 : length_period(network, scenario, expectations);
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
