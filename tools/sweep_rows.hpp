// Rows of a sweep as lines of CSV or JSONL: written without the heap, and read back to resume a file.
//
// A line begins with its key columns (what was asked), then the figures, who made them, and the status: so the beginning of a line of a file can be
// compared with what the sweep would write there.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/sweep_figures.hpp"
#include "tools/sweep_space.hpp"

namespace fathom {

enum class RowFormat { kCsv, kJsonl };

class RowWriter {
 public:
  // `made`: columns that are the same in every row, and their texts: the program's version, and of measured rows the machine they ran on.
  RowWriter(RowFormat format, std::vector<SweepColumn> keys, std::vector<std::string> figures, std::vector<std::pair<std::string, std::string>> made = {});

  RowFormat format() const { return format_; }
  const std::vector<SweepColumn>& keys() const { return keys_; }
  const std::vector<std::string>& figures() const { return figures_; }
  const std::vector<std::pair<std::string, std::string>>& made() const { return made_; }
  // The first line of a file; "" for JSONL, which names its columns in every line.
  const std::string& header() const { return header_; }

  // Appends the key columns: the beginning of the row's line, ending at a column's end.
  void write_keys(const SweepPoint& point, std::string& out) const;
  // Appends figures, status and line end behind the keys.
  void write_figures(const std::vector<SweepValue>& values, std::string_view status, std::string& out) const;

  // A line (without its end) as one cell per key, figure and `made` column, and the status last; a missing value is empty. Throws Error(kInput) when the line has
  // other columns.
  std::vector<Cell> read(std::string_view line) const;

 private:
  RowFormat format_;
  std::vector<SweepColumn> keys_;
  std::vector<std::string> figures_;
  std::vector<std::pair<std::string, std::string>> made_;
  std::string header_, tail_;  // tail_: `made` as every line has it
  std::vector<std::string> key_labels_, figure_labels_;  // JSONL: {"key": ready to append
};

}  // namespace fathom
