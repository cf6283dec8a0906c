// Machine files: read strictly, written so that reading gives back every bit.
//
//   schema = fathom-machine-1
//   [machine]
//   name = h200
//   kind = gpu
//   clock = 1.98 GHz, datasheet: NVIDIA H200 data sheet
//   [peak.bf16]
//   unit = tensor
//   rate = 989 TFLOP/s, datasheet: NVIDIA H200 data sheet, dense
//   [memory.DRAM]
//   read = 4.8 TB/s, datasheet: ...
//
// Every figure has a unit and, after a comma, its provenance and source. Per-thread figures append the thread count to the key ("rate.2").
// The file order of [memory.*] sections is the order of the levels, nearest first. Unknown sections, keys and units are errors with their line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/machine.hpp"

namespace fathom {

inline constexpr std::string_view kMachineSchema = "fathom-machine-1";

Machine read_machine_ini(const std::string& path);
Machine parse_machine_ini(std::string_view text, const std::string& name);
// parse_machine_ini(write_machine_ini(m), ...) == m, and writing that again gives the same text.
std::string write_machine_ini(const Machine& machine);

struct MachineEntry {
  std::string name;
  std::string board;
};
// Built-in machines, sorted by name; their texts are compiled in.
std::vector<MachineEntry> list_machines();
// A built-in name, or the path of a machine file. A name wins over a file; "./NAME" means the file. A GPU brings its fitted model along: the
// built-in one, or NAME.gpu beside NAME.ini. The path of a .gpu file alone takes the data sheet of the built-in machine of its chip.
Machine load_machine(const std::string& name_or_file);

}  // namespace fathom
