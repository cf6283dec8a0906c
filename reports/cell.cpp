#include "reports/cell.hpp"

#include <cmath>

#include "lib/error.hpp"

namespace fathom {

std::string_view unit_symbol(Unit unit) {
  switch (unit) {
    case Unit::kFlop:
      return "FLOP";
    case Unit::kBytes:
      return "B";
    case Unit::kSeconds:
      return "s";
    case Unit::kFlopRate:
      return "FLOP/s";
    case Unit::kByteRate:
      return "B/s";
    case Unit::kTokenRate:
      return "tokens/s";
    case Unit::kIntensity:
      return "FLOP/B";
    case Unit::kPercent:
    case Unit::kSignedPercent:
      return "%";
    case Unit::kJoules:
      return "J";
    case Unit::kNone:
    case Unit::kCount:
    case Unit::kRatio:
    case Unit::kText:
      return "";
  }
  return "";
}

bool is_numeric(Unit unit) {
  return unit != Unit::kText;
}

Cell Cell::number(double value) {
  if (!std::isfinite(value)) return status("not finite");
  return Cell(Data(value));
}

double Cell::value() const {
  if (const double* number = real()) return *number;
  if (const u128* number = exact()) return to_double(*number);
  throw_internal("report cell: a number was asked of a cell that holds none");
}

}  // namespace fathom
