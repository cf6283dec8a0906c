// Why a GPU's clock is below what it could be, in words: the management library's reason bits.
#pragma once

#include <cstdint>
#include <string>

namespace fathom {

// Empty where nothing holds the clock back (idle and what the user set do not count).
std::string throttle_text(std::int64_t reasons);

}  // namespace fathom
