// What the figures of a record must obey: for every column a range, for those that follow from others how.
//
// A rule stands here once, by the column's glossary key; reports/record_check walks a record and applies them. A column without a rule of its
// own has the range of its unit.
#pragma once

#include <limits>
#include <string_view>
#include <vector>

#include "reports/columns.hpp"

namespace fathom {

struct FigureRange {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  bool whole = false;   // an integer
};
// Of a column whose figure is a number.
FigureRange range_of(const Column& column);

// The words that a column may hold; empty: any.
std::vector<std::string_view> words_of_column(std::string_view key);

// key = (over[0] + over[1]) / under, or that - 1. `instead`: a column that may stand for over[0]; nullptr: none.
struct QuotientRule {
  const char *key, *over, *also, *under;
  bool change = false;
  const char* instead = nullptr;
};
const std::vector<QuotientRule>& quotient_rules();  // hold in every row that has the columns

// left <= right in every row that has both.
struct OrderRule {
  const char *left, *right;
};
const std::vector<OrderRule>& order_rules();

// Columns of the totals that are sums over the ops; where an op has no `key`, it counts with its `otherwise` (nullptr: not at all).
struct SumRule {
  const char *key, *of, *otherwise;
};
const std::vector<SumRule>& sum_rules();

// Columns of the totals that follow from the end-to-end passes `samples_s`: a quantile of them.
struct SampleRule {
  const char* key;
  double quantile;
};
const std::vector<SampleRule>& sample_rules();

}  // namespace fathom
