// JSON read without losing a digit: numbers keep the text they were written with.
//
// nlohmann's DOM turns an integer past 2^64 into a double; its SAX interface hands over the raw token, so records with
// 128-bit FLOP totals survive reading, comparing and writing again. Duplicate keys, nesting past 256 and text after the
// value are input errors with file and line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "reports/json_writer.hpp"

namespace fathom {

class JsonValue {
 public:
  struct Number {
    std::string token;  // as written, a valid JSON number
    bool operator==(const Number&) const = default;
  };
  using Array = std::vector<JsonValue>;
  using Member = std::pair<std::string, JsonValue>;
  using Object = std::vector<Member>;  // in file order
  using Data = std::variant<std::nullptr_t, bool, Number, std::string, Array, Object>;

  JsonValue() = default;
  explicit JsonValue(Data value) : data(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(data); }
  bool is_number() const { return std::holds_alternative<Number>(data); }
  bool is_string() const { return std::holds_alternative<std::string>(data); }
  bool is_array() const { return std::holds_alternative<Array>(data); }
  bool is_object() const { return std::holds_alternative<Object>(data); }

  // The member, or nullptr where this is no object or has none of that name.
  const JsonValue* find(std::string_view name) const;
  // Follows names separated by dots ("totals.flops_matmul"); nullptr where a step is missing.
  const JsonValue* find_path(std::string_view path) const;

  // Each throws an input Error naming `what` when the value is of another type (or, for integers, not a non-negative
  // integer below 2^128; for doubles, out of range).
  const JsonValue& at(std::string_view name) const;
  u128 as_u128(std::string_view what = "value") const;
  double as_double(std::string_view what = "value") const;
  bool as_bool(std::string_view what = "value") const;
  const std::string& as_string(std::string_view what = "value") const;
  const Array& as_array(std::string_view what = "value") const;
  const Object& as_object(std::string_view what = "value") const;

  bool operator==(const JsonValue&) const;  // number tokens are compared as text

  Data data = nullptr;
};

// Throws an input Error with `file` and the line of the first mistake.
JsonValue parse_json(std::string_view text, const std::string& file = "");

// Writes the value through the writer, number tokens unchanged.
void write_json(JsonWriter& writer, const JsonValue& value);

}  // namespace fathom
