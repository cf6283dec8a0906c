// The notes of a record as people read them: each once, with the configurations that it holds for.
//
// A result's note says nothing of its configuration; it is named here, where it is known what tells it apart from the others. Notes of the same words become one;
// where more than kMostAlike differ in their numbers alone, one note gives the ranges of those.
#pragma once

#include <vector>

#include "reports/record.hpp"

namespace fathom {

inline constexpr std::size_t kMostAlike = 4;

std::vector<RecordNote> notes_of_results(const Record& record);

}  // namespace fathom
