// Which program this is: its version, the commit it was built from ('+': with changes that are not committed), and what is built in.
#pragma once

#include <string>

namespace fathom {

// One line, for records: "fathom 0.1.0 (9bd4e0d17f2a)".
std::string version_text();
// "GNU 12.2.0": what built it.
std::string compiler_text();
// What `fathom --version` prints: the same, then build type, compiler, backends and sanitizers.
std::string version_page();

}  // namespace fathom
