#include "lib/units.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"

namespace fathom {

void throw_count_overflow(const char* operation) {
  throw_input(fmt::format("a count left the range of 128-bit integers ({})", operation), {},
              "one of the sizes is absurdly large or inconsistent; check the model and the scenario");
}

std::string to_string(u128 value) {
  std::string digits;
  do {
    digits.push_back(static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

u128 parse_u128(const std::string& digits) {
  if (digits.empty() || digits.size() > 39) throw_input(fmt::format("'{}' is not an unsigned integer", digits.substr(0, 60)));
  u128 value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') throw_input(fmt::format("'{}' is not an unsigned integer", digits));
    value = checked_add(checked_mul(value, 10), static_cast<u128>(c - '0'));
  }
  return value;
}

}  // namespace fathom
