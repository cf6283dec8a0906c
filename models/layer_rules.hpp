// Which layers of a network have experts, and which are routed, set anew by the rules of network files: `every` and `first_dense` of [moe], `every` of [route].
//
// Everything else of a layer (attention, norms, its route or its experts) stays where it is.
#pragma once

#include <cstdint>
#include <optional>

#include "models/network.hpp"

namespace fathom {

// Layer l, from 0, has experts iff l >= first_dense and l mod every = every - 1; all other layers have the dense MLP. Experts and MLP are those that the blocks have:
// one kind of each, or `dense_width` for an MLP like the experts where no block has one. Throws Error(kInput) where a layer would need what no block has, or where blocks
// differ in it; `every` in [1, layers], `first_dense` in [0, layers].
void place_experts(Network& network, std::int64_t every, std::int64_t first_dense, std::optional<std::int64_t> dense_width = {});
// Layer l, from 0, is routed iff l mod every = every - 1, by the one route that the routed blocks have.
void place_routes(Network& network, std::int64_t every);

}  // namespace fathom
