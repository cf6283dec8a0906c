// Device code of kernels/cuda/select.hpp.
#pragma once

#include "kernels/cuda/select.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

FATHOM_DEV void note_nan(const SelectArgs& a, float score, std::int64_t row) {
  if (score != score && a.nan_row) dev::atomic_max(a.nan_row, static_cast<std::int32_t>(row + 1));
}

// Writes the rows of one sequence for which chosen(i, equal) holds, in order. `first` is where they begin in the compact output.
// chosen: 2 surely, 1 as long as `need` of them are left (equal to the k-th key), 0 not.
template <class Choose>
FATHOM_DEV void compact_rows(const SelectArgs& a, std::int64_t sequence, std::int64_t first, std::int32_t need, std::int32_t* scratch, const Choose& choose) {
  const std::int64_t base = sequence * a.length;
  std::int64_t written = 0;
  std::int32_t equals = 0;
  for (std::int64_t start = 0; start < a.length; start += dev::threads()) {
    const std::int64_t i = start + dev::tid();
    const int kind = i < a.length ? choose(base + i) : 0;
    // Both prefixes in one scan: chosen so far in the low half, equal ones in the high half (a block holds at most 1024 of each).
    std::int32_t total = 0;
    const std::int32_t before = dev::block_scan((kind == 2 ? 1 : 0) | (kind == 1 ? 1 << 16 : 0), scratch, total);
    const std::int32_t equals_before = equals + (before >> 16);
    const bool take = kind == 2 || (kind == 1 && equals_before < need);
    // Equal ones that came before this row and were taken.
    const std::int32_t equals_taken = (equals_before < need ? equals_before : need) - (equals < need ? equals : need);
    const std::int64_t at = written + (before & 0xffff) + equals_taken;
    const std::int64_t row = base + i;
    if (i < a.length) {
      if (a.inverse) a.inverse[row] = take ? static_cast<std::int32_t>(first + at) : -1;
      if (take) {
        if (a.indices) a.indices[first + at] = static_cast<std::int32_t>(row);
        if (a.selected_positions) a.selected_positions[first + at] = a.positions[row];
      } else if (a.rest) {
        a.rest[row - first - at] = static_cast<std::int32_t>(row);
      }
    }
    const std::int32_t equals_after = equals + (total >> 16);
    written += (total & 0xffff) + (equals_after < need ? equals_after : need) - (equals < need ? equals : need);
    equals = equals_after;
  }
}

template <int kOnce = 0>
FATHOM_KERNEL(kSelectThreads) top_k_kernel(SelectArgs a) {
  std::int32_t* bins = dev::smem<std::int32_t>();
  std::int32_t* scratch = bins + kSelectBins;
  std::int32_t* shared = scratch + kSelectThreads / 32;
  const int t = dev::tid();
  const std::int64_t sequence = dev::bid(), base = sequence * a.length;
  dev::u32 prefix = 0, mask = 0;
  std::int32_t need = static_cast<std::int32_t>(a.k);  // rank of the k-th key among those that share the prefix
  for (int shift = 24; shift >= 0 && a.k > 0; shift -= 8) {
    if (t < kSelectBins) bins[t] = 0;
    dev::block_sync();
    for (std::int64_t i = t; i < a.length; i += kSelectThreads) {
      const dev::u32 key = dev::ordered_bits(a.scores[base + i]);
      if ((key & mask) == prefix) dev::atomic_add(bins + (key >> shift & 0xff), 1);
    }
    dev::block_sync();
    if (dev::warp() == 0) {
      // Lane l owns bins 255 - 8 l .. 248 - 8 l, from the top.
      std::int32_t own = 0;
      for (int j = 0; j < 8; ++j) own += bins[255 - 8 * dev::lane() - j];
      std::int32_t above = dev::warp_scan(own) - own;
      if (above < need && need <= above + own) {
        for (int j = 0; j < 8; ++j) {
          const int bin = 255 - 8 * dev::lane() - j;
          if (above < need && need <= above + bins[bin]) shared[0] = bin, shared[1] = need - above;
          above += bins[bin];
        }
      }
    }
    dev::block_sync();
    prefix |= static_cast<dev::u32>(shared[0]) << shift;
    mask |= 0xffu << shift;
    need = shared[1];
  }
  compact_rows(a, sequence, sequence * a.k, need, scratch, [&](std::int64_t row) {
    const float score = a.scores[row];
    note_nan(a, score, row);
    if (a.k == 0) return 0;
    const dev::u32 key = dev::ordered_bits(score);
    return key > prefix ? 2 : key == prefix ? 1 : 0;
  });
  if (t == 0 && a.counts) a.counts[sequence] = static_cast<std::int32_t>(a.k);
  if (t == 0 && a.offsets) a.offsets[sequence + 1] = static_cast<std::int32_t>((sequence + 1) * a.k);
  if (t == 0 && a.offsets && sequence == 0) a.offsets[0] = 0;
}

// offsets[s + 1] = how many rows of sequence s pass.
template <int kOnce = 0>
FATHOM_KERNEL(kSelectThreads) threshold_count_kernel(SelectArgs a) {
  std::int32_t* scratch = dev::smem<std::int32_t>();
  const std::int64_t base = dev::bid() * a.length;
  std::int32_t count = 0;
  for (std::int64_t i = dev::tid(); i < a.length; i += kSelectThreads) count += a.scores[base + i] > a.threshold;
  count = dev::block_sum(count, scratch);
  if (dev::tid() == 0) a.offsets[dev::bid() + 1] = count;
  if (dev::tid() == 0 && a.counts) a.counts[dev::bid()] = count;
}

// Prefix sums in place, one block.
template <int kOnce = 0>
FATHOM_KERNEL(kSelectThreads) offsets_kernel(SelectArgs a) {
  std::int32_t* scratch = dev::smem<std::int32_t>();
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < a.sequences; first += kSelectThreads) {
    const std::int64_t s = first + dev::tid();
    const std::int32_t own = s < a.sequences ? a.offsets[s + 1] : 0;
    std::int32_t total = 0;
    const std::int32_t exclusive = dev::block_scan(own, scratch, total);
    if (s < a.sequences) a.offsets[s + 1] = before + exclusive + own;
    before += total;
  }
  if (dev::tid() == 0) a.offsets[0] = 0;
  if (dev::tid() == 0 && a.rest_count) *a.rest_count = static_cast<std::int32_t>(a.sequences * a.length) - before;
}

template <int kOnce = 0>
FATHOM_KERNEL(kSelectThreads) threshold_write_kernel(SelectArgs a) {
  compact_rows(a, dev::bid(), a.offsets[dev::bid()], 0, dev::smem<std::int32_t>(), [&](std::int64_t row) {
    note_nan(a, a.scores[row], row);
    return a.scores[row] > a.threshold ? 2 : 0;
  });
}

// Decode: one candidate per sequence, the whole batch in one block and one launch.
template <int kOnce = 0>
FATHOM_KERNEL(kSelectThreads) batch_compact_kernel(SelectArgs a) {
  SelectArgs whole = a;
  whole.length = a.sequences;
  std::int32_t* scratch = dev::smem<std::int32_t>();
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < a.sequences; first += kSelectThreads) {
    const std::int64_t s = first + dev::tid();
    const std::int32_t own = s < a.sequences && a.scores[s] > a.threshold ? 1 : 0;
    std::int32_t total = 0;
    const std::int32_t exclusive = dev::block_scan(own, scratch, total);
    if (s < a.sequences) {
      a.offsets[s + 1] = before + exclusive + own;
      if (a.counts) a.counts[s] = own;
    }
    before += total;
  }
  if (dev::tid() == 0) a.offsets[0] = 0;
  if (dev::tid() == 0 && a.rest_count) *a.rest_count = static_cast<std::int32_t>(a.sequences) - before;
  compact_rows(whole, 0, 0, 0, scratch, [&](std::int64_t row) {
    note_nan(a, a.scores[row], row);
    return a.scores[row] > a.threshold ? 2 : 0;
  });
}

inline void select(const SelectArgs& a, simt::Stream stream) {
  if (a.top) return simt::launch(top_k_kernel<>, select_launch(a), a, stream);
  if (a.length == 1) return simt::launch(batch_compact_kernel<>, offsets_launch(a), a, stream);
  simt::launch(threshold_count_kernel<>, select_launch(a), a, stream);
  simt::launch(offsets_kernel<>, offsets_launch(a), a, stream);
  simt::launch(threshold_write_kernel<>, select_launch(a), a, stream);
}

}  // namespace fathom::cuda
