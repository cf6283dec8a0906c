#include "kernels/cpu/elementwise.hpp"

#include <cstring>

#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector_kernels.hpp"

namespace fathom::cpu {

void add(DType type, const void* a, const void* b, void* y, std::int64_t count, int threads) {
  const auto kernel = vector_kernels().add[storage(type)];
  over_ranges(count, threads, dtype_bytes(type) * 3, 64, [&](std::int64_t begin, std::int64_t end) { kernel(a, b, y, begin, end); });
}

void add_bias(DType type, const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t width, int threads) {
  const auto kernel = vector_kernels().add_row[storage(type)];
  over_ranges(rows, threads, width * dtype_bytes(type) * 2, 1,
              [&](std::int64_t begin, std::int64_t end) { kernel(x, bias, y, width, begin, end); });
}

void scaled_copy(DType type, const void* x, float factor, void* y, std::int64_t count, int threads) {
  const auto kernel = vector_kernels().scale[storage(type)];
  over_ranges(count, threads, dtype_bytes(type) * 2, 64, [&](std::int64_t begin, std::int64_t end) { kernel(x, factor, y, begin, end); });
}

double sum_of_squares(DType type, const void* x, std::int64_t count, int threads) {
  // At most 256 blocks of whole 4096-element pieces: a partition by `count` alone.
  constexpr std::int64_t kPiece = 4096, kBlocks = 256;
  double partial[kBlocks];
  const std::int64_t pieces = (count + kPiece - 1) / kPiece;
  const std::int64_t step = std::max<std::int64_t>(1, (pieces + kBlocks - 1) / kBlocks);
  const std::int64_t blocks = (pieces + step - 1) / step;
  const auto kernel = vector_kernels().sum_squares[storage(type)];
  over_ranges(blocks, threads, step * kPiece * dtype_bytes(type), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      partial[block] = kernel(x, block * step * kPiece, std::min(count, (block + 1) * step * kPiece));
    }
  });
  double total = 0;
  for (std::int64_t block = 0; block < blocks; ++block) total += partial[block];
  return total;
}

void f32_to_bf16(const float* x, bf16* y, std::int64_t count, int threads) {
  const auto kernel = vector_kernels().to_bf16;
  over_ranges(count, threads, 6, 64, [&](std::int64_t begin, std::int64_t end) { kernel(x, y, begin, end); });
}

void bf16_to_f32(const bf16* x, float* y, std::int64_t count, int threads) {
  const auto kernel = vector_kernels().to_f32;
  over_ranges(count, threads, 6, 64, [&](std::int64_t begin, std::int64_t end) { kernel(x, y, begin, end); });
}

std::int64_t column_sums_workspace_floats(std::int64_t rows, std::int64_t width) { return part_count(rows) * width; }

void column_sums(DType type, const void* x, const float* factor, std::int64_t rows, std::int64_t width, DType out_type, void* out,
                 bool accumulate, float* workspace, int threads) {
  const std::int64_t parts = part_count(rows);
  const std::int64_t step = part_rows(rows);
  const auto kernel = vector_kernels().column_sums[storage(type)];
  const auto reduce = vector_kernels().reduce_parts[storage(out_type)];
  over_ranges(parts, threads, step * width * dtype_bytes(type), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      float* sums = workspace + part * width;
      std::memset(sums, 0, static_cast<std::size_t>(width) * sizeof(float));
      kernel(x, factor, sums, width, part * step, std::min(rows, (part + 1) * step));
    }
  });
  over_ranges(width, threads, parts * 4, 64,
              [&](std::int64_t begin, std::int64_t end) { reduce(workspace, parts, out, width, accumulate, begin, end); });
}

}  // namespace fathom::cpu
