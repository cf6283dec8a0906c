// How a row of models/network_keys.cpp is made: from the key, the member that it sets, and how a value of that type stands in a file.
#pragma once

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "models/limits.hpp"
#include "models/network_keys.hpp"

namespace fathom::keys {

// The range of a whole number; `allowed` in words where other keys decide, which validate() then names with their values.
struct Limits {
  std::int64_t low = 0, high = kMaxSize;
  const char* allowed = nullptr;
};
inline std::int64_t read_number(const IniValue& value, const Limits& limits) { return value.integer(limits.low, limits.high, limits.allowed ? limits.allowed : ""); }

inline std::string text(std::int64_t value) { return fmt::format("{}", value); }
inline std::string text(bool value) { return value ? "yes" : "no"; }
inline std::string text(double value) { return fmt::format("{}", value); }
inline std::string text(const std::string& value) { return value; }
inline std::string text(const Fraction& value) { return value.str(); }
inline std::string text(DType value) { return std::string(dtype_name(value)); }
inline std::string text(Rounding value) { return std::string(rounding_name(value)); }
template <class T>
std::string text(const std::optional<T>& value) { return value ? text(*value) : std::string(); }

template <class Enum>
struct Named {
  const char* name;
  Enum value;
};
template <class Enum, std::size_t N>
std::string named(const Named<Enum> (&table)[N], Enum value) {
  for (const auto& row : table)
    if (row.value == value) return row.name;
  return "?";
}
template <class Enum, std::size_t N>
Enum choose(const IniValue& value, const Named<Enum> (&table)[N]) {
  std::vector<std::string> names;
  for (const auto& row : table) {
    if (value.text() == row.name) return row.value;
    names.emplace_back(row.name);
  }
  value.fail(fmt::format("unknown value '{}'", value.text().substr(0, 60)), name_hint(value.text(), names));
}

template <class Enum, std::size_t N>
std::string all_names(const Named<Enum> (&table)[N]) {
  std::string names;
  for (const auto& row : table) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

// A row names its member by a path of member pointers: value_row<BlockDraft, &BlockDraft::moe,
// &MoeConfig::experts>(...). Reading engages an optional group on the way; peek() gives nullptr where a group is
// absent.
template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

template <auto Head, auto... Rest, class T>
auto& reach(T& object) {
  auto& found = object.*Head;
  if constexpr (sizeof...(Rest) == 0) {
    return found;
  } else if constexpr (kIsOptional<std::remove_cvref_t<decltype(found)>>) {
    if (!found) found.emplace();
    return reach<Rest...>(*found);
  } else {
    return reach<Rest...>(found);
  }
}

template <auto Head, auto... Rest, class T>
const auto* peek(const T& object) {
  const auto& found = object.*Head;
  if constexpr (sizeof...(Rest) == 0) {
    return &found;
  } else if constexpr (kIsOptional<std::remove_cvref_t<decltype(found)>>) {
    return found ? peek<Rest...>(*found) : decltype(peek<Rest...>(*found)){};
  } else {
    return peek<Rest...>(found);
  }
}

// How a member's type is written in a file.
void read_into(std::int64_t& member, const IniValue& value) = delete;  // whole numbers state their range: number_row
inline void read_into(bool& member, const IniValue& value) { member = value.boolean(); }
inline void read_into(double& member, const IniValue& value) { member = value.real(); }
inline void read_into(std::string& member, const IniValue& value) { member = value.text(); }
inline void read_into(Fraction& member, const IniValue& value) { member = value.fraction(); }
inline void read_into(DType& member, const IniValue& value) { member = value.parse(parse_dtype); }
inline void read_into(Rounding& member, const IniValue& value) { member = value.parse(parse_rounding); }
template <class T>
void read_into(std::optional<T>& member, const IniValue& value) { read_into(member.emplace(), value); }
inline const char* values_of(std::int64_t) { return "integer"; }
inline const char* values_of(bool) { return "yes, no"; }
inline const char* values_of(double) { return "number"; }
inline const char* values_of(const std::string&) { return "text"; }
inline const char* values_of(const Fraction&) { return "fraction"; }
inline const char* values_of(DType) { return "f32, bf16, f16, f8, i8"; }
inline const char* values_of(Rounding) { return "floor, half-up, ceil"; }
template <class T>
const char* values_of(const std::optional<T>&) { return values_of(T{}); }

template <class T, auto... Path>
KeyRow<T> value_row(const char* key, const char* standard, const char* meaning) {
  using Value = std::remove_cvref_t<decltype(reach<Path...>(std::declval<T&>()))>;
  return {key,
          values_of(Value{}),
          standard,
          meaning,
          [](T& object, const IniValue& value) { read_into(reach<Path...>(object), value); },
          [](const T& object) {
            const auto* member = peek<Path...>(object);
            return member != nullptr ? text(*member) : std::string();
          }};
}

// The same for a whole number within limits.
template <class T, const Limits& kLimits, auto... Path>
KeyRow<T> number_row(const char* key, const char* standard, const char* meaning) {
  return {key,
          "integer",
          standard,
          meaning,
          [](T& object, const IniValue& value) { reach<Path...>(object) = read_number(value, kLimits); },
          [](const T& object) {
            const auto* member = peek<Path...>(object);
            return member != nullptr ? text(*member) : std::string();
          }};
}

template <class T, const auto& Table, auto... Path>
KeyRow<T> named_row(const char* key, const char* standard, const char* meaning) {
  return {key,
          all_names(Table),
          standard,
          meaning,
          [](T& object, const IniValue& value) { reach<Path...>(object) = choose(value, Table); },
          [](const T& object) {
            const auto* member = peek<Path...>(object);
            return member != nullptr ? named(Table, *member) : std::string();
          }};
}

}  // namespace fathom::keys
