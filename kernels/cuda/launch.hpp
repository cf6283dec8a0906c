// What the host needs to know about a launch, in plain C++: the grid's shape, and row counts that may live in device memory.
//
// Every kernel family has a header NAME.hpp with a POD struct of arguments (raw pointers and sizes by value) and functions that
// compute launch shapes; it needs no CUDA. NAME.cuh holds the device code and NAME(args, stream), which picks the instantiation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/dtype.hpp"

namespace fathom::cuda {

struct LaunchShape {
  std::int64_t grid_x = 0;  // 0: nothing to do, nothing is launched
  std::int64_t grid_y = 1;
  std::int64_t grid_z = 1;
  int block = 32;           // threads, a multiple of 32
  std::int64_t shared = 0;  // dynamic shared memory, bytes
};

// Rows that a kernel works on: at most `limit`, really `*device` where a selection on the device decides (then the grid is sized
// for the limit and blocks without rows leave at once, so that a captured graph serves every count).
struct RowCount {
  std::int64_t limit = 0;
  const std::int32_t* device = nullptr;
};

// Rows of each sequence, compact one after the other: sequence s owns rows first(s) .. first(s + 1) - 1.
struct Ragged {
  std::int64_t sequences = 1;
  std::int64_t each = 0;                  // rows per sequence where all are equal: first(s) = s * each
  const std::int32_t* offsets = nullptr;  // device, sequences + 1 entries; null: equal lengths
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Elements per 16-byte access, or 1 where rows or addresses do not allow it.
inline int vector_width(DType type, std::int64_t width, const void* a = nullptr, const void* b = nullptr, const void* c = nullptr,
                        const void* d = nullptr) {
  const std::int64_t full = 16 / dtype_bytes(type);
  const auto at = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  return width % full == 0 && ((at(a) | at(b) | at(c) | at(d)) & 15) == 0 ? static_cast<int>(full) : 1;
}

}  // namespace fathom::cuda
