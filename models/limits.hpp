// How large the numbers of a network may be. Readers and validate() share these, so that a message names the range that is enforced.
//
// They keep every product of a count inside 128 bits (2^31 width x 2^31 rows x 2^20 experts x 2^17 layers).
#pragma once

#include <cstdint>

namespace fathom {

inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;     // a width, a rank, a vocabulary, heads
inline constexpr std::int64_t kMaxExperts = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxLayers = 100000;
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;   // a length: windows, chunks, slots, longest sequence
inline constexpr std::int64_t kMaxModules = 64;                     // multi-token prediction

}  // namespace fathom
