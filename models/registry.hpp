// Built-in networks, and what a MODEL argument may be: a built-in name, an INI file, or a Hugging Face config.json.
//
// The texts of models/networks/*.ini are compiled into the program, so it works from the build tree, after installation
// and from any folder. A name wins over a file of the same name; "./NAME" means the file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/import/hf_config.hpp"
#include "models/network.hpp"

namespace fathom {

struct BuiltinFile {
  std::string_view name;  // file name without extension
  std::string_view text;
};
// Sorted by name. Defined in a source file that the build generates from models/networks.
std::span<const BuiltinFile> builtin_network_files();
// The same for models/machines.
std::span<const BuiltinFile> builtin_machine_files();
// The fitted models of GPUs, models/machines/NAME.gpu: about 1 MB each, part of the program's image and read only when touched.
std::span<const BuiltinFile> builtin_machine_fits();

struct NetworkEntry {
  std::string name;
  std::string summary;
};
// Every built-in network with its one-line description, sorted by name.
std::vector<NetworkEntry> list_networks();

// Throws Error(kInput) with the nearest name when there is no such built-in.
Network builtin_network(std::string_view name);

// A built-in name, a file ending in .ini or .json (else told apart by its first character), or a folder that holds a
// config.json. `options` apply to Hugging Face files.
Network load_network(const std::string& model, const HfOptions& options = {});

}  // namespace fathom
