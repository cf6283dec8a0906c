// `--profile`: time, activity and counters of the same configurations, each in a child process of its own, joined into one record.
//
// The parent starts this program again: a time pass (no profiler in the process), an activity pass and a counter pass. Each prints a record;
// the parent joins them by fingerprint and op and says which rung of the ladder was reached, and why not a higher one.
#pragma once

#include <string>
#include <vector>

#include "tools/timed.hpp"

namespace CLI {
class App;
}

namespace fathom {

struct ProfileFlags {
  std::string mode = "off";  // off, events, activity, counters, require
  std::string pass;          // hidden: what this process is, where it is a child: time, activity, counters
  std::string faults;        // hidden: how the fake profiler fails
  int passes = 5;            // hidden: traced passes
};
void add_profile_flags(CLI::App& app, ProfileFlags& flags);

// Whether this call is the parent of passes.
bool starts_passes(const ProfileFlags& flags);
// Refuses unknown modes, and every mode but off on a backend that has nothing to read (Error kInput).
void check_profile_flags(const ProfileFlags& flags, const std::string& backend);

// A child's activity or counter pass: profiles `timed` in order and fills their figures into `results`.
void profile_pass(const std::vector<Timed>& timed, const ProfileFlags& profile, const TimedFlags& flags, std::vector<Result>& results, Record& record);

// The parent: runs the passes of `command` with the arguments of this call and joins them. Returns the exit code of the time pass; other
// than 0 and 130 there is no record and the child has said why. Throws Error(kEnvironment) where `require` is not met.
int run_passes(const ProfileFlags& profile, const std::string& backend, Record& record);

// The pieces, for tests.
std::vector<std::string> child_arguments(const std::vector<std::string>& arguments, const std::string& pass);
// Copies the figures of `from` into the same configurations and ops of `to`. Throws Error(kInternal) where they do not belong together.
void join_pass(Record& to, const Record& from);
// Rungs, overheads and totals of a record that holds all passes it could get. `reasons`: why a rung was not reached, from above.
void conclude_profile(Record& record, const std::string& mode, std::string_view timer, const std::vector<std::string>& reasons);

}  // namespace fathom
