// Numbers for people: SI prefixes, 3 to 4 significant digits, exact integers where they are short.
//
// Rounding is done on decimal digits (half away from zero on the exact value of a count), so that 999,950 with four
// digits is "1.000 M" and never "1000 k". Prefixes are decimal (1 GB = 1e9 bytes); "us" is written for microseconds.
#pragma once

#include <string>

#include "reports/cell.hpp"

namespace fathom {

// 583334363136 -> "583,334,363,136".
std::string grouped(u128 value);

// `value` in the unit with an SI prefix and `digits` significant digits: "583.3 GFLOP", "4.300 ms", "124.4 M" (counts),
// "63.8 %" (fractions). Seconds from 100 on are shown as s, min, h or d. Counts below 10,000 are shown exactly.
std::string format_value(u128 value, Unit unit, int digits = 4);
std::string format_value(double value, Unit unit, int digits = 4);

// As format_value; a status is shown as its reason in parentheses, an empty cell as "".
std::string format_cell(const Cell& cell, Unit unit, int digits = 4);

// Seconds in the unit (s, min, h, d, years) that `like` is shown in, for columns whose times are read against each other; as format_value where that has a prefix.
std::string format_time_like(double seconds, double like, int digits = 4);

// What follows a rounded value so that it is exact: " (25,276,510,208 B)"; "" for counts below 10,000, which are exact as shown.
std::string exact_in_brackets(const Cell& cell, Unit unit);

// Full precision without prefix: digits of a count, the shortest round-trip text of a double; "" for a status.
std::string exact_text(const Cell& cell);

// Plain significant digits without exponent where readable: 0.6382, 12.34, 1234, 1.2e-09.
std::string significant(double value, int digits = 4);

// A prefix for axes and columns: the power of ten (a multiple of 3) for values up to `largest`, and its symbol.
struct SiPrefix {
  int exponent = 0;
  std::string symbol;
};
SiPrefix prefix_for(double largest, Unit unit);

}  // namespace fathom
