#include "reports/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/error.hpp"

namespace fathom {
namespace {

constexpr std::size_t kMaxDepth = 256;  // the value's destructor recurses; records nest five deep

std::string type_name(const JsonValue& value) {
  static constexpr const char* kNames[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
  return kNames[value.data.index()];
}

[[noreturn]] void wrong_type(const JsonValue& value, std::string_view what, std::string_view wanted) {
  throw_input(fmt::format("'{}' must be {}, is {}", what, wanted, type_name(value)), {{}, 0, std::string(what)});
}

// Receives the parser's events and builds the value on an explicit stack.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  bool null() override { return add(JsonValue(nullptr)); }
  bool boolean(bool v) override { return add(JsonValue(JsonValue::Data(v))); }
  bool number_integer(number_integer_t v) override { return number(std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) override { return number(std::to_string(v)); }
  bool number_float(number_float_t, const string_t& token) override { return number(token); }
  bool string(string_t& v) override { return add(JsonValue(JsonValue::Data(std::move(v)))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return push(JsonValue(JsonValue::Object{})); }
  bool start_array(std::size_t) override { return push(JsonValue(JsonValue::Array{})); }
  bool end_object() override { return pop(); }
  bool end_array() override { return pop(); }

  bool key(string_t& name) override {
    const auto& members = std::get<JsonValue::Object>(stack_.back().data);
    if (std::any_of(members.begin(), members.end(), [&](const auto& m) { return m.first == name; })) {
      throw_input(fmt::format("duplicate JSON key '{}'", name), {file_, 0, name}, "keep one of the two");
    }
    keys_.push_back(std::move(name));
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception& error) override {
    const std::size_t end = std::min(position, text_.size());
    const int line =
        1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    (void)token;  // the exception's text quotes it already
    std::string message = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." -> from "syntax error" on.
    if (const auto colon = message.find(": "); colon != std::string::npos) message = message.substr(colon + 2);
    if (const std::size_t bracket = message.find("] "); message.starts_with("[json.exception") && bracket != std::string::npos) message = message.substr(bracket + 2);  // "[json.exception.out_of_range.406] number overflow ..."
    throw_input("not valid JSON: " + message, {file_, line, {}});
  }

  JsonValue take() { return std::move(root_); }

 private:
  bool number(std::string token) { return add(JsonValue(JsonValue::Data(JsonValue::Number{std::move(token)}))); }

  bool add(JsonValue value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<JsonValue::Array>(&stack_.back().data)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonValue::Object>(stack_.back().data).emplace_back(std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }

  bool push(JsonValue container) {
    if (stack_.size() >= kMaxDepth)
      throw_input(fmt::format("JSON nested deeper than {} levels", kMaxDepth), {file_, 0, {}});
    stack_.push_back(std::move(container));
    return true;
  }

  bool pop() {
    JsonValue done = std::move(stack_.back());
    stack_.pop_back();
    return add(std::move(done));
  }

  std::string_view text_;
  std::string file_;
  std::vector<JsonValue> stack_;
  std::vector<std::string> keys_;
  JsonValue root_;
};

}  // namespace

bool JsonValue::operator==(const JsonValue& other) const {
  return data == other.data;
}

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto* members = std::get_if<Object>(&data);
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->begin(), members->end(), [&](const Member& m) { return m.first == name; });
  return found == members->end() ? nullptr : &found->second;
}

const JsonValue* JsonValue::find_path(std::string_view path) const {
  const JsonValue* value = this;
  while (value != nullptr && !path.empty()) {
    const auto dot = path.find('.');
    value = value->find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return value;
}

const JsonValue& JsonValue::at(std::string_view name) const {
  if (!is_object()) wrong_type(*this, name, "inside an object");
  const JsonValue* value = find(name);
  if (value == nullptr) {
    std::vector<std::string> names;
    for (const Member& member : std::get<Object>(data)) names.push_back(member.first);
    throw_input(fmt::format("missing key '{}'", name), {{}, 0, std::string(name)}, name_hint(name, names));
  }
  return *value;
}

u128 JsonValue::as_u128(std::string_view what) const {
  const auto* number = std::get_if<Number>(&data);
  if (number == nullptr) wrong_type(*this, what, "a non-negative integer");
  try {
    return parse_u128(number->token);
  } catch (const Error&) {
    throw_input(fmt::format("'{}' must be a non-negative integer below 2^128, is {}", what, number->token),
                {{}, 0, std::string(what)});
  }
}

double JsonValue::as_double(std::string_view what) const {
  const auto* number = std::get_if<Number>(&data);
  if (number == nullptr) wrong_type(*this, what, "a number");
  const char* end = number->token.data() + number->token.size();
  double value = 0;
  const auto result = std::from_chars(number->token.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || !std::isfinite(value)) {
    throw_input(fmt::format("'{}' is out of range: {}", what, number->token), {{}, 0, std::string(what)});
  }
  return value;
}

bool JsonValue::as_bool(std::string_view what) const {
  if (const auto* flag = std::get_if<bool>(&data)) return *flag;
  wrong_type(*this, what, "true or false");
}

const std::string& JsonValue::as_string(std::string_view what) const {
  if (const auto* text = std::get_if<std::string>(&data)) return *text;
  wrong_type(*this, what, "a string");
}

const JsonValue::Array& JsonValue::as_array(std::string_view what) const {
  if (const auto* array = std::get_if<Array>(&data)) return *array;
  wrong_type(*this, what, "an array");
}

const JsonValue::Object& JsonValue::as_object(std::string_view what) const {
  if (const auto* object = std::get_if<Object>(&data)) return *object;
  wrong_type(*this, what, "an object");
}

JsonValue parse_json(std::string_view text, const std::string& file) {
  Builder builder(text, file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

void write_json(JsonWriter& writer, const JsonValue& value) {
  if (value.is_null()) {
    writer.null();
  } else if (const auto* flag = std::get_if<bool>(&value.data)) {
    writer.value(*flag);
  } else if (const auto* number = std::get_if<JsonValue::Number>(&value.data)) {
    writer.number_token(number->token);
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    writer.value(*text);
  } else if (const auto* array = std::get_if<JsonValue::Array>(&value.data)) {
    writer.begin_array();
    for (const JsonValue& entry : *array) write_json(writer, entry);
    writer.end_array();
  } else {
    writer.begin_object();
    for (const auto& [name, member] : std::get<JsonValue::Object>(value.data)) write_json(writer.key(name), member);
    writer.end_object();
  }
}

}  // namespace fathom
