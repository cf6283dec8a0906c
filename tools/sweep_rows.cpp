#include "tools/sweep_rows.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lib/error.hpp"
#include "reports/json_reader.hpp"
#include "reports/json_writer.hpp"
#include "reports/utf8.hpp"

namespace fathom {
namespace {

void append(std::string& out, u128 value) {
  char text[24];
  if ((value >> 64) != 0) {
    out += to_string(value);
    return;
  }
  const auto end = std::to_chars(text, text + sizeof text, static_cast<std::uint64_t>(value));
  out.append(text, end.ptr);
}

void append(std::string& out, double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  out.append(text, end.ptr);
}

void append_csv(std::string& out, std::string_view text) {
  bool plain = true;
  for (const char c : text) plain = plain && c != ',' && c != '"' && c != '\n' && c != '\r' && static_cast<unsigned char>(c) < 0x80;
  if (plain && (text.empty() || (text.front() != ' ' && text.back() != ' '))) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : valid_utf8(text)) {
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;  // one row is one line
  }
  out += '"';
}

// Digits are a count, other numbers are doubles, everything else is text.
Cell cell_of(const std::string& text) {
  if (text.empty()) return Cell();
  if (text.size() <= 39 && text.find_first_not_of("0123456789") == std::string::npos) {
    try {
      return Cell::count(parse_u128(text));
    } catch (const Error&) {
      return Cell::text(text);
    }
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value)) return Cell::number(value);
  return Cell::text(text);
}

std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) throw_input("a quoted field has no end");
  return fields;
}

}  // namespace

RowWriter::RowWriter(RowFormat format, std::vector<SweepColumn> keys, std::vector<std::string> figures, std::vector<std::pair<std::string, std::string>> made)
    : format_(format), keys_(std::move(keys)), figures_(std::move(figures)), made_(std::move(made)) {
  if (format_ == RowFormat::kCsv) {
    for (const SweepColumn& key : keys_) header_ += (header_.empty() ? "" : ",") + key.key;
    for (const std::string& figure : figures_) header_ += "," + figure;
    for (const auto& [key, text] : made_) {
      header_ += "," + key;
      tail_ += ',';
      append_csv(tail_, text);
    }
    header_ += ",status\n";
    return;
  }
  for (const SweepColumn& key : keys_) key_labels_.push_back((key_labels_.empty() ? "{" : ",") + json_quote(key.key) + ":");
  for (const std::string& figure : figures_) figure_labels_.push_back("," + json_quote(figure) + ":");
  for (const auto& [key, text] : made_) tail_ += "," + json_quote(key) + ":" + json_quote(text);
}

void RowWriter::write_keys(const SweepPoint& point, std::string& out) const {
  if (format_ == RowFormat::kCsv) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (i > 0) out += ',';
      if (keys_[i].number)
        out += point.keys[i];
      else
        append_csv(out, point.keys[i]);
    }
    return;
  }
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    out += key_labels_[i];
    if (point.keys[i].empty())
      out += "null";
    else if (keys_[i].number && point.keys[i].find('/') == std::string::npos)
      out += point.keys[i];
    else  // a share that no decimal is equal to stays a fraction, as text
      out += json_quote(point.keys[i]);
  }
}

void RowWriter::write_figures(const std::vector<SweepValue>& values, std::string_view status, std::string& out) const {
  const bool csv = format_ == RowFormat::kCsv;
  for (std::size_t i = 0; i < figures_.size(); ++i) {
    const SweepValue& value = values[i];
    if (csv)
      out += ',';
    else
      out += figure_labels_[i];
    switch (value.kind) {
      case SweepValue::Kind::kCount: append(out, value.count); break;
      case SweepValue::Kind::kNumber:
        if (std::isfinite(value.number))
          append(out, value.number);
        else if (!csv)
          out += "null";
        break;
      case SweepValue::Kind::kText:
        if (csv)
          append_csv(out, value.text);
        else
          out += json_quote(value.text);
        break;
      case SweepValue::Kind::kNone:
        if (!csv) out += "null";
        break;
    }
  }
  out += tail_;
  if (csv) {
    out += ',';
    append_csv(out, status);
    out += '\n';
    return;
  }
  if (!status.empty()) out += ",\"status\":" + json_quote(status);
  out += "}\n";
}

std::vector<Cell> RowWriter::read(std::string_view line) const {
  const std::size_t columns = keys_.size() + figures_.size() + made_.size() + 1;
  std::vector<Cell> cells;
  if (format_ == RowFormat::kCsv) {
    const std::vector<std::string> fields = csv_fields(line);
    if (fields.size() != columns) throw_input(fmt::format("the row has {} fields, the header {}", fields.size(), columns));
    for (std::size_t i = 0; i < columns; ++i) {
      const bool word = i >= keys_.size() + figures_.size() || (i < keys_.size() && !keys_[i].number);
      cells.push_back(!word ? cell_of(fields[i]) : fields[i].empty() ? Cell() : Cell::text(fields[i]));
    }
    return cells;
  }
  const JsonValue row = parse_json(line);
  const auto cell = [&](const std::string& key) -> Cell {
    const JsonValue* value = row.find(key);
    if (!value || value->is_null()) return Cell();
    if (value->is_string()) return Cell::text(value->as_string());
    if (value->is_number()) return cell_of(std::get<JsonValue::Number>(value->data).token);
    throw_input("neither a number nor text", {"", 0, key});
  };
  for (const SweepColumn& key : keys_) cells.push_back(cell(key.key));
  for (const std::string& figure : figures_) cells.push_back(cell(figure));
  for (const auto& [key, text] : made_) cells.push_back(cell(key));
  cells.push_back(cell("status"));
  return cells;
}

}  // namespace fathom
