// What depth routing saves, in figures: ratios under a convention, block forms with separate token shares, and the roofline of a
// decode step.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "models/count/ledger.hpp"
#include "models/network.hpp"

namespace fathom {

// Forward FLOPs of a routed network over its dense twin's, under "exact", "full" or "mod-a" ... "mod-c" (exact rational).
Rational forward_ratio(const Network& routed, std::string_view convention, std::int64_t length);

// Forward FLOPs of one sequence in these parts of the op list, routed rows in expectation; router_flops: of the depth routers alone, predictor_flops: of the
// predictors, which decide instead of them.
double part_flops(const Network& network, std::int64_t length, bool full_mask, std::initializer_list<Part> parts);
double router_flops(const Network& network, std::int64_t length);
double predictor_flops(const Network& network, std::int64_t length);
// That of the routed network over its dense twin's. Absent where the twin has none.
std::optional<double> parts_ratio(const Network& routed, std::int64_t length, bool full_mask, std::initializer_list<Part> parts);
// A network of this block alone.
Network only_block(const Network& network, std::int64_t layer);

// The dense network with every m-th block routed at this capacity.
Network alternate(const Network& dense, std::int64_t every, const Fraction& capacity);

// Shares of a sequence's tokens that compute queries and output projection, keys and values, the MLP; and the pairs of one sequence.
struct TokenShares {
  Rational queries = 1;
  Rational keys = 1;
  Rational mlp = 1;
  Rational pairs;
};
// Forward FLOPs of one block and sequence, without routers.
Rational block_flops(const Forms& forms, const BlockConfig& block, const TokenShares& shares);
Rational full_block_flops(const Forms& forms, const BlockConfig& block);  // every token, the whole square

// Share of the model's blocks that are routed (q), and of those that leave some token of this length out; the mean over the routed blocks of their token share: declared (p of a decode step), and C/S as top-C takes them at
// this length (rho).
Rational routed_share(const Network& routed);
Rational skipping_share(const Network& routed, std::int64_t length);
Rational mean_capacity(const Network& routed, std::int64_t length);
Rational mean_slots(const Network& routed, std::int64_t length);
// Those shares themselves, one per routed block: a schedule has several, and what is not linear in them is a mean over the blocks.
std::vector<Rational> capacity_shares(const Network& routed, std::int64_t length);
std::vector<Rational> slot_shares(const Network& routed, std::int64_t length);
// Token work (products of projections, MLPs and experts) that tokens taking the routed blocks or parts cause: of C tokens each, and `more` of all tokens besides (at most all). From op lists
// with that share, less those with none.
double routed_work(const Network& routed, std::int64_t length, const Fraction& more);
// KV bytes saved against the dense twin at this length, before page waste: with layers alike q (1 - rho).
Rational kv_saving(const Network& routed, std::int64_t length);

// ---- decode roofline ----

struct DecodeMachine {
  double bandwidth = 4.0e12;  // bytes/s
  double peak = 6.0e14;       // FLOP/s
  double bytes = 2;           // per element of weights and cache
};
// Seconds of one decode step of `batch` sequences with `context` cached tokens each: per block the larger of bytes/bandwidth and
// FLOPs/peak; routed blocks in expectation over Binomial(batch, p) rows, p their capacity, reading p x context keys (those in a window); what
// a routed part leaves out runs on every row. Routers, writes and
// launches left out.
double decode_roofline(const Network& network, std::int64_t batch, std::int64_t context, const DecodeMachine& machine = {});
// Dense time over routed time.
double decode_gain(const Network& routed, std::int64_t batch, std::int64_t context, const DecodeMachine& machine = {});

// 1 - (1-p)^B: the probability that a routed block's weights are read in a decode step.
double weights_read(std::int64_t batch, double p);
// Expected rows executed when n ~ Binomial(batch, p) is rounded up to the next bucket: 0, 1, 2, 4, 8 ... (step 0) or multiples of `step`;
// never more than the batch.
double expected_bucket_rows(std::int64_t batch, double p, std::int64_t step);
// Smallest n with P(N <= n) >= q.
std::int64_t binomial_quantile(std::int64_t batch, double p, double q);

}  // namespace fathom
