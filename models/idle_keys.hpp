// Keys of a network file that are stated and change nothing, as gate_beta beside a raw gate: said as notes, so that nobody takes the file for what was meant.
#pragma once

#include <string>
#include <vector>

#include "models/ini.hpp"
#include "models/network.hpp"

namespace fathom {

// One note per key of the file that is stated as something else than its default, and that no block it is about reads: "line 7: gate_beta changes nothing: only
// the gate tanh reads it". `block_sections`: the [block.NAME] of every kind of the network, where a pattern names them; else none.
std::vector<std::string> idle_keys(const IniFile& file, const Network& network, const std::vector<const IniSection*>& block_sections);

}  // namespace fathom
