// Exact parameter counts and KV-cache sizes of a network.
//
// These follow from the Network alone, without an op list. Per block:
//   attention   h(n + 2m)d + nd h                    (+ biases, query/key norm gains, n sinks)
//   MLA         h q_r + q_r n d_qk + h(c + d_r) + c n(d_n + d_v) + n d_v h + (q_r + c) norm gains; q_r = 0: h n d_qk
//   MLP         g h f                                (+ biases)
//   experts     E g h f_e + s g h f_s + h(E + E0)    (+ h for the shared gate, E score corrections, biases)
//   route       h (+1), or an MLP h -> u -> 1; predictor h, or hu + u; bypass adapter 2 h a
// Blocks that share a weight set are counted once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "lib/dtype.hpp"
#include "lib/op.hpp"
#include "lib/units.hpp"
#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

struct ParameterCount {
  Params total;
  Params active;              // total less the experts that a token does not visit; routed-depth blocks count in full
  Params without_embeddings;  // total less token table, learned positions and an untied head
  Params active_without_embeddings;
  Params matmul;  // weights of matrix products: no table gathers, gains, biases; the head once even where tied
  Params active_matmul;
  std::array<Params, kPartCount> by_part{};  // sums to total

  Params part(Part p) const { return by_part[static_cast<std::size_t>(p)]; }
};

// Throws Error(kInput) for a network that validate() refuses.
ParameterCount count_parameters(const Network& network);

// Parameters of one block (its own weight set), by part; for tables per layer.
ParameterCount count_block_parameters(const Network& network, const BlockConfig& block);

// Bytes one token adds to the cache of one layer that stores it: 2 m d w, or (c + d_r) w for latent attention; 0
// without attention.
Bytes kv_token_bytes(const BlockConfig& block, DType kv);

// The share of tokens this block stores: 1, or the declared capacity where only selected tokens supply K/V. Absent
// where the block is routed by absolute slots, so that no share exists without a length.
std::optional<Fraction> kv_share(const BlockConfig& block);

// Bytes per token summed over the layers and prediction modules, with every layer storing the token ("all layers"): the figure of dense
// models.
Bytes kv_bytes_per_token(const Network& network, DType kv);

// The same in expectation, selected-only layers weighted by their share (slots: by slots / length).
double expected_kv_bytes_per_token(const Network& network, DType kv, std::int64_t length);

// Rows that one sequence of `length` tokens leaves in the cache of this block: all; min(length, W) or min(length, K) in
// window and chunk layers; where only selected tokens are stored C of the declared capacity, or of the share `taken` in its place.
std::int64_t kv_rows(const BlockConfig& block, std::int64_t length, const std::optional<Fraction>& taken = {});
// The `taken` of a scenario: its participation where rows are taken by chance (decode, prefill by threshold or predictor).
std::optional<Fraction> share_taken(const Scenario& scenario);

// Declared cache of `sequences` sequences of `length` tokens in all layers and prediction modules, rounded up to pages of `page` rows per sequence and
// layer. Latent attention caches its latent rows, unless its `mla` strategy is naive: that keeps keys and values of every head.
Bytes kv_bytes(const Network& network, std::int64_t length, std::int64_t sequences, DType kv, std::int64_t page = 1,
               MlaStrategy mla = MlaStrategy::kAbsorbed, const std::optional<Fraction>& taken = {});

// Executed cache: rows[layer * sequences + sequence] rows are held. Throws Error(kInput) when the number of counts is
// wrong.
Bytes kv_bytes_of(const Network& network, std::span<const std::int64_t> rows, std::int64_t sequences, DType kv,
                  std::int64_t page = 1);

}  // namespace fathom
