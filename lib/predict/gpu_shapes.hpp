// Shapes that a summary of many configurations met before, each with what the fitted model said of it, so that it is asked once.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace fathom {

// What is known of one shape whatever surrounds it: how a table's row of it is corrected.
struct KnownShape {
  double correction = 1, low = 1, high = 1;
  bool out_of_range = false, extrapolated = false;
};

// Shapes met in summaries. One fits a line of cache; products also keep the tiles that can win.
struct alignas(64) MetProduct {
  double m = 0;                           // 0: nothing yet
  std::uint32_t n = 0, k = 0, groups = 0;
  std::uint8_t single_at = 0, split_at = 0;
  bool close = false;
  enum : std::uint8_t { kOutOfRange = 1, kExtrapolated = 2 };
  std::uint8_t flags = 0;
  double single = 0, split = 0;
  double correction = 1, low = 1, high = 1;
};
static_assert(sizeof(MetProduct) == 64);
struct MetAttention {
  std::array<std::int64_t, 5> key{};      // as in the tables; 0: nothing yet
  KnownShape shape;
};

// A cache of fixed size: what falls on a taken place replaces it.
template <class Entry, std::size_t kPlaces>
class ShapeCache {
 public:
  Entry& at(std::initializer_list<std::uint64_t> key) {
    if (entries_.empty()) entries_.resize(kPlaces);
    std::uint64_t hash = 0;
    for (const std::uint64_t part : key) hash = (hash ^ part) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
    return entries_[hash % kPlaces];
  }

 private:
  std::vector<Entry> entries_;
};

inline std::uint64_t bits_of(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace fathom
