// A reproducible stream of numbers for tests of GPU models.
#pragma once

#include "lib/gpu/table.hpp"

namespace fathom::testing {

struct HashRandom {
  std::uint64_t state;
  explicit HashRandom(std::uint64_t seed) : state(seed) {}
  double uniform() {  // in [0, 1)
    state = gpu::mix_hash(state);
    return static_cast<double>(state >> 11) * 0x1p-53;
  }
};

}  // namespace fathom::testing
