// What `fathom explain` says of the names that `fathom list` gives, and of exit codes.
#pragma once

#include <string>

#include "reports/document.hpp"

namespace fathom {

// What the exit status of a command says.
void explain_exit_codes_into(Document& document);
// The file with options for every run (tools/defaults.hpp).
void explain_defaults_into(Document& document);

// A built-in model, machine or backend; false where `name` is none.
bool explain_name_into(Document& document, const std::string& name);

}  // namespace fathom
