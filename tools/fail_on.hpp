// --fail-on: conditions under which `fathom compare` ends with exit code 1, for scripts and continuous integration.
#pragma once

#include <string>
#include <vector>

#include "reports/record_difference.hpp"

namespace CLI {
class App;
}

namespace fathom {

struct Condition {
  enum class Kind { kSlower, kFaster, kOpSlower, kPredicted, kMemory, kCounts, kMissing, kUndecided, kError, kRealised, kNoisy, kFasterThanLight };
  Kind kind;
  double limit = 0;    // fraction, where the condition has one
  std::string text;    // as typed
};

// Why a routed model alone has no realised fraction, and what to do.
inline constexpr const char* kNoTwin = "no realised fraction: add the dense twin";

// Every condition as it is begun: "slower=", "counts"; for completion.
std::vector<std::string> condition_words();
void add_fail_on(CLI::App& app, std::vector<std::string>& texts);

// "slower=5%", "counts". Throws Error(kUsage) when it cannot be parsed, Error(kInput) for a condition that is unknown, or that asks
// something of two records where there is one run (`records` says which), and the other way round.
std::vector<Condition> parse_conditions(const std::vector<std::string>& texts, bool records);

// Reasons for which conditions are met, one sentence each; empty: none is.
std::vector<std::string> met(const std::vector<Condition>& conditions, const RecordDifference& difference);
std::vector<std::string> met(const std::vector<Condition>& conditions, const Record& record);

// Says on stderr which are met. Exit code: 1 when any is, else `otherwise`.
int fail_code(const std::vector<std::string>& reasons, int otherwise);

}  // namespace fathom
