// Copies of column ranges between row-major buffers of different strides: parts of wider rows made dense, and back.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/ranges.hpp"

namespace fathom::cpu {

// `cols` elements of `size` bytes of each of `rows` rows; strides in elements. The ranges must not overlap.
inline void copy_columns(const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride, std::int64_t rows, std::int64_t cols,
                         std::int64_t size, int threads) {
  const std::byte* source = static_cast<const std::byte*>(from);
  std::byte* target = static_cast<std::byte*>(to);
  over_ranges(rows, threads, 2 * cols * size, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      std::memcpy(target + r * to_stride * size, source + r * from_stride * size, static_cast<std::size_t>(cols * size));
  });
}

}  // namespace fathom::cpu
