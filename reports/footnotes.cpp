#include "reports/footnotes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

constexpr int kLongStatus = 12;  // characters: wider than most numbers with their unit

}  // namespace

std::string Footnotes::shown(const Cell& cell, const ReportColumn& column) {
  std::string text = cell_text(cell, column);
  if (cell.missing() == nullptr || !is_numeric(column.unit) || display_width(text) <= kLongStatus) return text;
  const std::string reason = printable(cell.missing()->reason);
  auto known = std::find(reasons_.begin(), reasons_.end(), reason);
  if (known == reasons_.end()) known = reasons_.insert(known, reason);
  return fmt::format("n/a [{}]", known - reasons_.begin() + 1);
}

std::vector<std::string> Footnotes::lines() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < reasons_.size(); ++i) lines.push_back(fmt::format("[{}] {}", i + 1, reasons_[i]));
  return lines;
}

}  // namespace fathom
