// Token embedding, rotary positions (Su et al., arXiv 2104.09864) and the KV cache's append.
#pragma once

#include <cmath>

#include "kernels/reference/matrix.hpp"
#include "lib/error.hpp"

namespace fathom::reference {

template <class T>
void embedding(const std::int32_t* tokens, Matrix<T> table, const std::int32_t* positions, Matrix<T> position_table, std::int64_t rows, Matrix<T> x) {
  for (std::int64_t r = 0; r < rows; ++r) {
    if (tokens[r] < 0 || tokens[r] >= table.rows) throw_internal("a token lies outside the vocabulary");
    for (std::int64_t c = 0; c < x.cols; ++c) x(r, c) = position_table ? table(tokens[r], c) + position_table(positions[r], c) : table(tokens[r], c);
  }
}

// table[ids[r]] += dx[r], the table being cleared first unless it accumulates.
template <class T>
void embedding_backward(const std::int32_t* ids, Matrix<T> dx, std::int64_t rows, bool accumulate, Matrix<T> table) {
  if (!accumulate) table.clear();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < dx.cols; ++c) table(ids[r], c) += dx(r, c);
}

struct RopeShape {
  std::int64_t heads = 0, head_dim = 0, width = 0;  // width: rotated elements of each head
  double base = 10000.0;
  bool inverse = false;
  std::int64_t offset = 0;  // first rotated element of a head
};

// Half-split pairing: element i of a head turns with i + width/2 by position * base^(-2i/width).
template <class T>
void rope(const RopeShape& s, const std::int32_t* positions, std::int64_t rows, Matrix<T> qkv) {
  const std::int64_t half = s.width / 2;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = positions[r] * std::pow(s.base, -2.0 * static_cast<double>(i) / static_cast<double>(s.width));
      const T cosine = T(std::cos(angle));
      const T sine = T(s.inverse ? -std::sin(angle) : std::sin(angle));
      for (std::int64_t h = 0; h < s.heads; ++h) {
        T& low = qkv(r, h * s.head_dim + s.offset + i);
        T& high = qkv(r, h * s.head_dim + s.offset + half + i);
        const T a = low, b = high;
        low = a * cosine - b * sine;
        high = a * sine + b * cosine;
      }
    }
  }
}

// The last `width` elements of each qkv row (keys, then values) go to the end of their sequence's list.
template <class T>
void kv_append(const RowsPerSequence& sequences, std::int64_t width, Matrix<T> qkv, Matrix<T> cache, std::int32_t* counts) {
  const std::int64_t room = cache.rows / static_cast<std::int64_t>(sequences.size());
  std::int64_t row = 0;
  for (size_t b = 0; b < sequences.size(); ++b) {
    for (std::int64_t j = 0; j < sequences[b]; ++j, ++row) {
      if (counts[b] >= room) throw_internal("a KV cache list is full");
      const std::int64_t slot = static_cast<std::int64_t>(b) * room + counts[b]++;
      for (std::int64_t c = 0; c < width; ++c) cache(slot, c) = qkv(row, qkv.cols - width + c);
    }
  }
}

}  // namespace fathom::reference
