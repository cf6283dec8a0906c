// Values as reports carry them: exact, tagged with a unit, and not yet text.
//
// A table cell or plot point stays a number until a renderer shows it, so that the terminal can say "583.3 GFLOP" where
// CSV and JSON give 583334363136, from the same object. A result that was not obtained is a status with its reason and
// is never shown as a number (law 5).
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "lib/units.hpp"

namespace fathom {

// What a number counts. The base unit is in the comment; files and JSON hold base units only.
enum class Unit {
  kNone,           // a plain number
  kCount,          // a count of things; the column's noun says what
  kFlop,           // FLOP, 2 per multiply-add
  kBytes,          // bytes
  kSeconds,        // seconds
  kFlopRate,       // FLOP/s
  kByteRate,       // bytes/s
  kTokenRate,      // tokens/s
  kIntensity,      // FLOP per byte
  kRatio,          // 1 = equal
  kPercent,        // a fraction (0.25), shown as "25.0 %"
  kSignedPercent,  // a signed fraction (-0.031), shown as "-3.1 %"
  kJoules,         // joules
  kText,           // words, paths, names
};

// "FLOP", "B", "s", "FLOP/s", ...; "" for plain numbers, ratios and text. The symbol of the base unit.
std::string_view unit_symbol(Unit unit);
bool is_numeric(Unit unit);

class Cell {
 public:
  struct Status {
    std::string reason;
    bool operator==(const Status&) const = default;
  };

  Cell() = default;  // empty: the question does not arise for this row
  static Cell count(u128 exact) { return Cell(Data(exact)); }
  template <class Tag>
  static Cell count(Count<Tag> exact) {
    return Cell(Data(exact.value()));
  }
  // NaN and infinities become the status "not finite": they are never printed as numbers.
  static Cell number(double value);
  template <class Tag>
  static Cell number(Quantity<Tag> quantity) {
    return number(quantity.value());
  }
  static Cell text(std::string words) { return Cell(Data(std::move(words))); }
  static Cell status(std::string reason) { return Cell(Data(Status{std::move(reason)})); }

  bool empty() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_number() const { return std::holds_alternative<u128>(data_) || std::holds_alternative<double>(data_); }
  const u128* exact() const { return std::get_if<u128>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* words() const { return std::get_if<std::string>(&data_); }
  const Status* missing() const { return std::get_if<Status>(&data_); }
  // The number as a double (rounded for large counts); throws an internal Error when this is no number.
  double value() const;

 private:
  using Data = std::variant<std::monostate, u128, double, std::string, Status>;
  explicit Cell(Data data) : data_(std::move(data)) {}
  Data data_;
};

}  // namespace fathom
