#include "tools/unused_flags.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/utf8.hpp"
#include "tools/terminal.hpp"

namespace fathom {

void note_unused(const CLI::App& command, std::initializer_list<const char*> names, const std::string& why, std::vector<RecordNote>& notes) {
  for (const char* name : names)
    if (const CLI::Option* option = command.get_option_no_throw(name); option && option->count() > 0)
      notes.push_back({Note::Severity::kNote, fmt::format("{} changes nothing here: {}", name, why)});
}

void note_all_but(const CLI::App& command, std::initializer_list<const char*> read, const std::string& why, std::vector<RecordNote>& notes) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() || option->count() == 0 || option->get_lnames().empty() || option->get_group() == "Output" || option->get_group() == "Help" || option->get_group().empty()) continue;
    const std::string name = "--" + option->get_lnames()[0];
    if (std::none_of(read.begin(), read.end(), [&](const char* each) { return name == each; })) note_unused(command, {name.c_str()}, why, notes);
  }
}

void tell_notes(const std::vector<RecordNote>& notes, bool quiet) {
  for (const RecordNote& note : notes)
    if (!quiet) tell(fmt::format("fathom: {}\n", printable(note.text)));
}

}  // namespace fathom
