// Errors: one exception type that says what is wrong, where, and what to do about it.
//
// The library throws Error and never prints or exits; tools/ maps the kind to an exit code (see exit_code).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

enum class ErrorKind {
  kCondition,    // a condition the user stated does not hold (exit 1)
  kUsage,        // the command line cannot be parsed (exit 2)
  kInput,        // parsed, but invalid or unknown: model, unit, key, range, record (exit 3)
  kEnvironment,  // no device, out of memory, unwritable file (exit 4)
  kInternal,     // a bug in fathom (exit 70)
};

// The process exit code of an error kind.
int exit_code(ErrorKind kind);

// Where an input error was found. Empty fields are not printed; line 0 means "no line".
struct Where {
  std::string file;
  int line = 0;
  std::string key;
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, Where where = {}, std::string hint = {});

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const Where& where() const { return where_; }
  const std::string& hint() const { return hint_; }

 private:
  ErrorKind kind_;
  std::string message_;
  Where where_;
  std::string hint_;
};

// Shorthands for the two kinds thrown most.
[[noreturn]] void throw_input(const std::string& message, Where where = {}, std::string hint = {});
[[noreturn]] void throw_internal(const std::string& message);

// The candidate nearest to `word` by edit distance, or "" when none is close enough to be a likely typo.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

// "did you mean 'x'?" for the nearest candidate, else "known: a, b, c" (at most twelve names).
std::string name_hint(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace fathom
