// What the words of a command line are, where the parser itself says too little: an option in the place of a value, an unknown option beside a
// missing argument.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fathom {

// Throws Error(kUsage) where an option that takes a value has none: an empty one (--seq "" of an unset variable, --seq=), which the parser would
// drop, or another option of the command: "--timeline --save t.html" would write a file named "--save". What is meant so is written
// --timeline=--save. An empty word that is no value is refused as well.
void check_values(const CLI::App& app, const std::vector<std::string>& arguments);

// The first option that the command does not have ("" where it has all), and the nearest that it has, as a hint.
struct UnknownOption {
  std::string name, command, hint;  // command: "fathom count"
};
UnknownOption unknown_option(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace fathom
