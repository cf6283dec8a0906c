// Physical quantities as text: "3.35 TB/s", "989 TFLOP/s", "50 MiB", "1.98 GHz", "2.5 us".
//
// A bare number is never a quantity: machine files and command lines always say the unit, because a bandwidth misread
// by 1000 is a prediction wrong by 1000. Decimal prefixes are powers of 1000 (k M G T P E), binary ones powers of 1024
// (Ki Mi Gi Ti Pi) and exist for bytes only; the two are different units and "KB" is refused.
// Source: SI brochure, 9th edition, table 7; IEC 80000-13 for the binary prefixes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/units.hpp"

namespace fathom {

enum class Dimension : std::uint8_t {
  kTime,         // seconds
  kBytes,        // bytes
  kByteRate,     // bytes per second
  kFlops,        // floating-point operations
  kFlopRate,     // FLOP per second
  kElementRate,  // elements per second
  kFrequency,    // hertz
  kPower,        // watts
};

// The value in the base unit named above, correctly rounded from the text ("3.35 TB/s" is the double nearest 3.35e12).
// Throws Error(kInput), without a place, on a missing, unknown or unfitting unit, a malformed or negative number,
// overflow.
double parse_quantity(std::string_view text, Dimension dimension);

// The same for an exact number of bytes: "1.5 GiB" is 1610612736; a fraction of a byte is an error.
Bytes parse_bytes(std::string_view text);

inline Seconds parse_seconds(std::string_view text) {
  return Seconds(parse_quantity(text, Dimension::kTime));
}
inline ByteRate parse_byte_rate(std::string_view text) {
  return ByteRate(parse_quantity(text, Dimension::kByteRate));
}
inline FlopRate parse_flop_rate(std::string_view text) {
  return FlopRate(parse_quantity(text, Dimension::kFlopRate));
}

// "bytes per second, such as 3.35 TB/s": for messages.
std::string_view dimension_text(Dimension dimension);
// Every unit of the dimension, smallest first: "B", "kB", "KiB", ...
std::vector<std::string> unit_names(Dimension dimension);

}  // namespace fathom
