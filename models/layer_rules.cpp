#include "models/layer_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/error.hpp"

namespace fathom {
namespace {

[[noreturn]] void fail(const char* key, std::string message, std::string hint) { throw_input(std::move(message), {"", 0, key}, std::move(hint)); }

// What all of the blocks in use that have it agree on; nullopt: none has it.
template <class T, class Find>
std::optional<T> agreed(const Network& network, const char* key, const char* what, Find find) {
  std::optional<T> found;
  for (const int kind : network.layers) {
    const std::optional<T> here = find(network.kinds[static_cast<std::size_t>(kind)]);
    if (!here) continue;
    if (found && !(*found == *here))
      fail(key, fmt::format("blocks of {} differ in their {}: which of them a layer takes is not said", network.name, what), "write a file per pattern; a sweep takes several models");
    found = here;
  }
  return found;
}

// Every layer's block, changed by `change(block, layer)`.
template <class Change>
void change_layers(Network& network, Change change) {
  std::vector<BlockConfig> kinds;
  std::vector<int> layers;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    BlockConfig block = network.kinds[static_cast<std::size_t>(network.layers[l])];
    change(block, static_cast<std::int64_t>(l));
    auto known = std::find(kinds.begin(), kinds.end(), block);
    if (known == kinds.end()) known = kinds.insert(known, std::move(block));
    layers.push_back(static_cast<int>(known - kinds.begin()));
  }
  network.kinds = std::move(kinds);
  network.layers = std::move(layers);
}

}  // namespace

void place_experts(Network& network, std::int64_t every, std::int64_t first_dense, std::optional<std::int64_t> dense_width) {
  const auto experts = agreed<MlpConfig>(network, "moe.every", "experts", [](const BlockConfig& block) { return block.mlp && block.mlp->moe ? block.mlp : std::nullopt; });
  if (!experts) fail("moe.every", fmt::format("{} has no experts", network.name), "the key says which layers have them");
  auto dense = agreed<MlpConfig>(network, "moe.every", "dense MLP", [](const BlockConfig& block) { return block.mlp && !block.mlp->moe ? block.mlp : std::nullopt; });
  if (!dense && dense_width && *dense_width > 0) {
    dense = experts;
    dense->moe.reset();
    dense->width = *dense_width;
  }
  change_layers(network, [&](BlockConfig& block, std::int64_t layer) {
    if (!block.mlp) return;  // attention alone
    const bool takes = layer >= first_dense && layer % every == every - 1;
    if (!takes && !dense)
      fail("moe.every", fmt::format("layer {} would have a dense MLP, and no block of {} has one to take: give its width, mlp, as well", layer, network.name), "--set mlp=WIDTH");
    block.mlp = takes ? experts : dense;
  });
}

void place_routes(Network& network, std::int64_t every) {
  const auto route = agreed<Route>(network, "route.every", "route", [](const BlockConfig& block) { return block.route; });
  if (!route) fail("route.every", fmt::format("no block of {} is routed", network.name), "--mod-every M --capacity F routes a dense model");
  change_layers(network, [&](BlockConfig& block, std::int64_t layer) { block.route = layer % every == every - 1 ? route : std::nullopt; });
}

}  // namespace fathom
