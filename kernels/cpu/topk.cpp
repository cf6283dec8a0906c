#include "kernels/cpu/topk.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/vector_kernels.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

// Keys and candidates, each with room for one whole vector past the end.
std::int64_t padded(std::int64_t count) { return (count + 31) / 16 * 16; }

std::int64_t select(const float* scores, std::int64_t count, std::int64_t k, std::int32_t* positions, std::uint32_t* keys) {
  const VectorKernels& kernels = vector_kernels();
  const std::int64_t nan = kernels.make_keys(scores, count, keys);
  if (nan >= 0) return nan;
  if (k == 0) return -1;
  if (k == count) {
    for (std::int64_t i = 0; i < count; ++i) positions[i] = static_cast<std::int32_t>(i);
    return -1;
  }
  std::int64_t above = 0;
  const std::uint32_t key = kernels.select_key(keys, count, k, keys + padded(count), &above);
  kernels.collect(keys, count, key, k - above, k, positions);
  return -1;
}

void check(std::int64_t k, std::int64_t count) {
  if (k < 0 || k > count) throw_internal("topk: k = " + std::to_string(k) + " is outside 0.." + std::to_string(count));
}

}  // namespace

std::int64_t topk_workspace_bytes(std::int64_t count, int threads) { return 2 * padded(count) * 4 * std::max(threads, 1); }

SelectionStatus topk(const float* scores, std::int64_t count, std::int64_t k, std::int32_t* positions, void* workspace) {
  check(k, count);
  return {select(scores, count, k, positions, static_cast<std::uint32_t*>(workspace)), 0};
}

SelectionStatus topk(const BatchSelection& s, void* workspace, int threads) {
  const auto valid = [&](std::int64_t b) { return s.valid ? s.valid[b] : s.stride; };
  const auto slots = [&](std::int64_t b) { return s.slots ? s.slots[b] : s.k; };
  for (std::int64_t b = 0; b < s.batch; ++b) {
    if (valid(b) > s.stride) throw_internal("topk: sequence " + std::to_string(b) + " has more valid tokens than its stride");
    check(slots(b), valid(b));
  }
  const int parts = static_cast<int>(std::min<std::int64_t>(std::max(threads, 1), s.batch * s.stride >= 8192 ? s.batch : 1));
  SelectionStatus status;
  status.sequence = s.batch;
  const auto run_part = [&](int part) {
    std::uint32_t* keys = static_cast<std::uint32_t*>(workspace) + part * 2 * padded(s.stride);
    for (std::int64_t b = part; b < s.batch; b += parts) {
      std::int32_t* positions = s.positions + b * s.output_stride;
      const std::int64_t nan = select(s.scores + b * s.stride, valid(b), slots(b), positions, keys);
      if (nan >= 0) {
#if defined(_OPENMP)
#pragma omp critical(fathom_topk_status)
#endif
        if (b < status.sequence) status = {nan, b};
      } else if (s.rows) {
        for (std::int64_t i = 0; i < slots(b); ++i) {
          s.rows[b * s.output_stride + i] = static_cast<std::int32_t>(b * s.stride + positions[i]);
        }
      }
    }
  };
  if (parts == 1) {  // a parallel region of one thread would allocate a team
    run_part(0);
  } else {
#if defined(_OPENMP)
#pragma omp parallel for num_threads(parts) schedule(static, 1)
#endif
    for (int part = 0; part < parts; ++part) run_part(part);
  }
  if (status.ok()) status.sequence = 0;
  return status;
}

ThresholdResult select_above(const float* scores, std::int64_t count, float threshold, std::int32_t* positions) {
  ThresholdResult result;
  result.count = vector_kernels().above_threshold(scores, count, threshold, positions, &result.status.nan_index);
  return result;
}

void selection_mask(const std::int32_t* positions, std::int64_t k, std::int64_t count, std::uint8_t* mask) {
  std::memset(mask, 0, static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < k; ++i) mask[positions[i]] = 1;
}

}  // namespace fathom::cpu
