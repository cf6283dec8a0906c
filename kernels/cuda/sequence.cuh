// Device code of kernels/cuda/sequence.hpp.
#pragma once

#include "kernels/cuda/sequence.hpp"
#include "kernels/cuda/simt.hpp"

namespace fathom::cuda {

template <class T, int V>
FATHOM_KERNEL(kSequenceThreads) rope_kernel(RopeArgs a) {
  const std::int64_t row = dev::bid() * (kSequenceThreads / 32) + dev::warp();
  if (row >= rows_of(a.rows)) return;
  const int half = a.width / 2, packs = half / V;
  T* x = static_cast<T*>(a.x) + row * a.row_stride + a.offset;
  const float* table = a.table + static_cast<std::int64_t>(a.positions[row]) * a.width;
  for (int p = dev::lane(); p < a.heads * packs; p += 32) {
    const int head = p / packs, i = p % packs * V;
    float cosine[V], sine[V], low[V], high[V];
    dev::load_wide<V>(table + i, cosine);
    dev::load_wide<V>(table + half + i, sine);
    T* at = x + head * a.head_dim + i;
    dev::load<V>(at, low);
    dev::load<V>(at + half, high);
    FATHOM_UNROLL
    for (int e = 0; e < V; ++e) {
      const float s = a.inverse ? -sine[e] : sine[e], l = low[e], h = high[e];
      low[e] = l * cosine[e] - h * s;
      high[e] = l * s + h * cosine[e];
    }
    dev::store<V>(at, low);
    dev::store<V>(at + half, high);
  }
}

// The sequence that owns a row of a ragged list: the last whose first row is at or before it and that is not empty.
FATHOM_DEV std::int64_t sequence_of(const Ragged& rows, std::int64_t row) {
  if (rows.offsets == nullptr) return row / rows.each;
  std::int64_t low = 0, high = rows.sequences - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (rows.offsets[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <class T, class K, int V>
FATHOM_KERNEL(kSequenceThreads) kv_append_kernel(KvAppendArgs a) {
  const std::int64_t row = dev::bid() * (kSequenceThreads / 32) + dev::warp();
  const std::int64_t all = first_row(a.rows, a.rows.sequences);
  if (row >= all || row >= a.row_limit) return;
  const std::int64_t sequence = sequence_of(a.rows, row);
  const std::int64_t slot = a.counts[sequence] + row - first_row(a.rows, sequence);
  if (slot >= a.room) {
    if (dev::lane() == 0 && a.full) dev::atomic_max(a.full, static_cast<std::int32_t>(sequence + 1));
    return;
  }
  if (a.kept && dev::lane() == 0) a.kept[sequence * a.room + slot] = a.positions[row];
  const T* from = static_cast<const T*>(a.source) + row * a.stride + a.offset;
  K* to = static_cast<K*>(a.cache) + (sequence * a.room + slot) * a.width;
  for (std::int64_t c = dev::lane() * V; c < a.width; c += 32 * V) {
    float v[V];
    dev::load_wide<V>(from + c, v);
    dev::store_wide<V>(to + c, v);
  }
}

template <int kOnce = 0>
FATHOM_KERNEL(kSequenceThreads) kv_count_kernel(KvAppendArgs a) {
  const std::int64_t s = dev::bid() * kSequenceThreads + dev::tid();
  if (s >= a.rows.sequences) return;
  const std::int64_t count = a.counts[s] + first_row(a.rows, s + 1) - first_row(a.rows, s);
  a.counts[s] = static_cast<std::int32_t>(count < a.room ? count : a.room);
}

// A block per row; every output element is a copy of one input element.
template <class T>
FATHOM_KERNEL(kSequenceThreads) latent_kernel(LatentArgs a) {
  const std::int64_t row = dev::bid();
  if (row >= rows_of(a.rows)) return;
  const int qk = a.nope + a.rope, part = a.absorbed ? a.rank : a.nope + a.v;
  const T* q = static_cast<const T*>(a.q) + row * a.heads * qk;
  const T* latent = static_cast<const T*>(a.latent) + row * (a.rank + a.rope);
  const T* parts = static_cast<const T*>(a.parts) + row * a.heads * part;
  const int queries = a.queries ? a.heads * qk : 0, width = queries + a.heads * (qk + a.v), absorbed = a.heads * (a.rank + a.rope);
  T* y = static_cast<T*>(a.y) + row * (a.absorbed ? absorbed : width);
  for (int c = dev::tid(); c < (a.absorbed ? absorbed : width); c += kSequenceThreads) {
    const T* from;
    if (a.absorbed) {
      const int head = c / (a.rank + a.rope), i = c % (a.rank + a.rope);
      from = i < a.rank ? parts + head * a.rank + i : q + head * qk + a.nope + i - a.rank;
    } else if (c < queries) {
      from = q + c;
    } else if (c < queries + a.heads * qk) {
      const int head = (c - queries) / qk, i = (c - queries) % qk;
      from = i < a.nope ? parts + head * part + i : latent + a.rank + i - a.nope;
    } else {
      const int rest = c - queries - a.heads * qk;
      from = parts + rest / a.v * part + a.nope + rest % a.v;
    }
    y[c] = *from;
  }
}

template <class T>
FATHOM_KERNEL(kSequenceThreads) latent_backward_kernel(LatentArgs a) {
  const std::int64_t row = dev::bid();
  if (row >= rows_of(a.rows)) return;
  const int qk = a.nope + a.rope, part = a.nope + a.v, queries = a.queries ? a.heads * qk : 0;
  const T* y = static_cast<const T*>(a.y) + row * (queries + a.heads * (qk + a.v));
  T* dq = static_cast<T*>(a.dq) + row * queries;
  T* dlatent = static_cast<T*>(a.dlatent) + row * (a.rank + a.rope);
  T* dparts = static_cast<T*>(a.dparts) + row * a.heads * part;
  for (int c = dev::tid(); c < queries; c += kSequenceThreads) dq[c] = y[c];
  for (int c = dev::tid(); c < a.heads * part; c += kSequenceThreads) {
    const int head = c / part, i = c % part;
    dparts[c] = i < a.nope ? y[queries + head * qk + i] : y[queries + a.heads * qk + head * a.v + i - a.nope];
  }
  for (int c = dev::tid(); c < a.rank + a.rope; c += kSequenceThreads) {
    float sum = 0.0f;
    for (int head = 0; c >= a.rank && head < a.heads; ++head) sum += dev::load(y + queries + head * qk + a.nope + c - a.rank);
    dev::store(dlatent + c, sum);
  }
}

inline void rope(const RopeArgs& a, simt::Stream stream) {
  with_elements(a.type, rope_vector(a), [&]<class T, int V>() { simt::launch(rope_kernel<T, V>, rope_launch(a), a, stream); });
}

inline void kv_append(const KvAppendArgs& a, simt::Stream stream) {
  const bool packs = vector_width(DType::kBF16, a.width | a.stride | a.offset, a.source, a.cache) > 1;
  with_type(a.type, [&]<class T>() {
    with_type(a.kv_type, [&]<class K>() { simt::launch(packs ? kv_append_kernel<T, K, 8> : kv_append_kernel<T, K, 1>, kv_append_launch(a), a, stream); });
  });
  simt::launch(kv_count_kernel<>, kv_count_launch(a), a, stream);
}

inline void latent_heads(const LatentArgs& a, simt::Stream stream) {
  with_type(a.type, [&]<class T>() { simt::launch(latent_kernel<T>, latent_launch(a), a, stream); });
}
inline void latent_heads_backward(const LatentArgs& a, simt::Stream stream) {
  with_type(a.type, [&]<class T>() { simt::launch(latent_backward_kernel<T>, latent_launch(a), a, stream); });
}

}  // namespace fathom::cuda
