#include "tools/unused_flags.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>

#include "reports/utf8.hpp"
#include "tools/defaults.hpp"
#include "tools/terminal.hpp"

namespace fathom {

void note_unused(const CLI::App& command, std::initializer_list<const char*> names, const std::string& why, std::vector<RecordNote>& notes) {
  for (const char* name : names)
    if (const CLI::Option* option = command.get_option_no_throw(name); option && option->count() > 0 && !is_default(name))
      notes.push_back({Note::Severity::kNote, fmt::format("{} changes nothing here: {}", name, why)});
}

void note_all_but(const CLI::App& command, std::initializer_list<const char*> read, const std::string& why, std::vector<RecordNote>& notes) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() || option->count() == 0 || option->get_lnames().empty() || option->get_group() == "Output" || option->get_group() == "Help" || option->get_group().empty()) continue;
    const std::string name = "--" + option->get_lnames()[0];
    if (std::none_of(read.begin(), read.end(), [&](const char* each) { return name == each; })) note_unused(command, {name.c_str()}, why, notes);
  }
}

void note_unused_timed(const CLI::App& command, const TimedUse& use, std::vector<RecordNote>& notes) {
  const bool gpu = use.machine && use.machine->kind == MachineKind::kGpu;
  if (!use.measures) note_unused(command, {"--backend", "--time", "--rounds", "--seed"}, std::string("nothing is measured") + use.to_measure, notes);
  else if (use.rounds > 0) note_unused(command, {"--time"}, "--rounds says how long", notes);
  if (!use.predicts && !use.measures) {
    note_unused(command, {"--on", "--predictor", "--launch", "--kernels", "--threads"}, std::string("nothing is predicted") + use.to_predict, notes);
    return;
  }
  if (gpu) note_unused(command, {"--threads"}, "the machine is a GPU", notes);
  if (use.machine && !gpu) note_unused(command, {"--launch", "--kernels"}, "only a GPU reads it", notes);
}

void tell_notes(const std::vector<RecordNote>& notes, bool quiet) {
  for (const RecordNote& note : notes)
    if (!quiet) tell(fmt::format("fathom: {}\n", printable(note.text)));
}

}  // namespace fathom
