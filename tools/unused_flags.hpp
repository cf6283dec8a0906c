// Options that were given and change nothing: said once, so that nobody takes the result for what was meant.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "lib/machine.hpp"
#include "tools/cli.hpp"

namespace fathom {

// One note per option of `names` that the command line has: "--steps changes nothing here: WHY".
void note_unused(const CLI::App& command, std::initializer_list<const char*> names, const std::string& why, std::vector<RecordNote>& notes);
// The same for all that are given and not among `read`; options of output are always read.
void note_all_but(const CLI::App& command, std::initializer_list<const char*> read, const std::string& why, std::vector<RecordNote>& notes);
// Options of a machine and of a measurement that a call does not read: what it does with which machine.
struct TimedUse {
  bool predicts = true, measures = true;
  const Machine* machine = nullptr;  // where known
  std::int64_t rounds = 0;           // --rounds
  const char* to_predict = "";       // " (--do predict does)": what would read them
  const char* to_measure = "";
};
void note_unused_timed(const CLI::App& command, const TimedUse& use, std::vector<RecordNote>& notes);
// For commands whose result has no place for notes: one line each on stderr, unless quiet.
void tell_notes(const std::vector<RecordNote>& notes, bool quiet);

}  // namespace fathom
