// What every renderer renders: a report as data.
//
// Commands build one Document; terminal text, Markdown, HTML, CSV and JSON come from that same object, so they cannot
// disagree. Values stay exact and tagged with their unit (reports/cell.hpp); columns are named by glossary keys
// (reports/columns.hpp), so every number printed can be explained.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "reports/cell.hpp"
#include "reports/plot.hpp"

namespace fathom {

// Paragraphs, notes and labels are plain text in which `backticks` mark code; renderers escape everything else.
struct Heading {
  int level = 2;  // 2 or 3; the title is level 1
  std::string text;
};
struct Paragraph {
  std::string text;
};
// A command line, a formula, a reproduction recipe: shown verbatim.
struct CodeBlock {
  std::string text;
};
struct Note {
  enum class Severity { kNote, kWarning, kSkipped };
  Severity severity = Severity::kNote;
  std::string text;
};

struct ReportColumn {
  std::string key;    // glossary key; CSV header and JSON name
  std::string label;  // header for people
  Unit unit = Unit::kText;
  int priority = 0;    // narrow terminals drop the highest first; 0 is never dropped
  int digits = 4;      // significant digits shown to people
  bool exact = false;  // show counts with all their digits
  double like = 0;     // seconds: all cells in the unit of a time of this size; 0: each in its own
};

// Columns of a table on a page: wider ones leave out the most dispensable, or go on in a second table.
inline constexpr std::size_t kPageColumns = 11;

class ReportTable {
 public:
  ReportTable() = default;
  // `table_key` names files and anchors: "ops", "configurations".
  ReportTable(std::string table_key, std::string table_title)
      : key(std::move(table_key)), title(std::move(table_title)) {}

  // A column of the glossary; label, unit and priority come from there. Throws an internal Error for an unknown key.
  ReportColumn& add_column(std::string_view glossary_key);
  ReportColumn& add_column(ReportColumn column);
  // Throws an internal Error unless there is one cell per column.
  void add_row(std::vector<Cell> cells, bool total = false);

  struct Row {
    std::vector<Cell> cells;
    bool total = false;  // a sum over the rows above: set off, not sorted with them, left out of CSV
  };

  std::string key;
  std::string title;
  std::string caption;
  std::vector<ReportColumn> columns;
  std::vector<Row> rows;
  bool wide = false;  // Markdown shows all columns, however many
  std::size_t group = 0;  // leading columns whose values several rows share, one after the other: shown to people once for all of them
  // Text and Markdown show at most this many rows and say how many follow (0: all); CSV, JSON and HTML hold all.
  int preview_rows = 0;
};

// Facts beside names: machine, scenario, conventions.
struct KeyValues {
  struct Item {
    std::string key;  // glossary key, or "" for free labels
    std::string label;
    Cell value;
    Unit unit = Unit::kText;
    std::string source;  // provenance: "datasheet", "probed 2024-05-01"; may be empty
  };
  std::string title;
  std::vector<Item> items;

  void add(std::string_view glossary_key, Cell value, std::string source = "");
  void add_text(std::string label, std::string text, std::string source = "");
};

using DocumentPart =
    std::variant<Heading, Paragraph, CodeBlock, Note, KeyValues, ReportTable, XyPlot, BarPlot, RoutingMap>;

struct Document {
  std::string title;
  std::vector<DocumentPart> parts;

  Document& heading(std::string text, int level = 2);
  Document& paragraph(std::string text);
  Document& code(std::string text);
  Document& note(std::string text);
  Document& warning(std::string text);
  Document& skipped(std::string text);
  template <class Part>
  Document& add(Part part) {
    parts.emplace_back(std::move(part));
    return *this;
  }
  // Appends a "Columns" section that explains every glossary key used so far.
  Document& glossary();
};

// Of a grouped table: whether a row has the leading cells of the one before it, which then are not shown again.
bool repeats_group(const ReportTable& table, std::size_t row);

struct Column;
// What `fathom explain COLUMN` prints: unit, meaning, formula, and where the key stands in JSON.
Document explain_column(const Column& column);

// All tables of the document, in order; and the one of that key (throws an input Error listing the keys).
std::vector<const ReportTable*> tables_of(const Document& document);
const ReportTable& table_of(const Document& document, std::string_view key);

}  // namespace fathom
