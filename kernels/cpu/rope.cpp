#include "kernels/cpu/rope.hpp"

#include <cmath>
#include <string>

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

std::int64_t rope_table_floats(std::int64_t positions, std::int64_t rotary_dim) { return positions * rotary_dim; }

void fill_rope_table(double theta, std::int64_t rotary_dim, std::int64_t positions, float* table) {
  const std::int64_t half = rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    for (std::int64_t position = 0; position < positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      table[position * rotary_dim + i] = static_cast<float>(std::cos(angle));
      table[position * rotary_dim + half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void rope(const Rope& shape, void* rows, const std::int32_t* positions, const float* table, bool inverse, int threads) {
  if (shape.rotary_dim % 2 != 0 || shape.rotary_dim > shape.head_dim) throw_internal("rope: rotary_dim must be even and at most head_dim");
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    if (positions[row] < 0 || positions[row] >= shape.table_positions) {
      throw_internal("rope: position " + std::to_string(positions[row]) + " is outside the table of " +
                     std::to_string(shape.table_positions));
    }
  }
  const RopeArgs args{rows, shape.row_stride, shape.heads, shape.head_dim, shape.rotary_dim, positions, table, inverse};
  const auto kernel = vector_kernels().rope[storage(shape.type)];
  over_ranges(shape.rows, threads, shape.heads * shape.head_dim * dtype_bytes(shape.type) * 2, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
}

}  // namespace fathom::cpu
