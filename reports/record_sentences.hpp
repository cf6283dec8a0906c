// The result of a record in sentences: predicted against measured, what was measured, ratios to dense twins and to the first model.
//
// Every configuration has a sentence of its own, those that say the same share one; where that would be more than kMostSentences of a kind, one sentence gives
// their number and the extremes with the configurations that have them, and the table has the rest.
#pragma once

#include "reports/document.hpp"
#include "reports/record.hpp"

namespace fathom {

inline constexpr std::size_t kMostSentences = 4;

void add_sentences(Document& document, const Record& record);

}  // namespace fathom
