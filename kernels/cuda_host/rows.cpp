#include "kernels/cuda_host/rows.hpp"

#include <algorithm>
#include <bit>

namespace fathom::cuda {

std::int64_t row_bucket(std::int64_t rows, std::int64_t declared) {
  if (rows <= 0) return 0;
  const int octave = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows - 1)));  // 2^(octave - 1) < rows <= 2^octave
  const std::int64_t step = octave > 4 ? std::int64_t{1} << (octave - 4) : 1;
  const std::int64_t room = (declared + kPlanRowTile - 1) / kPlanRowTile * kPlanRowTile;
  return std::min((rows + step - 1) / step * step, room);
}

std::vector<std::int64_t> row_buckets(std::int64_t declared) {
  std::vector<std::int64_t> all;
  for (std::int64_t rows = 1; rows <= declared;) {
    all.push_back(row_bucket(rows, declared));
    rows = all.back() + 1;
  }
  return all;
}

}  // namespace fathom::cuda
