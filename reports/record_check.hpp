// Figures of a record that cannot be true: what a file says that was damaged or changed by hand.
#pragma once

#include <string>

#include "reports/json_reader.hpp"

namespace fathom {

// Throws Error(kInput) with file and JSON pointer at the first impossible figure: text or a list where a number belongs, a negative count, a share above 1, a ratio that
// its own numerator and denominator contradict, an order that cannot be (a lower end above the upper one), parts that do not add up to the total.
void check_record_figures(const JsonValue& root, const std::string& file);

}  // namespace fathom
