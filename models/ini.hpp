// INI files: the text format of networks and machines, read strictly.
//
//   # comment, also after a value
//   [section]
//   width = 768
//   bandwidth = 3.35 TB/s
//
// Values are read by Boost.Program_options. That parser knows neither line numbers nor duplicates, so the text is first
// scanned here: the scan finds the line of every section and key, and refuses what the parser would take silently
// (duplicates, empty values, binary data). Every error says file, line and key, and hints at the nearest known name.
//
// Nothing in a file is ignored: only() names the keys that a section may hold, finish() reports a section or key that
// nobody asked for. Values stay text until a typed getter reads them, and no getter guesses: "1e6" is no integer, a
// bare number no bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/dtype.hpp"
#include "lib/error.hpp"
#include "lib/fraction.hpp"
#include "lib/quantity.hpp"
#include "lib/units.hpp"

namespace fathom {

// Limits that keep a wrong file (a tensor dump, a device) from being chewed on. A machine file with all its fitted
// curves is some hundred kilobytes.
inline constexpr std::size_t kMaxIniBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxIniLine = std::size_t{64} << 10;
inline constexpr std::size_t kMaxIniName = 128;  // of a section or key

// One value with its place. The getters throw Error(kInput) with file, line and key.
class IniValue {
 public:
  IniValue(std::string text, Where where) : text_(std::move(text)), where_(std::move(where)) {}

  const std::string& text() const { return text_; }
  const Where& where() const { return where_; }

  // Plain decimal digits with an optional minus sign, within [low, high]. `allowed`: the range in words for the message, where other keys decide ("0 to head_dim").
  std::int64_t integer(std::int64_t low = 0, std::int64_t high = std::numeric_limits<std::int64_t>::max(), std::string_view allowed = {}) const;
  // "0.125", "1/8", "12.5%": exact.
  Fraction fraction() const;
  // A dimensionless finite real, within [low, high]. Capacities and probabilities are fractions, not reals.
  double real(double low = std::numeric_limits<double>::lowest(),
              double high = std::numeric_limits<double>::max()) const;
  // true, yes, on, false, no, off.
  bool boolean() const;
  // A number with a unit of the dimension, in base units.
  double quantity(Dimension dimension) const;
  Seconds seconds() const { return Seconds(quantity(Dimension::kTime)); }
  ByteRate byte_rate() const { return ByteRate(quantity(Dimension::kByteRate)); }
  FlopRate flop_rate() const { return FlopRate(quantity(Dimension::kFlopRate)); }
  Bytes bytes() const;  // exact
  DType dtype() const;
  // Comma-separated elements, each with this value's place. An empty element is an error.
  std::vector<IniValue> list() const;
  // One of a table of names: value.choice<Norm>({{"rmsnorm", Norm::kRms}, {"layernorm", Norm::kLayer}}).
  template <class Enum>
  Enum choice(std::initializer_list<std::pair<const char*, Enum>> table) const {
    std::vector<std::string> names;
    for (const auto& [name, value] : table) {
      if (text_ == name) return value;
      names.emplace_back(name);
    }
    unknown_choice(names);
  }
  // Any other parser of text: an Error that it throws gets this value's place.
  template <class Parser>
  auto parse(Parser parser) const {
    try {
      return parser(std::string_view(text_));
    } catch (const Error& error) {
      throw Error(error.kind(), error.message(), where_, error.hint());
    }
  }
  // Reports that this value is wrong in a way only the caller knows.
  [[noreturn]] void fail(const std::string& message, std::string hint = {}) const;

 private:
  [[noreturn]] void unknown_choice(const std::vector<std::string>& names) const;

  std::string text_;
  Where where_;
};

class IniSection {
 public:
  const std::string& name() const { return name_; }  // "" for keys before the first section
  Where where() const { return {file_, line_, name_.empty() ? "" : "[" + name_ + "]"}; }
  std::vector<std::string> keys() const;  // in the order of the file

  bool has(std::string_view key) const { return entry(key) != nullptr; }
  // The value; get() throws when it is missing.
  IniValue get(std::string_view key) const;
  std::optional<IniValue> find(std::string_view key) const;
  // Throws on the first key that is not in `known`. Call it before get(), so that a misspelt key is reported as such.
  void only(const std::vector<std::string>& known) const;
  // Throws on the first key that was never asked for by get() or find().
  void finish() const;

 private:
  friend class IniFile;
  struct Entry {
    std::string key;
    std::string text;
    int line = 0;
    mutable bool asked = false;
  };
  const Entry* entry(std::string_view key) const;
  [[noreturn]] void unknown_key(const Entry& entry, const std::vector<std::string>& known) const;

  std::string name_;
  std::string file_;
  int line_ = 0;
  std::vector<Entry> entries_;
  mutable std::vector<std::string> asked_;  // names asked for and not found: hints for finish()
};

class IniFile {
 public:
  // Reads a file; throws Error(kInput) when it is missing, no regular file, too large or malformed.
  static IniFile read(const std::string& path);
  // The same for text that is in memory; `name` stands for the path in messages.
  static IniFile parse(std::string_view text, const std::string& name);

  const std::string& name() const { return name_; }
  const std::vector<IniSection>& sections() const { return sections_; }  // in the order of the file
  bool has(std::string_view section) const { return find(section) != nullptr; }
  const IniSection& get(std::string_view section) const;   // throws when it is missing
  const IniSection* find(std::string_view section) const;  // nullptr when it is missing
  // Throws on the first section that is not in `known`. "kind.*" stands for every name that begins with "kind.".
  void only(const std::vector<std::string>& known) const;
  // finish() of every section.
  void finish() const;

 private:
  std::string name_;
  std::vector<IniSection> sections_;
};

}  // namespace fathom
