// Runs this program again as a child, to keep what must not share a process apart: timing, tracing, counting.
#pragma once

#include <string>
#include <vector>

namespace fathom {

struct ChildResult {
  int code = 0;          // exit code; 128 + signal where a signal ended it
  int signal = 0;        // 0: it exited
  std::string out, err;  // err only where it was captured
};

// `arguments` without the program's name. Standard input is empty; stderr passes through unless it is captured.
// Throws Error(kEnvironment) when no child can be started.
ChildResult run_self(const std::vector<std::string>& arguments, bool capture_stderr);

}  // namespace fathom
