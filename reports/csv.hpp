// CSV for programs: one table, one row per op or configuration, full precision in base units.
#pragma once

#include <string>
#include <string_view>

#include "reports/document.hpp"
#include "reports/json_writer.hpp"

namespace fathom {

// RFC 4180: header of glossary keys (the key carries the base unit: predicted_s, bytes_read), CRLF line ends, fields
// quoted where needed, UTF-8 without byte-order mark. Integers have all their digits, doubles the shortest text that
// reads back. A number that was not obtained is an empty field (read as missing by pandas and R) and its reason stands
// in a last column `status` ("measured_s: no device"), which is always there. Totals are left out: they can be summed.
std::string render_csv(const ReportTable& table, std::string_view line_end = "\r\n");

// The same rows as a JSON array of objects; a missing number is null and named in the object's "status" object.
void write_table(JsonWriter& writer, const ReportTable& table);
// A cell as a JSON value; status and empty are null.
void write_cell(JsonWriter& writer, const Cell& cell);

}  // namespace fathom
