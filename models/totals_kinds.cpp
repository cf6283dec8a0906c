#include "models/totals_kinds.hpp"

#include <algorithm>

#include "lib/error.hpp"
#include "models/fusion.hpp"
#include "models/pairs.hpp"

namespace fathom {
namespace {

constexpr int kKindPatience = 6;                  // networks of a family before its kinds are counted one by one
constexpr std::size_t kMostParts = 64;
constexpr std::int64_t kSampleSlots = 3;
constexpr std::int64_t kMostLayerSteps = 4096;  // layers times micro-steps: beyond, the builder says what is too much

Fraction rest_of(const Fraction& p) { return make_fraction(p.den - p.num, p.den); }

// Everything but how many tokens the route takes.
bool same_but_share(const BlockConfig& a, const BlockConfig& b) {
  if (a.route.has_value() != b.route.has_value() || !(a.attention == b.attention && a.mlp == b.mlp)) return false;
  if (a.norms != b.norms || a.post_norm_only != b.post_norm_only || a.parallel != b.parallel || a.parallel_norms != b.parallel_norms) return false;
  if (!a.route) return true;
  Route r = *a.route;
  r.capacity = b.route->capacity, r.slots = b.route->slots, r.rounding = b.route->rounding, r.min_slots = b.route->min_slots;
  return r == *b.route;
}

// The op's expectation with another share of the rows; `past` cached tokens.
BlockExpectation::Random moved(const BlockExpectation::Random& op, const Fraction& share, std::int64_t past) {
  BlockExpectation::Random here = op;
  here.units.probability = (op.rest ? rest_of(share) : share).value();
  if (!op.attention) return here;
  if (op.share != 1) {  // the cache holds that share of the past
    here.share = here.chosen.share = share.value();
    here.units.past = static_cast<double>(past) * here.share;
  }
  if (op.pairs < 0) return here;
  here.chosen.probability = here.units.probability;
  const ExpectedReach reach = expected_reach(here.chosen, past);
  here.pairs = reach.pairs;
  here.keys = reach.keys;
  return here;
}

bool same(const ExpectedCost& a, const ExpectedCost& b) {
  return a.rows == b.rows && a.flops == b.flops && a.flops_recompute == b.flops_recompute && a.elements == b.elements && a.read == b.read && a.written == b.written;
}

std::int64_t past_of(const Scenario& s) { return s.phase == Phase::kDecode ? s.context - 1 : s.past; }

}  // namespace

bool KindMemo::applies(const Network& network) const {
  const Scenario& s = scenario_;
  const bool training = s.phase == Phase::kTrain;
  if (s.phase == Phase::kGenerate || !moderate(s) || needs_list(s.fusions) || s.recompute == Recompute::kNamed) return false;
  if (network.mtp > 0 || !network.weights_of.empty() || network.layer_count() > kMostLayerSteps / std::max<std::int64_t>(1, training ? s.grad_accumulation : 1)) return false;
  return !training || (!network.lora && !network.freeze_embedding);  // else the first layers have no gradient of their input
}

KindMemo::Routing KindMemo::routing(const BlockConfig& kind) const {
  Routing r;
  if (!kind.route) return r;
  const RoutingRule rule = scenario_.rule();
  r.ranked = (rule == RoutingRule::kTopK || rule == RoutingRule::kRandom) && scenario_.phase != Phase::kDecode;
  if (r.ranked) {
    r.slots = slots_of(*kind.route, scenario_.length);
    if (scenario_.past == 0) return r;  // else the cache of the block holds the declared share
  }
  const std::int64_t total = past_of(scenario_) + (scenario_.phase == Phase::kDecode ? 1 : scenario_.length);
  if (scenario_.participation) r.share = *scenario_.participation;
  else r.share = kind.route->capacity ? *kind.route->capacity : make_fraction(slots_of(*kind.route, total), total);
  return r;
}

// Whether the sums of this routed kind are one polynomial in its slots, from one of them until no row is left for a bypass adapter.
bool KindMemo::polynomial(const BlockConfig& kind, const Routing& routing) const {
  const bool local = kind.attention && (kind.attention->window > 0 || kind.attention->chunk > 0);
  const bool past = scenario_.phase == Phase::kPrefill && scenario_.past > 0;
  if (!routing.ranked || local || past || (kind.mlp && kind.mlp->moe) || kind.route->kv == KvPolicy::kAll || scenario_.length <= kSampleSlots) return false;
  return routing.slots > 0 && (routing.slots < scenario_.length || kind.route->adapter == 0);
}

bool KindMemo::matches(Part& part, const BlockConfig& kind, const Routing& routing) const {
  if (!same_but_share(part.config, kind)) return false;
  if (!kind.route) return true;
  switch (part.form) {
    case Form::kOnce: return part.slots == routing.slots && part.share == routing.share;
    case Form::kSlots:
      if (!polynomial(kind, routing)) return false;
      if (part.slots != routing.slots) set_slots(part, routing.slots);
      return true;
    case Form::kShare:
      if (routing.share.num <= 0 || routing.share.num >= routing.share.den) return false;
      if (expectations_ && !(part.share == routing.share)) set_share(part, routing.share);
      return true;
  }
  return false;
}

KindMemo::Part* KindMemo::part(const Network& network, const BlockConfig& kind) {
  const Routing here = routing(kind);
  for (Part& known : parts_)
    if (matches(known, kind, here)) return &known;
  if (parts_.size() == kMostParts) parts_.clear();
  if (!make(network, kind, here)) return nullptr;
  return matches(parts_.back(), kind, here) ? &parts_.back() : nullptr;
}

bool KindMemo::one_layer(const Network& network, const Scenario& scenario, const BlockConfig& kind, Sums& sums, bool& affine, BlockExpectation& into) {
  Network sample = network;
  sample.kinds = {kind};
  sample.layers = {0};
  std::vector<BlockExpectation> blocks;
  bool by_rows = false;
  const auto count = [&] { return expectations_ ? count_totals(sample, scenario, blocks, &by_rows) : count_totals(sample, scenario, false); };
  const ListTotals one = count();
  sample.layers = {0, 0};
  const ListTotals two = count();
  if (one.affine_in_batch != two.affine_in_batch) return false;
  affine = one.affine_in_batch;
  const Sums single = sums_of(one), twice = sums_of(two);
  Sums ends;
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = twice[i] - single[i], ends[i] = single[i] - sums[i];
  if (ends_ && *ends_ != ends) throw_internal("the ends of an op list depend on its layers");
  ends_ = ends;
  if (!expectations_) return true;
  const bool training = scenario_.phase == Phase::kTrain;
  if (training) return affine;  // the order of its blocks is not that of the layers
  if (blocks.size() != 3 || blocks[1].uses != 2) return false;
  first_ = blocks[0];
  last_ = blocks[2];
  ends_affine_ = first_.random.empty() && last_.random.empty();
  into = blocks[1];
  return true;
}

ExpectedCost KindMemo::expectation(const BlockExpectation& block) {
  ExpectedCost expected;
  for (const BlockExpectation::Random& op : block.random) expected += op.cost;
  return expected += ExpectedCost{0, to_double(block.fixed[0]), to_double(block.fixed[1]), to_double(block.fixed[2]), to_double(block.fixed[3]), to_double(block.fixed[4])};
}

bool KindMemo::make(const Network& network, const BlockConfig& kind, const Routing& routing) {
  Part part;
  part.config = kind;
  part.slots = routing.slots;
  part.share = routing.share;
  const bool experts = kind.mlp && kind.mlp->moe;
  if (kind.route && polynomial(kind, routing)) {
    Sums sums[kSampleSlots];
    part.form = Form::kSlots;
    for (std::int64_t slots = 1; slots <= kSampleSlots; ++slots) {
      BlockConfig sample = kind;
      sample.route->capacity.reset();
      sample.route->slots = slots;
      sample.route->min_slots = 0;
      bool affine = false;
      if (!one_layer(network, scenario_, sample, sums[slots - 1], affine, part.block) || !affine) return false;
    }
    part.sums = Parabolas<kSums>::through(sums[0], sums[1], sums[2]);
    part.slots = -1;
    part.block = {};
    parts_.push_back(std::move(part));
    return true;
  }
  if (!one_layer(network, scenario_, kind, part.sums.at, part.affine, part.block)) return false;
  part.here = part.sums.at;
  part.expected = expectation(part.block);
  if (kind.route && !routing.ranked && !experts && routing.share.num > 0 && routing.share.num < routing.share.den) {
    // Believed where two other shares agree.
    part.form = Form::kShare;
    for (const Fraction& share : {Fraction{1, 3}, Fraction{5, 7}}) {
      Scenario sample = scenario_;
      sample.participation = share;
      Sums sums;
      bool affine = false;
      BlockExpectation block;
      if (!one_layer(network, sample, kind, sums, affine, block) || sums != part.sums.at || affine != part.affine) part.form = Form::kOnce;
      if (!expectations_ || part.form == Form::kOnce) continue;
      Part there = part;
      const bool whole = std::all_of(there.block.random.begin(), there.block.random.end(), [](const auto& op) { return op.by_rows; });
      if (!whole || block.fixed != part.block.fixed || block.random.size() != part.block.random.size()) {
        part.form = Form::kOnce;
        continue;
      }
      set_share(there, share);
      for (std::size_t n = 0; n < block.random.size(); ++n)
        if (!same(block.random[n].cost, there.block.random[n].cost)) part.form = Form::kOnce;
    }
  }
  parts_.push_back(std::move(part));
  return true;
}

void KindMemo::set_slots(Part& part, std::int64_t slots) {
  part.slots = slots;
  part.here = part.sums.value(slots - 1);
  const ListTotals one = totals_of(part.here);
  part.expected = declared_as_expected(one.total);
}

void KindMemo::set_share(Part& part, const Fraction& share) const {
  part.share = share;
  for (BlockExpectation::Random& op : part.block.random) {
    op = moved(op, share, past_of(scenario_));
    op.cost = expected_at(op.units, op.rows, op.sequences, op.pairs, op.keys);
  }
  part.expected = expectation(part.block);
}

const ListTotals* KindMemo::totals(std::uint64_t family, const Network& network, const Scenario& scenario, bool expectations) {
  scenario_.participation = scenario.participation;  // a share like any other
  if (family_ != family || expectations_ != expectations || !(scenario_ == scenario)) {
    family_ = family;
    scenario_ = scenario;
    expectations_ = expectations;
    requests_ = 0;
    refused_ = false;
    parts_.clear();
    ends_.reset();
  }
  if (refused_ || !applies(network) || ++requests_ <= kKindPatience) return nullptr;
  counts_.assign(network.kinds.size(), 0);
  order_.clear();
  for (const int kind : network.layers)
    if (counts_[static_cast<std::size_t>(kind)]++ == 0) order_.push_back(kind);
  constexpr std::size_t kMostKinds = 16;
  if (order_.size() > kMostKinds) return nullptr;
  Sums sums{};
  bool affine = true;
  const Part* chosen[kMostKinds];
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const BlockConfig& kind = network.kinds[static_cast<std::size_t>(order_[i])];
    try {
      Part* made = part(network, kind);
      if (!made) refused_ = true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInternal) throw;
      refused_ = true;  // counting says what is wrong
    }
    if (refused_) return nullptr;
  }
  // Now that every kind is there, none is moved or changed any more (two kinds may be one part with two shares: then they are taken one after the other).
  current_.expected = {};
  sums = *ends_;
  ExpectedCost expected;
  if (expectations_) expected = expectation(first_) * first_.uses;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const std::size_t index = static_cast<std::size_t>(order_[i]);
    chosen[i] = part(network, network.kinds[index]);
    if (!chosen[i]) return nullptr;
    const Sums& one = chosen[i]->here;
    const auto times = static_cast<u128>(counts_[index]);
    for (std::size_t k = 0; k < kSums; ++k)
      if (one[k] != 0) sums[k] = checked_add(sums[k], checked_mul(one[k], times));
    affine = affine && chosen[i]->affine;
    if (expectations_) expected += chosen[i]->expected * static_cast<double>(counts_[index]);
  }
  current_ = totals_of(sums);
  current_.affine_in_batch = affine && ends_affine_;
  if (!expectations_) return &current_;
  if (current_.affine_in_batch) {
    current_.expected = declared_as_expected(current_.total);
    return &current_;
  }
  if (scenario_.phase == Phase::kTrain) return nullptr;
  expected += expectation(last_) * last_.uses;
  current_.expected = expected;
  return &current_;
}

}  // namespace fathom
