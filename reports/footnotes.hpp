// Why a number is missing, below its table: a long reason would widen its column, so the cell says "n/a [1]" and the reason stands once under the rows.
#pragma once

#include <string>
#include <vector>

#include "reports/document.hpp"

namespace fathom {

class Footnotes {
 public:
  // `cell` as people read it in this column, or its mark.
  std::string shown(const Cell& cell, const ReportColumn& column);
  // "[1] the reason", in order of their marks.
  std::vector<std::string> lines() const;

 private:
  std::vector<std::string> reasons_;
};

}  // namespace fathom
