// The glossary: every column and JSON key with its unit, meaning and formula.
//
// `fathom explain COLUMN` prints an entry; reports print those they use. A table can only be given columns that are
// explained here, which keeps the names of text, CSV and JSON the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/cell.hpp"

namespace fathom {

struct Column {
  std::string_view key;    // "predicted_s": CSV header, JSON key, argument of `fathom explain`
  std::string_view label;  // header for people: "predicted"
  Unit unit = Unit::kText;
  int priority = 0;          // 0 is always shown; narrow terminals drop higher ones first
  std::string_view meaning;  // one or two full sentences
  std::string_view formula;  // may be empty
  std::string_view where;    // JSON path or paths: "totals, ops[]"
};

const std::vector<Column>& all_columns();
// nullptr when unknown.
const Column* find_column(std::string_view key);
// By key, or else by heading ("predicted", "of peak", "A/A noise"), upper and lower case, blanks and underscores alike; of several columns with one heading the first. nullptr when unknown.
const Column* find_heading(std::string_view name);
// Throws an internal Error when unknown: for keys written in the program.
const Column& column_named(std::string_view key);
// For keys or headings written by the user ("totals.predicted_s" works too): throws an input Error at `option` (empty: at the name) with the nearest name.
const Column& lookup_column(std::string_view key, std::string_view option = {});

// "FLOP (2 per MAC)", "bytes", "seconds", "fraction", "text": the unit of the value in files.
std::string base_unit(const Column& column);

}  // namespace fathom
