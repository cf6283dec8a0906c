#include "models/totals_memo.hpp"

#include <algorithm>
#include <numeric>

#include "lib/error.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 24;  // batches and lengths far from overflow anywhere in an op list
constexpr std::int64_t kLongestPeriod = 64;
constexpr int kPatience = 4;  // requests of a class before it is counted at six points

// f(a, b) of every exact sum.
template <class F>
ListTotals combine(const ListTotals& a, const ListTotals& b, F&& f) {
  ListTotals into = a;
  const auto apply = [&](const auto& x, const auto& y, auto& z) { z = std::decay_t<decltype(z)>(f(x.value(), y.value())); };
  apply(a.total.flops, b.total.flops, into.total.flops);
  apply(a.total.flops_recompute, b.total.flops_recompute, into.total.flops_recompute);
  for (size_t i = 0; i < a.total.elements.size(); ++i) apply(a.total.elements[i], b.total.elements[i], into.total.elements[i]);
  apply(a.total.read, b.total.read, into.total.read);
  apply(a.total.written, b.total.written, into.total.written);
  for (size_t i = 0; i < a.flops_by_part.size(); ++i) apply(a.flops_by_part[i], b.flops_by_part[i], into.flops_by_part[i]);
  for (size_t i = 0; i < a.flops_by_pass.size(); ++i) apply(a.flops_by_pass[i], b.flops_by_pass[i], into.flops_by_pass[i]);
  return into;
}
ListTotals plus(const ListTotals& a, const ListTotals& b, u128 times) {
  return combine(a, b, [&](u128 x, u128 y) { return y == 0 ? x : checked_add(x, checked_mul(y, times)); });
}
ListTotals minus(const ListTotals& a, const ListTotals& b) {
  return combine(a, b, [](u128 x, u128 y) { return checked_sub(x, y); });
}

bool moderate(const Scenario& s) { return s.batch <= kLargest && std::max({s.length, s.context, s.past}) <= kLargest; }

// Period in the length over which every sum is a polynomial, 0 where there is none.
std::int64_t length_period(const Network& network, const Scenario& s) {
  if (s.phase != Phase::kTrain && s.phase != Phase::kPrefill) return 0;
  std::int64_t period = 1;
  for (const BlockConfig& kind : network.kinds) {
    if (kind.attention && (kind.attention->window > 0 || kind.attention->chunk > 0)) return 0;
    if (kind.mlp && kind.mlp->moe) return 0;
    if (!kind.route) continue;
    const Route& route = *kind.route;
    if (s.rule() != RoutingRule::kTopK || !route.capacity || route.min_slots > 0 || route.kv == KvPolicy::kAll) return 0;
    period = std::lcm(period, std::min(route.capacity->den, kLongestPeriod + 1));
    if (period > kLongestPeriod) return 0;
  }
  return network.kinds.size() <= 64 ? period : 0;
}

}  // namespace

ListTotals TotalsMemo::Polynomial::value(std::int64_t t) const {
  const u128 steps = static_cast<u128>(t);
  return t == 0 ? at : plus(plus(at, d1, steps), d2, steps * (steps - 1) / 2);
}

ListTotals TotalsMemo::along(std::int64_t batch) const {
  ListTotals totals = plus(first_, *slope_, static_cast<u128>(batch - scenario_->batch));
  if (expectations_) totals.expected = declared_as_expected(totals.total);
  return totals;
}

TotalsMemo::LengthClass* TotalsMemo::class_of(const Network& network, const Scenario& scenario) {
  if (period_ == 0 || scenario.length < 2 || !moderate(scenario)) return nullptr;  // one token needs no gathering of the last
  const std::int64_t residue = scenario.length % period_;
  std::uint64_t empty = 0;
  for (size_t i = 0; i < network.kinds.size(); ++i)
    if (network.kinds[i].route && slots_of(*network.kinds[i].route, scenario.length) == 0) empty |= std::uint64_t{1} << i;
  for (LengthClass& known : classes_)
    if (known.residue == residue && known.empty == empty) return &known;
  classes_.emplace_back();
  classes_.back().residue = residue;
  classes_.back().empty = empty;
  return &classes_.back();
}

// Sets first_ and slope_ for this length, from its class where that has been asked for often enough, else by counting.
void TotalsMemo::follow(const Network& network, const Scenario& scenario) {
  slope_.reset();
  LengthClass* lengths = class_of(network, scenario);
  if (lengths && lengths->first == 0 && ++lengths->requests > kPatience) {
    ListTotals one[3], two[3];
    bool same = true;
    Scenario at = scenario;
    for (int k = 0; k < 3; ++k) {
      at.length = scenario.length + k * period_;
      at.batch = 1;
      one[k] = count_totals(network, at, false);
      at.batch = 2;
      two[k] = minus(count_totals(network, at, false), one[k]);
      same = same && one[k].affine_in_batch;
      for (size_t i = 0; i < network.kinds.size(); ++i)  // an empty routed block must stay so
        if ((lengths->empty >> i & 1) != 0) same = same && slots_of(*network.kinds[i].route, at.length) == 0;
    }
    if (same) {
      const auto fit = [](const ListTotals* f) { return Polynomial{f[0], minus(f[1], f[0]), minus(minus(f[2], f[1]), minus(f[1], f[0]))}; };
      lengths->single = fit(one);
      lengths->per_sequence = fit(two);
      lengths->first = scenario.length;
    } else {
      lengths->requests = 0;
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
  first_ = count_totals(network, scenario, expectations_);
}

const ListTotals& TotalsMemo::totals(const Network& network, std::uint64_t network_id, const Scenario& scenario, bool expectations) {
  bool same = scenario_ && id_ == network_id && expectations_ == expectations;
  bool same_length = false;
  if (same) {
    Scenario base = scenario;
    base.batch = scenario_->batch;
    same_length = base == *scenario_;
    base.length = scenario_->length;
    same = same_length || base == *scenario_;
  }
  if (!same) {
    id_ = network_id;
    expectations_ = expectations;
    period_ = length_period(network, scenario);
    classes_.clear();
  }
  if (!same_length) {
    scenario_.reset();  // nothing is remembered if counting throws
    follow(network, scenario);
    scenario_ = scenario;
    return first_;
  }
  if (scenario.batch == scenario_->batch) return first_;
  if (!first_.affine_in_batch || scenario.batch < scenario_->batch || !moderate(scenario)) return current_ = count_totals(network, scenario, expectations);
  if (slope_) return current_ = along(scenario.batch);
  current_ = count_totals(network, scenario, expectations);
  const u128 steps = static_cast<u128>(scenario.batch - scenario_->batch);
  bool whole = true;
  slope_ = combine(current_, first_, [&](u128 x, u128 y) {
    const u128 rise = checked_sub(x, y);
    whole = whole && rise % steps == 0;
    return rise / steps;
  });
  if (!whole) throw_internal("the sums over an op list are not affine in the batch");
  return current_;
}

}  // namespace fathom
