// Plots of a record: predicted against measured, roofline, where the time goes, decode latency against batch or context,
// which token took which block.
#pragma once

#include "reports/record.hpp"

namespace fathom {

// Those that the record has figures for.
void add_record_plots(Document& document, const Record& record);

// The routing map of every result that has one.
void add_record_routing(Document& document, const Record& record);

// The name of a part of the model at an op; "" where it says none.
std::string part_of(const Figures& op);

}  // namespace fathom
