// Flags that change nothing for what was asked: said once, so that nobody takes a result for what was meant.
#pragma once

#include <string>
#include <vector>

#include "models/network.hpp"
#include "tools/cli.hpp"

namespace fathom {

// Flags that none of the phases reads.
std::vector<std::string> idle_in_phases(const ScenarioFlags& flags, const std::vector<std::string>& phases);

// Flags that this network has no part for. `routed`: some of its blocks are, or a flag routes them. Throws Error(kInput) where two flags contradict each other.
std::vector<std::string> idle_in_network(const ScenarioFlags& flags, const std::vector<std::string>& phases, const Network& network, bool routed);

// A cache of another type than compute: where its type is read, and where not.
std::vector<std::string> note_cache_type(const Network& network, Phase phase, DType compute, DType cache, bool past);
// --rounding beside --slots.
std::vector<std::string> idle_twin(bool slots, bool rounding);

// --strict reads config.json files alone.
std::vector<std::string> idle_strict(bool strict, const std::vector<std::string>& models);

}  // namespace fathom
