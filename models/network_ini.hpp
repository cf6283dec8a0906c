// Networks as INI files: the format of the presets in models/networks and of a user's own models.
//
// Two forms. Short: [network] describes one block and `layers = L` repeats it; [moe] and [route] say on which layers
// experts or routing replace it. General: `pattern = 17*(dense mod) dense` names a [block.NAME] per layer; a block
// inherits every block key of [network] and states what differs. Every key is one row of one table
// (models/network_keys.cpp), which reads it, writes it and documents it; an unknown key is an error with its line and
// the nearest known name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/network.hpp"

namespace fathom {

// Reads and validates. `name` stands for the file in messages and becomes Network::source. Throws Error(kInput).
Network parse_network_ini(std::string_view text, const std::string& name);
Network read_network_ini(const std::string& path);

// INI text that reads back to an equal network: everything but `source` and `notes`; the latter become comments.
std::string to_ini(const Network& network);

// One row per key of the format, in order of use; `fathom explain ini` prints it.
struct IniKeyDoc {
  std::string section;  // where it may stand: "network", "network, block.*", "moe, block.*" ...
  std::string key;
  std::string values;
  std::string standard;  // the default, in words where it depends on other keys
  std::string meaning;
};
const std::vector<IniKeyDoc>& ini_glossary();

}  // namespace fathom
