#include "models/totals_breaks.hpp"

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "models/expert_loads.hpp"
#include "models/pairs.hpp"
#include "models/totals_sums.hpp"

namespace fathom {
namespace {

// What a layer's new tokens are.
struct Reach {
  std::int64_t length = 1;  // candidates of a sequence
  std::int64_t taken = 1;   // those that take the block, where their number is not random
  std::int64_t past = 0;
};

bool masked(const BlockConfig& kind, const Scenario& s) { return kind.attention && !s.full_mask && (kind.attention->window > 0 || kind.attention->chunk > 0); }

class Breaks {
 public:
  Breaks(const Scenario& scenario, std::vector<std::int64_t>& into) : scenario_(scenario), into_(into) { into_.clear(); }

  // Sizes that say 0 for "none": 64 of them in a number.
  void absent(std::initializer_list<std::int64_t> sizes) {
    std::int64_t bits = 0;
    for (const std::int64_t size : sizes) bits = 2 * bits + (size == 0 ? 1 : 0);
    add(bits);
  }
  void attention(const AttentionConfig& a, const Reach& reach, bool all_keys) {
    absent({a.rope_dim, a.window, a.chunk, a.mla ? a.mla->query_rank : 1, a.mla ? a.mla->rope_dim : 1});
    if (!scenario_.full_mask) mask(a, reach);
    if (!all_keys) return;
    // Keys of all tokens: the pairs of the queries that take part are their share of all, rounded up.
    const Mask all{scenario_.full_mask ? MaskKind::kFull : MaskKind::kCausal, a.window, a.chunk};
    add(static_cast<std::int64_t>(checked_mul(visible_pairs(all, reach.length, reach.past), product(reach.taken)) % product(std::max<std::int64_t>(1, reach.length))));
  }
  void experts(const MoeConfig& e, const Reach& reach) {
    absent({e.shared, e.noops, e.experts - 1});
    add(e.picks < e.experts);
    for (const std::int64_t of_sequence : {reach.length, reach.taken}) {
      const std::int64_t tokens = scenario_.batch * of_sequence;  // moderate(): far from overflow
      add(e.capacity ? expert_slots(e, tokens) : e.experts <= tokens * std::min(e.picks, e.experts));
    }
  }
  void add(std::int64_t value) { into_.push_back(value); }
  void mask(const AttentionConfig& a, const Reach& reach) {
    const std::int64_t ends[] = {reach.past, reach.past + reach.length, reach.past + reach.taken, reach.length, reach.taken};
    if (a.window > 0) {
      std::int64_t sides = a.window <= reach.past ? 1 : 0;
      for (const std::int64_t end : ends) sides = 2 * sides + (a.window < end ? 1 : 0);
      add(sides);
    } else if (a.chunk > 0) {
      for (const std::int64_t end : ends) add(end / a.chunk);
    }
  }

 private:
  const Scenario& scenario_;
  std::vector<std::int64_t>& into_;
};

}  // namespace

void breaks_of(const Network& network, const Scenario& s, std::vector<std::int64_t>& into) {
  const bool decode = s.phase == Phase::kDecode;
  Breaks breaks(s, into);
  breaks.absent({network.padded_vocab, network.max_length, network.mtp, network.lora ? network.lora->rank : 1});
  for (const BlockConfig& kind : network.kinds) {
    Reach reach;
    reach.length = decode ? 1 : s.length;
    reach.past = decode ? s.context - 1 : s.phase == Phase::kPrefill ? s.past : 0;
    reach.taken = kind.route ? slots_of(*kind.route, reach.length) : reach.length;
    breaks.add((kind.attention ? 1 : 0) + (kind.mlp ? 2 : 0) + (kind.route ? 4 : 0));
    if (kind.attention) breaks.attention(*kind.attention, reach, kind.route && kind.route->kv == KvPolicy::kAll);
    if (kind.mlp && kind.mlp->moe) breaks.experts(*kind.mlp->moe, reach);
    if (!kind.route) continue;
    const Route& route = *kind.route;
    breaks.absent({route.router_hidden, route.adapter, route.predictor ? route.predictor->hidden : 1, route.aux_lambda > 0 ? 1 : 0});
    breaks.add(reach.taken);
  }
}

bool ranked(const Scenario& s) { return (s.rule() == RoutingRule::kTopK || s.rule() == RoutingRule::kRandom) && s.phase != Phase::kDecode; }

std::int64_t length_period(const Network& network, const Scenario& s, std::int64_t longest) {
  if (s.phase != Phase::kTrain && s.phase != Phase::kPrefill) return 0;
  std::int64_t period = 1;
  bool halves = false;
  for (const BlockConfig& kind : network.kinds) {
    if (!kind.route) continue;
    const Route& route = *kind.route;
    // A share of earlier or of new tokens that follows from a number of slots is another one for every length.
    if ((!ranked(s) || s.past > 0) && !route.capacity && !s.participation) return 0;
    if (!ranked(s)) continue;
    if (route.capacity) period = std::lcm(period, std::min(route.capacity->den, longest + 1));
    if (period > longest) return 0;
    if (route.kv != KvPolicy::kAll || !kind.attention || s.full_mask) continue;
    // Queries of C tokens over keys of all S: pairs are the half of C (S + 1), rounded up.
    if (masked(kind, s)) return 0;
    halves = true;
  }
  if (halves) period *= 2;
  return period > longest ? 0 : period;
}

void length_breaks(const Network& network, const Scenario& s, std::vector<std::int64_t>& into) {
  Breaks breaks(s, into);
  breaks.add(s.length == 1);  // one token needs no gathering of the last
  for (const BlockConfig& kind : network.kinds) {
    Reach reach{s.length, s.length, s.phase == Phase::kPrefill ? s.past : 0};
    if (kind.route && ranked(s)) {
      const Route& route = *kind.route;
      reach.taken = slots_of(route, s.length);
      // A block whose slots are empty reads no weights, nor does a bypass adapter that no row is left for.
      const bool held = !route.capacity || reach.taken != route.capacity->of(s.length, route.rounding);
      breaks.add((reach.taken == 0 ? 1 : 0) + (reach.taken == s.length ? 2 : 0) + (held ? 4 : 0));
    }
    if (masked(kind, s)) breaks.mask(*kind.attention, reach);
    if (kind.mlp && kind.mlp->moe) breaks.experts(*kind.mlp->moe, reach);
  }
}

bool before_break(const Network& network, const Scenario& scenario, const std::vector<std::int64_t>& breaks) {
  if (!moderate(scenario)) return false;
  std::vector<std::int64_t> here;
  length_breaks(network, scenario, here);
  return here == breaks;
}

}  // namespace fathom
