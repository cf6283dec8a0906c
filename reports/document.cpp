#include "reports/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/format.hpp"
#include "reports/part_looks.hpp"

namespace fathom {

bool plottable(double value) {
  return std::isfinite(value) && std::fabs(value) < 1e290;
}

int look_of(const BarPlot& plot, std::size_t series) {
  const int look = plot.series.at(series).look;
  return look >= 0 ? look : static_cast<int>(series) % kPlainLooks;
}

std::vector<double> bar_lengths(const BarPlot& plot) {
  std::vector<double> lengths;
  for (std::size_t c = 0; c < plot.categories.size(); ++c) {
    double sum = 0;
    for (const auto& series : plot.series) {
      if (!plottable(series.values[c])) continue;
      sum += std::max(series.values[c], 0.0);
      if (!plot.stacked) lengths.push_back(series.values[c]);
    }
    if (plot.stacked) lengths.push_back(sum);
  }
  return lengths;
}

void check_plot(const BarPlot& plot) {
  if (plot.categories.empty() || plot.series.empty()) throw_internal("bar plot '" + plot.key + "' has nothing to draw");
  for (const auto& series : plot.series) {
    if (series.values.size() != plot.categories.size()) {
      throw_internal(fmt::format("bar plot '{}': series '{}' has {} values for {} categories", plot.key, series.name,
                                 series.values.size(), plot.categories.size()));
    }
  }
  if (!plot.shown.empty() && plot.shown.size() != plot.categories.size())
    throw_internal(fmt::format("bar plot '{}': {} texts for {} categories", plot.key, plot.shown.size(), plot.categories.size()));
}

void check_plot(const RoutingMap& map) {
  if (map.blocks.empty() || map.frames.empty()) throw_internal("routing map '" + map.key + "' has nothing to draw");
  const std::size_t tokens = map.frames[0].states.empty() ? 0 : map.frames[0].states[0].size();
  const auto matches = [&](const auto& grid) {
    return grid.size() == map.blocks.size() &&
           std::all_of(grid.begin(), grid.end(), [&](const auto& r) { return r.size() == tokens; });
  };
  for (const auto& frame : map.frames) {
    if (!matches(frame.states) || (!frame.weights.empty() && !matches(frame.weights)) || tokens == 0) {
      throw_internal("routing map '" + map.key + "': a frame does not have one state per block and token");
    }
  }
  if (map.prompt > tokens) throw_internal("routing map '" + map.key + "': the prompt is longer than what was routed");
  if (!map.tokens.empty() && map.tokens.size() != tokens)
    throw_internal("routing map '" + map.key + "': token labels do not match");
}

ReportColumn& ReportTable::add_column(std::string_view glossary_key) {
  const Column& known = column_named(glossary_key);
  return add_column({std::string(known.key), std::string(known.label), known.unit, known.priority, 4, false});
}

ReportColumn& ReportTable::add_column(ReportColumn column) {
  if (!rows.empty()) throw_internal("report table '" + key + "': columns come before rows");
  for (const ReportColumn& other : columns) {
    if (other.key == column.key) throw_internal("report table '" + key + "': column '" + column.key + "' twice");
  }
  columns.push_back(std::move(column));
  return columns.back();
}

bool repeats_group(const ReportTable& table, std::size_t row) {
  if (table.group == 0 || row == 0) return false;
  for (std::size_t c = 0; c < table.group; ++c)
    if (exact_text(table.rows[row].cells[c]) != exact_text(table.rows[row - 1].cells[c])) return false;
  return true;
}

void ReportTable::add_row(std::vector<Cell> cells, bool total) {
  if (cells.size() != columns.size()) {
    throw_internal(fmt::format("report table '{}': {} cells for {} columns", key, cells.size(), columns.size()));
  }
  rows.push_back({std::move(cells), total});
}

void KeyValues::add(std::string_view glossary_key, Cell value, std::string source) {
  const Column& known = column_named(glossary_key);
  items.push_back({std::string(known.key), std::string(known.label), std::move(value), known.unit, std::move(source)});
}

void KeyValues::add_text(std::string label, std::string text, std::string source) {
  items.push_back({"", std::move(label), Cell::text(std::move(text)), Unit::kText, std::move(source)});
}

Document& Document::heading(std::string text, int level) {
  return add(Heading{level, std::move(text)});
}
Document& Document::paragraph(std::string text) {
  return add(Paragraph{std::move(text)});
}
Document& Document::code(std::string text) {
  return add(CodeBlock{std::move(text)});
}
Document& Document::note(std::string text) {
  return add(Note{Note::Severity::kNote, std::move(text)});
}
Document& Document::warning(std::string text) {
  return add(Note{Note::Severity::kWarning, std::move(text)});
}
Document& Document::skipped(std::string text) {
  return add(Note{Note::Severity::kSkipped, std::move(text)});
}

Document& Document::glossary() {
  std::vector<std::string> keys;
  const auto remember = [&](const std::string& key) {
    if (find_column(key) != nullptr && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  for (const DocumentPart& part : parts) {
    if (const auto* table = std::get_if<ReportTable>(&part)) {
      for (const ReportColumn& column : table->columns) remember(column.key);
    } else if (const auto* list = std::get_if<KeyValues>(&part)) {
      for (const KeyValues::Item& item : list->items) remember(item.key);
    }
  }
  if (keys.empty()) return *this;
  heading("Columns");
  ReportTable table("glossary", "");
  table.add_column({"heading", "heading", Unit::kText, 0, 4, false});
  table.add_column({"column", "in files", Unit::kText, 0, 4, false});
  table.add_column({"unit", "unit", Unit::kText, 0, 4, false});
  table.add_column({"meaning", "meaning", Unit::kText, 0, 4, false});
  for (const std::string& key : keys) {
    const Column& column = column_named(key);
    std::string meaning(column.meaning);
    if (!column.formula.empty()) meaning += fmt::format(" Formula: `{}`.", column.formula);
    table.add_row({Cell::text(std::string(column.label)), Cell::text(fmt::format("`{}`", column.key)), Cell::text(base_unit(column)), Cell::text(meaning)});
  }
  return add(std::move(table));
}

Document explain_column(const Column& column) {
  Document page;
  page.title = std::string(column.key);
  page.paragraph(std::string(column.meaning));
  KeyValues facts;
  facts.add_text("shown as", std::string(column.label));
  facts.add_text("unit in CSV and JSON", base_unit(column));
  if (!column.formula.empty()) facts.add_text("formula", fmt::format("`{}`", column.formula));
  facts.add_text("in JSON under", std::string(column.where));
  return page.add(facts);
}

std::vector<const ReportTable*> tables_of(const Document& document) {
  std::vector<const ReportTable*> tables;
  for (const DocumentPart& part : document.parts) {
    if (const auto* table = std::get_if<ReportTable>(&part)) tables.push_back(table);
  }
  return tables;
}

const ReportTable& table_of(const Document& document, std::string_view key) {
  std::vector<std::string> keys;
  for (const ReportTable* table : tables_of(document)) {
    if (table->key == key) return *table;
    keys.push_back(table->key);
  }
  throw_input(fmt::format("no table '{}' in this report", key), {{}, 0, std::string(key)}, name_hint(key, keys));
}

}  // namespace fathom
