#include "reports/json_writer.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lib/error.hpp"
#include "reports/utf8.hpp"

namespace fathom {

std::string shortest(double value) {
  if (value == 0 && std::signbit(value)) return "-0.0";  // "-0" would be read back as the integer 0
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end.ptr);
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        // DEL and the two separators that JavaScript once took for line ends are escaped too.
        if (c < 0x20 || c == 0x7f || c == 0x2028 || c == 0x2029) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          append_utf8(out, c);
        }
    }
  }
  out += '"';
  return out;
}

std::string JsonWriter::path() const {
  std::string text;
  for (const Level& level : levels_) {
    if (level.array) {
      text += fmt::format("[{}]", level.entries == 0 ? 0 : level.entries - 1);
    } else {
      text += (text.empty() ? "" : ".") + level.last_key;
    }
  }
  return text.empty() ? "the top level" : text;
}

void JsonWriter::misuse(std::string_view what) const {
  throw_internal(fmt::format("JSON writer: {} at {}", what, path()));
}

void JsonWriter::newline() {
  if (indent_ == 0) return;
  out_ += '\n';
  out_.append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
}

void JsonWriter::before_value() {
  if (done_) misuse("a second top-level value");
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (level.array) {
    if (level.entries++ > 0) out_ += ',';
    newline();
  } else if (!key_pending_) {
    misuse("a value without a key");
  }
  key_pending_ = false;
}

void JsonWriter::open(char bracket) {
  before_value();
  out_ += bracket;
  levels_.push_back({bracket == '[', 0, {}});
}

void JsonWriter::close(char bracket) {
  const bool array = bracket == ']';
  if (levels_.empty() || levels_.back().array != array) misuse(fmt::format("'{}' closes nothing", bracket));
  if (key_pending_) misuse("a key without a value");
  const bool empty = levels_.back().entries == 0;
  levels_.pop_back();
  if (!empty) newline();
  out_ += bracket;
  done_ = levels_.empty();
}

JsonWriter& JsonWriter::begin_object() {
  return open('{'), *this;
}
JsonWriter& JsonWriter::end_object() {
  return close('}'), *this;
}
JsonWriter& JsonWriter::begin_array() {
  return open('['), *this;
}
JsonWriter& JsonWriter::end_array() {
  return close(']'), *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  if (levels_.empty() || levels_.back().array) misuse("a key outside an object");
  if (key_pending_) misuse("two keys in a row");
  Level& level = levels_.back();
  if (level.entries++ > 0) out_ += ',';
  level.last_key = std::string(name);
  newline();
  out_ += json_quote(name);
  out_ += indent_ == 0 ? ":" : ": ";
  key_pending_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  out_ += json_quote(text);
  done_ = levels_.empty();
  return *this;
}

JsonWriter& JsonWriter::number_token(std::string_view token) {
  before_value();
  out_ += token;
  done_ = levels_.empty();
  return *this;
}

JsonWriter& JsonWriter::value(bool flag) {
  return number_token(flag ? "true" : "false");
}
JsonWriter& JsonWriter::null() {
  return number_token("null");
}
JsonWriter& JsonWriter::value(u128 number) {
  return number_token(to_string(number));
}
JsonWriter& JsonWriter::negative(std::int64_t number) {
  return number_token(std::to_string(number));
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) misuse("a number that is not finite (write null and a status)");
  return number_token(shortest(number));
}

JsonWriter& JsonWriter::number_or_null(double number) {
  return std::isfinite(number) ? value(number) : null();
}

std::string JsonWriter::finish() {
  if (!levels_.empty() || !done_) misuse("finish() before the value is complete");
  std::string text = std::move(out_);
  text += '\n';
  *this = JsonWriter(indent_);
  return text;
}

}  // namespace fathom
