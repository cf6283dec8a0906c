// A streaming JSON writer that never rounds an integer.
//
// nlohmann::json stores integers in 64 bits and prints larger ones as doubles; FLOP totals of a training run pass 2^64.
// Here integers up to 128 bits are written as JSON integers, doubles in the shortest form that reads back to the same
// bits, and NaN or infinity are refused: a result that was not obtained is `null` with a status beside it.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/units.hpp"

namespace fathom {

// The shortest decimal text that reads back as the same double ("0.1", "1e+22", "-0.0"). `value` must be finite.
std::string shortest(double value);

class JsonWriter {
 public:
  // indent 0 writes one line; otherwise objects and arrays of containers are broken over lines.
  explicit JsonWriter(int indent = 2) : indent_(indent) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);  // invalid UTF-8 becomes U+FFFD
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& value(double number);  // throws an internal Error naming the path when not finite
  JsonWriter& value(u128 number);
  template <std::integral T>
  requires(!std::same_as<T, bool> && sizeof(T) <= 8) JsonWriter& value(T number) {
    if constexpr (std::signed_integral<T>) {
      return number < 0 ? negative(static_cast<std::int64_t>(number)) : value(static_cast<u128>(number));
    } else {
      return value(static_cast<u128>(number));
    }
  }
  template <class Tag>
  JsonWriter& value(Count<Tag> count) {
    return value(count.value());
  }
  template <class Tag>
  JsonWriter& value(Quantity<Tag> quantity) {
    return value(quantity.value());
  }
  JsonWriter& null();
  // A finite number, or null where the caller records the reason elsewhere.
  JsonWriter& number_or_null(double number);
  // A number token that was read from JSON, copied as it is.
  JsonWriter& number_token(std::string_view token);

  template <class T>
  JsonWriter& member(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  // The finished text, ending in a newline; throws an internal Error if something is still open.
  std::string finish();

 private:
  struct Level {
    bool array = false;
    std::size_t entries = 0;
    std::string last_key;
  };
  JsonWriter& negative(std::int64_t number);
  void open(char bracket);
  void close(char bracket);
  void before_value();
  void newline();
  std::string path() const;
  [[noreturn]] void misuse(std::string_view what) const;

  int indent_;
  std::string out_;
  std::vector<Level> levels_;
  bool key_pending_ = false;
  bool done_ = false;
};

// `text` as a JSON string literal, quotes included.
std::string json_quote(std::string_view text);

}  // namespace fathom
