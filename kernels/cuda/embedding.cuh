// Device code of kernels/cuda/embedding.hpp.
#pragma once

#include "kernels/cuda/embedding.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

template <class T, int V>
FATHOM_KERNEL(kEmbeddingThreads) embedding_kernel(EmbeddingArgs a) {
  const std::int64_t row = dev::bid() * (kEmbeddingThreads / 32) + dev::warp();
  if (row >= a.rows) return;
  const T* from = static_cast<const T*>(a.table) + a.tokens[row] * a.width;
  const T* position = a.position_table ? static_cast<const T*>(a.position_table) + a.positions[row] * a.width : nullptr;
  T* to = static_cast<T*>(a.x) + row * a.width;
  FATHOM_UNROLL_BY(4)
  for (std::int64_t c = dev::lane() * V; c < a.width; c += 32 * V) {
    float v[V];
    dev::load<V>(from + c, v);
    if (position) {
      float p[V];
      dev::load<V>(position + c, p);
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i) v[i] += p[i];
    }
    dev::store<V>(to + c, v);
  }
}

// bins[digit][block]: how many of the block's keys have the digit.
template <int kOnce = 0>
FATHOM_KERNEL(kEmbeddingThreads) sort_histogram_kernel(EmbeddingBackwardArgs a) {
  std::int32_t* bins = dev::smem<std::int32_t>();
  bins[dev::tid()] = 0;
  dev::block_sync();
  for (int round = 0; round < kSortRounds; ++round) {
    const std::int64_t i = dev::bid() * kSortItems + round * kEmbeddingThreads + dev::tid();
    if (i < a.rows) dev::atomic_add(bins + (a.keys_in[i] >> a.shift & 0xff), 1);
  }
  dev::block_sync();
  a.bins[dev::tid() * dev::grid_x() + dev::bid()] = bins[dev::tid()];
}

// Exclusive prefix sums over all bins, in place: where each (digit, block) begins.
template <int kOnce = 0>
FATHOM_KERNEL(kEmbeddingThreads) sort_scan_kernel(EmbeddingBackwardArgs a) {
  const std::int64_t count = kSortDigits * ((a.rows + kSortItems - 1) / kSortItems);
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < count; first += kEmbeddingThreads) {
    const std::int64_t i = first + dev::tid();
    const std::int32_t own = i < count ? a.bins[i] : 0;
    std::int32_t total = 0;
    const std::int32_t exclusive = dev::block_scan(own, dev::smem<std::int32_t>(), total);
    if (i < count) a.bins[i] = before + exclusive;
    before += total;
  }
}

// Stable: the block takes its keys in rounds of 256 neighbours; a key's place is that of its digit, plus the digit's keys in earlier
// rounds, in earlier warps of the round, and in earlier lanes of the warp.
template <int kOnce = 0>
FATHOM_KERNEL(kEmbeddingThreads) sort_scatter_kernel(EmbeddingBackwardArgs a) {
  constexpr int kWarps = kEmbeddingThreads / 32;
  std::int32_t* place = dev::smem<std::int32_t>();
  std::int32_t* counts = place + kSortDigits;  // [warp][digit]
  place[dev::tid()] = a.bins[dev::tid() * dev::grid_x() + dev::bid()];
  for (int round = 0; round < kSortRounds; ++round) {
    const std::int64_t i = dev::bid() * kSortItems + round * kEmbeddingThreads + dev::tid();
    const bool live = i < a.rows;
    const std::int32_t key = live ? a.keys_in[i] : 0;
    const std::int32_t value = !live ? 0 : a.values_in ? a.values_in[i] : static_cast<std::int32_t>(i);
    const int digit = key >> a.shift & 0xff;
    dev::u32 peers = dev::ballot(live);
    for (int bit = 0; bit < 8; ++bit) {
      const dev::u32 ones = dev::ballot((digit >> bit & 1) != 0);
      peers &= (digit >> bit & 1) != 0 ? ones : ~ones;
    }
    const int rank = dev::popc(peers & ((1u << dev::lane()) - 1));
    for (int w = 0; w < kWarps; ++w) counts[w * kSortDigits + dev::tid()] = 0;
    dev::block_sync();
    if (live && rank == 0) counts[dev::warp() * kSortDigits + digit] = dev::popc(peers);
    dev::block_sync();
    if (live) {
      std::int64_t at = place[digit] + rank;
      for (int w = 0; w < dev::warp(); ++w) at += counts[w * kSortDigits + digit];
      a.keys_out[at] = key;
      a.values_out[at] = value;
    }
    dev::block_sync();
    std::int32_t added = 0;
    for (int w = 0; w < kWarps; ++w) added += counts[w * kSortDigits + dev::tid()];
    place[dev::tid()] += added;
    dev::block_sync();
  }
}

template <class G>
FATHOM_KERNEL(kEmbeddingThreads) embedding_clear_kernel(EmbeddingBackwardArgs a) {
  const std::int64_t count = a.table_rows * a.width;
  FATHOM_UNROLL
  for (int p = 0; p < 16; ++p) {
    const std::int64_t i = (dev::bid() * 16 + p) * kEmbeddingThreads + dev::tid();
    if (i < count) dev::store(static_cast<G*>(a.dtable) + i, 0.0f);
  }
}

template <class T, int V, class G>
FATHOM_KERNEL(kEmbeddingThreads) embedding_backward_kernel(EmbeddingBackwardArgs a) {
  const std::int64_t first = dev::bid() * (kEmbeddingThreads / 32) + dev::warp();
  const std::int64_t c = (dev::bid_y() * 32 + dev::lane()) * V;
  if (first >= a.rows || c >= a.width) return;
  const std::int32_t id = a.keys_in[first];
  if (first > 0 && a.keys_in[first - 1] == id) return;
  float sum[V] = {};
  for (std::int64_t j = first; j < a.rows && a.keys_in[j] == id; ++j) {
    float v[V];
    dev::load<V>(static_cast<const T*>(a.dx) + a.values_in[j] * a.width + c, v);
    FATHOM_UNROLL
    for (int i = 0; i < V; ++i) sum[i] += v[i];
  }
  G* to = static_cast<G*>(a.dtable) + id * a.width + c;
  FATHOM_UNROLL
  for (int i = 0; i < V; ++i) dev::store(to + i, a.accumulate ? dev::load(to + i) + sum[i] : sum[i]);
}

inline void embedding(const EmbeddingArgs& a, simt::Stream stream) {
  with_elements(a.type, embedding_vector(a), [&]<class T, int V>() { simt::launch(embedding_kernel<T, V>, embedding_launch(a), a, stream); });
}

inline void embedding_backward(EmbeddingBackwardArgs a, simt::Stream stream) {
  if (!a.accumulate)
    with_type(a.grad_type, [&]<class G>() { simt::launch(embedding_clear_kernel<G>, embedding_clear_launch(a), a, stream); });
  std::int32_t* keys[2] = {a.scratch, a.scratch + a.rows};
  std::int32_t* values[2] = {a.scratch + 2 * a.rows, a.scratch + 3 * a.rows};
  a.bins = a.scratch + 4 * a.rows;
  a.keys_in = a.ids;
  int side = 0;
  for (a.shift = 0; a.shift == 0 || (a.table_rows - 1) >> a.shift > 0; a.shift += 8) {
    a.keys_out = keys[side], a.values_out = values[side];
    simt::launch(sort_histogram_kernel<>, sort_histogram_launch(a), a, stream);
    simt::launch(sort_scan_kernel<>, sort_scan_launch(a), a, stream);
    simt::launch(sort_scatter_kernel<>, sort_scatter_launch(a), a, stream);
    a.keys_in = a.keys_out, a.values_in = a.values_out;
    side ^= 1;
  }
  with_elements(a.type, embedding_vector(a), [&]<class T, int V>() {
    with_type(a.grad_type, [&]<class G>() { simt::launch(embedding_backward_kernel<T, V, G>, embedding_backward_launch(a), a, stream); });
  });
}

}  // namespace fathom::cuda
