// What the reference kernels work on: dense row-major matrices of the scalar type, and lists of 32-bit indices.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::reference {

template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  T* row(std::int64_t r) const { return data + r * cols; }
  T& operator()(std::int64_t r, std::int64_t c) const { return data[r * cols + c]; }
  explicit operator bool() const { return data != nullptr; }
  void clear() const {
    for (std::int64_t i = 0; i < rows * cols; ++i) data[i] = T(0);
  }
};

// How many rows of a routed block each sequence has; rows are compact, sequence after sequence.
using RowsPerSequence = std::vector<std::int64_t>;

}  // namespace fathom::reference
