// Figures of a record that cannot be true: what a file says that was damaged or changed by hand.
#pragma once

#include <string>

#include "reports/json_reader.hpp"

namespace fathom {

// Applies reports/record_rules to every figure: its range, what it follows from in its row, over the ops, over the end-to-end passes, and
// between a routed model and its dense twin. Throws Error(kInput) at the first that breaks a rule, with file, JSON pointer, what was found and
// what was expected. A record without a result, or a list of figures that was emptied, is refused too.
void check_record_figures(const JsonValue& root, const std::string& file);

}  // namespace fathom
