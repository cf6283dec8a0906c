// The words of reports that are no columns of the glossary: predictors, routing rules, phases, and the headings of tables of their own.
//
// `fathom explain WORD` prints an entry. Every heading of every page is a column (reports/columns.hpp) or stands here; a test asks for each.
#pragma once

#include <string_view>
#include <vector>

namespace fathom {

struct ReportTerm {
  std::string_view names;    // "topk;top-k": the first is its title
  std::string_view meaning;  // one to three sentences
  std::string_view see;      // where the rule stands or what to ask next; may be empty
};

const std::vector<ReportTerm>& all_terms();
// By any of its names, upper and lower case and blanks and underscores alike; nullptr when unknown.
const ReportTerm* find_term(std::string_view name);
// Its title.
std::string_view title_of(const ReportTerm& term);

}  // namespace fathom
