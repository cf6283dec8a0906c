// How many tokens each expert gets in expectation: even, by a Zipf law, or by stated loads.
//
// A token picks expert e with chance p_e, independently of other tokens; the p_e sum to the picks that are not no-ops. Three counts follow: experts that at
// least one token picks (their weights are read), rows that experts with limited slots keep, and rows that they drop.
#pragma once

#include <cstdint>
#include <vector>

#include "models/network.hpp"

namespace fathom {

// Experts that are picked alike.
struct ExpertLoad {
  double chance = 0;  // p_e, of one token
  std::int64_t experts = 0;
};

// The p_e of a layer: proportional to the loads, none above 1 (what a full expert cannot take goes to the others in proportion). They sum to
// min(picks, experts) less the share of the choices that go to no-ops. Of a valid MoeConfig.
std::vector<ExpertLoad> expert_loads(const MoeConfig& moe);

// Slots of each expert where tokens that choose are `tokens` and a capacity is set: round(cf T k / E), but at least 1 where there is a token, else a decode step would drop
// every one; 0 without tokens. Throws Error(kInput) where the factor's denominator is too large.
std::int64_t expert_slots(const MoeConfig& moe, std::int64_t tokens);

// sum over e of 1 - (1 - q p_e)^T: distinct experts of T tokens of which a share q chooses.
double expected_distinct(const std::vector<ExpertLoad>& loads, std::int64_t tokens, double taken);

// sum over e of E[min(n_e, slots)] with n_e ~ Binomial(T, q p_e): rows that are kept.
double expected_kept(const std::vector<ExpertLoad>& loads, std::int64_t tokens, double taken, std::int64_t slots);

// E[min(n, slots)] for n ~ Binomial(trials, p).
double expected_min(std::int64_t trials, double p, std::int64_t slots);

}  // namespace fathom
