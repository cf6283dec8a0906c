#include "reports/csv.hpp"

#include "reports/format.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

std::string field(std::string_view text) {
  const std::string valid = valid_utf8(text);
  // Surrounding blanks are quoted too: some readers trim bare fields.
  const bool quote = valid.find_first_of(",\"\r\n") != std::string::npos ||
                     (!valid.empty() && (valid.front() == ' ' || valid.back() == ' '));
  if (!quote) return valid;
  std::string out = "\"";
  for (const char c : valid) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

bool has_status_column(const ReportTable& table) {
  for (const ReportColumn& column : table.columns) {
    if (column.key == "status") return true;
  }
  return false;
}

}  // namespace

std::string render_csv(const ReportTable& table, std::string_view line_end) {
  const bool own_status = !has_status_column(table);
  std::string out;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (i > 0) out += ',';
    out += field(table.columns[i].key);
  }
  if (own_status) out += ",status";
  out += line_end;
  for (const ReportTable::Row& row : table.rows) {
    if (row.total) continue;
    std::string reasons;  // why numbers are missing: in a column of their own, or behind the row's own status
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      if (const Cell::Status* status = row.cells[i].missing()) reasons += (reasons.empty() ? "" : "; ") + table.columns[i].key + ": " + status->reason;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      if (i > 0) out += ',';
      std::string text = exact_text(row.cells[i]);
      if (table.columns[i].key == "status" && !reasons.empty()) text += (text.empty() ? "" : "; ") + reasons;
      out += field(text);
    }
    if (own_status) out += "," + field(reasons);
    out += line_end;
  }
  return out;
}

void write_cell(JsonWriter& writer, const Cell& cell) {
  if (const u128* count = cell.exact()) {
    writer.value(*count);
  } else if (const double* number = cell.real()) {
    writer.value(*number);
  } else if (const std::string* words = cell.words()) {
    writer.value(*words);
  } else {
    writer.null();
  }
}

void write_table(JsonWriter& writer, const ReportTable& table) {
  const bool own_status = !has_status_column(table);
  writer.begin_array();
  for (const ReportTable::Row& row : table.rows) {
    if (row.total) continue;
    writer.begin_object();
    bool any_missing = false;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      write_cell(writer.key(table.columns[i].key), row.cells[i]);
      any_missing |= row.cells[i].missing() != nullptr;
    }
    if (any_missing && own_status) {
      writer.key("status").begin_object();
      for (std::size_t i = 0; i < row.cells.size(); ++i) {
        if (const Cell::Status* status = row.cells[i].missing()) writer.member(table.columns[i].key, status->reason);
      }
      writer.end_object();
    }
    writer.end_object();
  }
  writer.end_array();
}

}  // namespace fathom
