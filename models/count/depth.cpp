#include "models/count/depth.hpp"

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "lib/predict/binomial.hpp"
#include "models/builder.hpp"
#include "models/count/convention.hpp"
#include "models/params.hpp"

namespace fathom {

Rational forward_ratio(const Network& routed, std::string_view convention, std::int64_t length) {
  const Convention& rule = find_convention(convention);
  if (!rule.routed) throw_input("this convention does not know depth routing", {"", 0, "convention"}, "use exact, full, mod-a, mod-b or mod-c");
  return count_convention(rule, routed, length).per_token / count_convention(rule, dense_twin(routed), length).per_token;
}

namespace {

Workload forward_list(const Network& network, std::int64_t length, bool full_mask, std::optional<RoutingRule> rule = {}, std::optional<Fraction> participation = {}) {
  Scenario scenario;
  scenario.length = length;
  scenario.logits = LogitsKind::kNone;
  scenario.full_mask = full_mask;
  scenario.write_cache = false;
  scenario.routing = rule;
  scenario.participation = participation;
  return build(network, scenario);
}

template <class Wanted>
double sum_flops(const Workload& list, Wanted&& wanted) {
  double sum = 0;
  for (size_t i = 0; i < list.ops().size(); ++i)
    if (wanted(list.ops()[i])) sum += expected_cost(list.ops()[i]).flops * static_cast<double>(list.uses(static_cast<int>(i)));
  return sum;
}

}  // namespace

double part_flops(const Network& network, std::int64_t length, bool full_mask, std::initializer_list<Part> parts) {
  return sum_flops(forward_list(network, length, full_mask), [&](const Op& op) { return std::find(parts.begin(), parts.end(), op.part) != parts.end(); });
}

double router_flops(const Network& network, std::int64_t length) {
  return sum_flops(forward_list(network, length, false), [](const Op& op) { return op.part == Part::kRouter && op.leaf.starts_with("route/"); });
}

double predictor_flops(const Network& network, std::int64_t length) {
  double sum = 0;
  for (std::int64_t l = 0; l < network.layer_count(); ++l) {
    const std::optional<Route>& route = network.block(l).route;
    if (route && route->predictor)
      sum += sum_flops(forward_list(only_block(network, l), length, false, RoutingRule::kPredictor), [](const Op& op) { return op.part == Part::kPredictor; });
  }
  return sum;
}

std::optional<double> parts_ratio(const Network& routed, std::int64_t length, bool full_mask, std::initializer_list<Part> parts) {
  const double dense = part_flops(dense_twin(routed), length, full_mask, parts);
  return dense > 0 ? std::optional(part_flops(routed, length, full_mask, parts) / dense) : std::nullopt;
}

Network only_block(const Network& network, std::int64_t layer) {
  Network one = network;
  one.layers = {network.layers[static_cast<size_t>(layer)]};
  if (!one.weights_of.empty()) one.weights_of = {0};
  one.mtp = 0;
  return one;
}

Network alternate(const Network& dense, std::int64_t every, const Fraction& capacity) {
  Route route;
  route.capacity = capacity;
  if (dense.weights_of.empty()) return with_routes(dense, every, route);
  // A routed layer cannot share the weights of a full one: each weight set becomes two, one of the routed layers that had it and one of the others.
  Network split = dense;
  for (std::size_t l = 0; l < split.weights_of.size(); ++l)
    split.weights_of[l] = 2 * split.weights_of[l] + (static_cast<std::int64_t>(l) % every == every - 1 ? 1 : 0);
  return with_routes(split, every, route);
}

Rational block_flops(const Forms& forms, const BlockConfig& block, const TokenShares& shares) {
  Rational keys_and_values;
  if (block.attention && !block.attention->mla) keys_and_values = Rational(4) * forms.width * block.attention->kv_heads * block.attention->head_dim;
  const Rational queries = forms.projections(block) - keys_and_values;
  return forms.length * (shares.queries * queries + shares.keys * keys_and_values + shares.mlp * (forms.ffn(block) + forms.router(block))) +
         Forms::pair_cost(block) * shares.pairs;
}

Rational full_block_flops(const Forms& forms, const BlockConfig& block) {
  TokenShares all;
  all.pairs = forms.length * forms.length;
  return block_flops(forms, block, all);
}

Rational routed_share(const Network& routed) {
  std::int64_t count = 0;
  for (std::int64_t l = 0; l < routed.layer_count(); ++l) count += routed.block(l).route.has_value();
  return Rational(count, routed.layer_count());
}

Rational skipping_share(const Network& routed, std::int64_t length) {
  std::int64_t count = 0;
  for (std::int64_t l = 0; l < routed.layer_count(); ++l) count += routed.block(l).route && slots_of(*routed.block(l).route, length) < length;
  return Rational(count, routed.layer_count());
}

namespace {

template <class Share>
std::vector<Rational> shares_of(const Network& routed, Share&& share) {
  std::vector<Rational> shares;
  for (std::int64_t l = 0; l < routed.layer_count(); ++l)
    if (const std::optional<Route>& route = routed.block(l).route) shares.push_back(share(*route));
  return shares;
}

Rational mean(const std::vector<Rational>& values) {
  Rational sum;
  for (const Rational& value : values) sum += value;
  return values.empty() ? Rational(1) : sum / Rational(static_cast<std::int64_t>(values.size()));
}

}  // namespace

std::vector<Rational> capacity_shares(const Network& routed, std::int64_t length) {
  return shares_of(routed, [length](const Route& route) { return route.capacity ? Rational::of(*route.capacity) : Rational(slots_of(route, length), length); });
}
std::vector<Rational> slot_shares(const Network& routed, std::int64_t length) {
  return shares_of(routed, [length](const Route& route) { return Rational(slots_of(route, length), length); });
}
Rational mean_capacity(const Network& routed, std::int64_t length) { return mean(capacity_shares(routed, length)); }
Rational mean_slots(const Network& routed, std::int64_t length) { return mean(slot_shares(routed, length)); }

double routed_work(const Network& routed, std::int64_t length, const Fraction& more) {
  double sum = 0;
  std::vector<double> by_kind(routed.kinds.size(), -1);
  for (std::int64_t l = 0; l < routed.layer_count(); ++l) {
    const std::optional<Route>& route = routed.block(l).route;
    if (!route) continue;
    double& work = by_kind[static_cast<size_t>(routed.layers[static_cast<size_t>(l)])];
    if (work < 0) {
      const Network block = only_block(routed, l);
      const auto at = [&](const Fraction& share) { return sum_flops(forward_list(block, length, false, RoutingRule::kThreshold, share), [](const Op& op) { return op.part == Part::kProjection || op.part == Part::kFfn || op.part == Part::kExperts; }); };
      const Fraction slots = make_fraction(slots_of(*route, length), length);
      const Fraction wanted = make_fraction(slots.num * more.den + more.num * slots.den, slots.den * more.den);
      work = at(wanted.num > wanted.den ? Fraction{1, 1} : wanted) - at({0, 1});
    }
    sum += work;
  }
  return sum;
}

Rational kv_saving(const Network& routed, std::int64_t length) {
  Rational dense, kept;
  for (std::int64_t l = 0; l < routed.cached_layers(); ++l) {
    const BlockConfig& block = routed.cached_block(l);
    BlockConfig full = block;
    full.route.reset();
    const Rational bytes = Rational::of(kv_token_bytes(block, DType::kBF16).value()), rows(kv_rows(full, length));  // a window or chunk holds no more
    const std::optional<Fraction> share = kv_share(block);
    const Rational stored = share ? Rational::of(*share) * length : Rational(slots_of(*block.route, length));
    dense += bytes * rows;
    kept += bytes * (stored < rows ? stored : rows);
  }
  return dense.zero() ? Rational() : Rational(1) - kept / dense;
}

double decode_roofline(const Network& network, std::int64_t batch, std::int64_t context, const DecodeMachine& machine) {
  const Forms forms(network, 1);
  const double cached = static_cast<double>(context);
  double seconds = 0;
  const auto time = [&](double bytes, double flops) { return std::max(bytes / machine.bandwidth, flops / machine.peak); };
  std::vector<double> by_kind(network.kinds.size(), -1);
  for (std::int64_t l = 0; l < network.layer_count(); ++l) {
    const size_t kind = static_cast<size_t>(network.layers[static_cast<size_t>(l)]);
    if (by_kind[kind] < 0) {
      const BlockConfig& block = network.kinds[kind];
      const double projections = forms.projections(block).value() / 2, ffn = forms.plain_ffn(block).value() / 2;
      const double cache = kv_token_bytes(block, DType::kBF16).to_double() / 2;  // elements per token
      const double pair = Forms::pair_cost(block).value();
      const double reach = block.attention && block.attention->window > 0 ? std::min(cached, static_cast<double>(block.attention->window)) : cached;
      const auto at = [&](double weights, double rows, double keys) {
        return rows == 0 ? 0.0 : time(machine.bytes * (weights + rows * keys * cache), 2 * rows * weights + pair * rows * keys);
      };
      if (!block.route) {
        by_kind[kind] = at(projections + ffn, static_cast<double>(batch), reach);
      } else {
        const Route& route = *block.route;
        const std::int64_t tokens = std::max<std::int64_t>(1, context);
        const double p = route.capacity ? route.capacity->value() : static_cast<double>(slots_of(route, tokens)) / static_cast<double>(tokens);
        const std::vector<double> mass = binomial(batch, p);
        const bool attends = route.part != RoutedPart::kMlp, multiplies = route.part != RoutedPart::kAttention;
        // The other part runs on every row; its share of the block's weights is read whoever takes the routed one.
        by_kind[kind] = attends && multiplies ? 0 : attends ? at(ffn, static_cast<double>(batch), 0) : at(projections, static_cast<double>(batch), reach);
        const double weights = (attends ? projections : 0) + (multiplies ? ffn : 0);
        const double keys = !attends ? 0 : route.kv == KvPolicy::kSelected ? p * reach : reach;
        for (size_t n = 0; n < mass.size(); ++n) by_kind[kind] += mass[n] * at(weights, static_cast<double>(n), keys);
      }
    }
    seconds += by_kind[kind];
  }
  const double head = forms.logits().value() / 2;
  return seconds + time(machine.bytes * head, 2 * static_cast<double>(batch) * head);
}

double decode_gain(const Network& routed, std::int64_t batch, std::int64_t context, const DecodeMachine& machine) {
  const double gain = decode_roofline(dense_twin(routed), batch, context, machine) / decode_roofline(routed, batch, context, machine);
  return std::abs(gain - 1) < 1e-12 ? 1 : gain;  // chances of rows add up to 1 but for rounding
}

double weights_read(std::int64_t batch, double p) { return -std::expm1(static_cast<double>(batch) * std::log1p(-p)); }

double expected_bucket_rows(std::int64_t batch, double p, std::int64_t step) {
  const std::vector<double> mass = binomial(batch, p);
  double rows = 0;
  for (std::int64_t n = 1; n < static_cast<std::int64_t>(mass.size()); ++n) {
    std::int64_t bucket = step > 0 ? (n + step - 1) / step * step : 1;
    while (step == 0 && bucket < n) bucket *= 2;
    rows += mass[static_cast<size_t>(n)] * static_cast<double>(std::min(bucket, batch));
  }
  return rows;
}

std::int64_t binomial_quantile(std::int64_t batch, double p, double q) {
  const std::vector<double> mass = binomial(batch, p);
  double sum = 0;
  for (size_t n = 0; n < mass.size(); ++n) {
    sum += mass[n];
    if (sum >= q) return static_cast<std::int64_t>(n);
  }
  return batch;
}

}  // namespace fathom
