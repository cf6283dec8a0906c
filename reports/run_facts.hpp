// Facts about a machine and a run for people: the keys of a record's environment in words, with units.
#pragma once

#include <string>
#include <string_view>

#include "reports/document.hpp"

namespace fathom {

// "memory_bytes" -> "memory", 33.5 GB; "reference_exp_s" -> "reference kernel exp", 1.204 ms; a key without words is shown as it is, blanks for underscores.
KeyValues::Item run_fact(const std::string& key, const Cell& value);

}  // namespace fathom
