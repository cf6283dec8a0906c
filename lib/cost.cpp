// Sums of costs, declared sizes and expectations; the rules per op kind are in lib/cost_rules.cpp.
#include "lib/cost.hpp"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

// E[n (n+1) / 2] for n ~ Binomial(count, p): pairs of a causally masked, randomly selected subset of one sequence.
double expected_causal_pairs(double count, double p) { return (count * p * (1 - p) + count * p * count * p + count * p) / 2; }

}  // namespace

std::string_view element_name(ElementKind kind) {
  constexpr std::array<std::string_view, kElementKinds> kNames = {
      "norm", "softmax", "activation", "gate_product", "bias", "residual", "rope", "router_probability",
      "select", "gather", "gate", "scatter", "embedding", "kv_append", "cross_entropy", "optimizer"};
  return kNames[static_cast<size_t>(kind)];
}

Elements Cost::elements_total() const {
  Elements sum;
  for (const Elements& each : elements) sum += each;
  return sum;
}

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  flops_recompute += other.flops_recompute;
  for (int i = 0; i < kElementKinds; ++i) elements[static_cast<size_t>(i)] += other.elements[static_cast<size_t>(i)];
  read += other.read;
  written += other.written;
  return *this;
}

Cost operator*(const Cost& cost, u128 times) {
  Cost result = cost;
  result.flops = cost.flops * times;
  result.flops_recompute = cost.flops_recompute * times;
  for (Elements& each : result.elements) each = each * times;
  result.read = cost.read * times;
  result.written = cost.written * times;
  return result;
}

Executed declared(const OpSpec& spec) {
  Executed executed;
  executed.rows = rows_of(spec).count;
  const Attention* attention = std::get_if<Attention>(&spec);
  if (const auto* op = std::get_if<AttentionBackward>(&spec)) attention = &op->forward;
  if (attention) {
    executed.pairs = attention->rows.count > 0 ? attention->pairs : 0;  // nobody asks
    executed.keys = attention->keys;
  }
  if (const auto* op = std::get_if<Gemm>(&spec)) executed.experts = std::min(op->experts, op->rows.count);
  return executed;
}

Cost declared_cost(const OpSpec& spec) { return cost_at(spec, declared(spec)); }

ExpectedCost& ExpectedCost::operator+=(const ExpectedCost& other) {
  rows += other.rows;
  flops += other.flops;
  flops_recompute += other.flops_recompute;
  elements += other.elements;
  read += other.read;
  written += other.written;
  return *this;
}

ExpectedCost operator*(ExpectedCost cost, double times) {
  cost.rows *= times;
  cost.flops *= times;
  cost.flops_recompute *= times;
  cost.elements *= times;
  cost.read *= times;
  cost.written *= times;
  return cost;
}

double expected_distinct_experts(std::int64_t experts, std::int64_t picks, std::int64_t tokens) {
  if (experts <= 0) return 0;
  const double share = static_cast<double>(picks) / static_cast<double>(experts);
  // -expm1(T log1p(-share)) keeps digits when share * T is tiny.
  return share >= 1 ? static_cast<double>(tokens > 0 ? experts : 0)
                    : -static_cast<double>(experts) * std::expm1(static_cast<double>(tokens) * std::log1p(-share));
}

namespace {
const Attention* attention_of(const OpSpec& spec) {
  if (const auto* forward = std::get_if<Attention>(&spec)) return forward;
  const auto* backward = std::get_if<AttentionBackward>(&spec);
  return backward ? &backward->forward : nullptr;
}
}  // namespace

bool is_random(const OpSpec& spec) {
  const Attention* attention = attention_of(spec);
  const auto* gemm = std::get_if<Gemm>(&spec);
  return rows_of(spec).routed() || (gemm && gemm->experts > 1) || (attention && attention->expected_pairs >= 0);
}

double expected_experts(const OpSpec& spec) {
  const auto* gemm = std::get_if<Gemm>(&spec);
  if (!gemm || gemm->experts <= 1) return 0;
  if (gemm->expected_experts >= 0) return gemm->expected_experts;
  if (gemm->picks <= 0) return static_cast<double>(declared(spec).experts);
  const double p = gemm->rows.probability.value();
  const double tokens = gemm->tokens > 0 ? static_cast<double>(gemm->tokens) : static_cast<double>(gemm->rows.count) / std::max<double>(1, static_cast<double>(gemm->picks));
  if (tokens <= 0) return 0;  // nobody picks
  // A full expert is still read: only rows that no expert gets reduce the number of distinct ones.
  const double share = static_cast<double>(gemm->picks) * (gemm->capacity > 0 ? 1.0 : p) / static_cast<double>(gemm->experts);
  return share >= 1 ? static_cast<double>(gemm->experts) : -static_cast<double>(gemm->experts) * std::expm1(tokens * std::log1p(-share));
}

ExpectedCost expected_cost(const OpSpec& spec) {
  const Executed all = declared(spec);
  const auto as_double = [](const Cost& cost, double rows) {
    return ExpectedCost{rows, cost.flops.to_double(), cost.flops_recompute.to_double(), cost.elements_total().to_double(),
                        cost.read.to_double(), cost.written.to_double()};
  };
  const Rows rows = rows_of(spec);
  const auto* gemm = std::get_if<Gemm>(&spec);
  const bool grouped = gemm && gemm->experts > 1;
  const Attention* attention = attention_of(spec);
  const bool chosen = attention && attention->expected_pairs >= 0;  // pairs depend on which rows are chosen
  if (!is_random(spec)) return as_double(cost_at(spec, all), static_cast<double>(all.rows));

  // Every rule is affine in (rows, pairs, keys, experts) once at least one row runs: cost = fixed * [n > 0] + slopes * sizes.
  const double p = rows.probability.value();
  const double count = static_cast<double>(rows.count);
  // Rows that run or not together (the assignments of one token) are one trial.
  const double trials = count / static_cast<double>(std::max<std::int64_t>(1, rows.each));
  const double any = rows.count == 0 ? 0.0 : (p >= 1 ? 1.0 : -std::expm1(trials * std::log1p(-p)));
  const ExpectedCost none = as_double(cost_at(spec, Executed{}), 0);
  const ExpectedCost one = as_double(cost_at(spec, Executed{1, 0, 0, 0}), 1);
  const ExpectedCost two = as_double(cost_at(spec, Executed{2, 0, 0, 0}), 2);
  const ExpectedCost slope = {1, two.flops - one.flops, two.flops_recompute - one.flops_recompute, two.elements - one.elements,
                              two.read - one.read, two.written - one.written};
  ExpectedCost result = none;
  result.rows = 0;
  const auto add = [&](const ExpectedCost& unit, double times) { result += unit * times; };
  add(slope, count * p);
  const ExpectedCost fixed = {0, one.flops - slope.flops - none.flops, one.flops_recompute - slope.flops_recompute - none.flops_recompute,
                              one.elements - slope.elements - none.elements, one.read - slope.read - none.read,
                              one.written - slope.written - none.written};
  add(fixed, any);
  if (grouped) {
    const ExpectedCost expert = as_double(cost_at(spec, Executed{1, 0, 0, 1}), 0);
    const ExpectedCost unit = {0, 0, 0, 0, expert.read - one.read, expert.written - one.written};
    add(unit, expected_experts(spec));
  }
  if (attention) {
    const ExpectedCost pair = as_double(cost_at(spec, Executed{0, 1, 0, 0}), 0);
    const ExpectedCost key = as_double(cost_at(spec, Executed{0, 0, 1, 0}), 0);
    const double sequences = static_cast<double>(attention->sequences);
    const double queries = count / std::max(1.0, sequences);
    double pairs = sequences * expected_causal_pairs(queries, p);
    double keys = sequences * queries * p;
    if (attention->cached) {  // each executed query also sees the share of the past that this block holds
      const double past = static_cast<double>(attention->past) * attention->key_share.value();
      const double any_query = p >= 1 ? 1.0 : -std::expm1(queries * std::log1p(-p));
      pairs += sequences * queries * p * past;
      keys += sequences * any_query * past;
    }
    if (chosen) {
      pairs = attention->expected_pairs;
      keys = attention->expected_keys;
    }
    add(pair, pairs);
    add(key, keys);
  }
  return result;
}

}  // namespace fathom
