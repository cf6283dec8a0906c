// Attention on plain cores in f32: any head sizes, any element type. A warp owns a query (or, for dK and dV, a key): scores of 32 keys at a time, one
// per lane, then sums over those keys with the head's columns spread over the lanes.
#pragma once

#include "kernels/cuda/attention_common.cuh"

namespace fathom::cuda {

// Blocks that a multiprocessor should hold: room for 128 registers per thread. Left to itself the assembler aims for more blocks and spills.
inline constexpr int kSimtBlocks = 4;

// <row, x>: row in shared memory as f32, x in global memory.
template <class T>
FATHOM_DEV float row_dot(const float* row, const T* x, int width, bool packs) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  float sum = 0.0f;
  if (packs) {
    for (int c = 0; c < width; c += V) {
      float v[V];
      dev::load<V>(x + c, v);
      FATHOM_UNROLL
      for (int i = 0; i < V; ++i) sum += row[c + i] * v[i];
    }
  } else {
    for (int c = 0; c < width; ++c) sum += row[c] * dev::load(x + c);
  }
  return sum;
}

// sums[n] += sum over the 32 lanes' keys j of weight_j * x_j[lane + 32 n]; x_j = base + (first + j) * stride.
template <int N, class T>
FATHOM_DEV void add_rows(float (&sums)[N], float weight, const T* base, int first, std::int64_t stride, int count, int width) {
  const T* x = base + first * stride;
  for (int j = 0; j < count; ++j, x += stride) {
    const float w = dev::shfl(weight, j);
    FATHOM_UNROLL
    for (int n = 0; n < N; ++n) {
      const int c = dev::lane() + 32 * n;
      if (c < width) sums[n] += w * dev::load(x + c);
    }
  }
}

template <class T>
FATHOM_DEV bool simt_packs(const AttentionArgs& a) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  const auto at = reinterpret_cast<std::uintptr_t>(a.q) | reinterpret_cast<std::uintptr_t>(a.k) | reinterpret_cast<std::uintptr_t>(a.v);
  return (at & 15) == 0 && (a.qk_dim | a.v_dim | a.q_stride | a.kv_stride | a.v_head_stride | a.o_stride) % V == 0;
}

template <class T, int N>
FATHOM_KERNEL_OCC(kSimtThreads, kSimtBlocks) attention_simt_kernel(AttentionArgs a) {
  const std::int64_t row = dev::bid() * (kSimtThreads / 32) + dev::warp(), head = dev::bid_y(), kv = head / (a.heads / a.kv_heads);
  const bool live = row < a.row_limit && row < first_row(a.queries, a.queries.sequences);
  float* q = dev::smem<float>() + dev::warp() * (a.qk_dim + a.v_dim);
  const bool packs = simt_packs<T>(a);
  int begin = 0, end = 0;
  std::int64_t first_key = 0;
  if (live) {
    first_key = first_row(a.keys, sequence_of(a.queries, row));
    begin = a.begin[row], end = a.end[row];
    const T* from = static_cast<const T*>(a.q) + row * a.q_stride + head * a.qk_dim;
    for (int c = dev::lane(); c < a.qk_dim; c += 32) q[c] = dev::load(from + c);
  }
  dev::warp_sync();
  if (a.splits > 1) {  // the row's own keys are split, so that every split of a ragged batch has work
    const int each = (end - begin + a.splits - 1) / a.splits, own = begin + static_cast<int>(dev::bid_z()) * each;
    begin = own < end ? own : end;
    end = own + each < end ? own + each : end;
  }
  const T* k = static_cast<const T*>(a.k) + first_key * a.kv_stride + kv * a.qk_dim;
  const T* v = static_cast<const T*>(a.v) + first_key * a.kv_stride + kv * a.v_head_stride;
  float acc[N] = {}, top = -INFINITY, sum = 0.0f;
  for (int first = begin; first < end; first += 32) {
    const int key = first + dev::lane();
    const float score = key < end ? a.scale * row_dot(q, k + key * a.kv_stride, a.qk_dim, packs) : -INFINITY;
    const float next = dev::fmaxf_(top, dev::warp_max(score));
    const float shrink = dev::fexp(top - next), p = dev::fexp(score - next);
    sum = sum * shrink + dev::warp_sum(p);
    top = next;
    FATHOM_UNROLL
    for (int n = 0; n < N; ++n) acc[n] *= shrink;
    add_rows(acc, p, v, first, a.kv_stride, end - first < 32 ? end - first : 32, a.v_dim);
  }
  if (!live) return;
  const std::int64_t item = row * a.heads + head;
  if (a.splits > 1) {
    const std::int64_t at = dev::bid_z() * a.row_limit * a.heads + item;
    FATHOM_UNROLL
    for (int n = 0; n < N; ++n)
      if (dev::lane() + 32 * n < a.v_dim) a.partial_o[at * a.v_dim + dev::lane() + 32 * n] = sum > 0.0f ? acc[n] / sum : 0.0f;
    if (dev::lane() == 0) a.partial_lse[at] = sum > 0.0f ? top + dev::flog(sum) : -INFINITY;
    return;
  }
  const float sink = sink_of(a, head), last = dev::fmaxf_(top, sink), base = last == -INFINITY ? 0.0f : last;
  const float shrink = dev::fexp(top - base), total = sum * shrink + dev::fexp(sink - base);
  T* o = static_cast<T*>(a.o) + row * a.o_stride + head * a.v_dim;
  FATHOM_UNROLL
  for (int n = 0; n < N; ++n)
    if (dev::lane() + 32 * n < a.v_dim) dev::store(o + dev::lane() + 32 * n, total > 0.0f ? acc[n] * shrink / total : 0.0f);
  if (a.lse && dev::lane() == 0) a.lse[item] = total > 0.0f ? base + dev::flog(total) : -INFINITY;
}

// dQ of one query: as the forward pass with P from the log-sum-exp, dS = P (dO V^T - delta) scale.
template <class T, int N>
FATHOM_KERNEL_OCC(kSimtThreads, kSimtBlocks) attention_dq_simt_kernel(AttentionBackwardArgs b) {
  const AttentionArgs& a = b.forward;
  const std::int64_t row = dev::bid() * (kSimtThreads / 32) + dev::warp(), head = dev::bid_y(), kv = head / (a.heads / a.kv_heads);
  const bool live = row < a.row_limit && row < first_row(a.queries, a.queries.sequences), packs = simt_packs<T>(a);
  float* q = dev::smem<float>() + dev::warp() * (a.qk_dim + a.v_dim);
  float* g = q + a.qk_dim;
  int begin = 0, end = 0;
  std::int64_t first_key = 0;
  float lse = 0.0f, delta = 0.0f;
  if (live) {
    first_key = first_row(a.keys, sequence_of(a.queries, row));
    begin = a.begin[row], end = a.end[row];
    lse = a.lse[row * a.heads + head], delta = b.delta[row * a.heads + head];
    const T* from = static_cast<const T*>(a.q) + row * a.q_stride + head * a.qk_dim;
    for (int c = dev::lane(); c < a.qk_dim; c += 32) q[c] = dev::load(from + c);
    const T* d_o = static_cast<const T*>(b.d_o) + row * a.o_stride + head * a.v_dim;
    for (int c = dev::lane(); c < a.v_dim; c += 32) g[c] = dev::load(d_o + c);
  }
  dev::warp_sync();
  const T* k = static_cast<const T*>(a.k) + first_key * a.kv_stride + kv * a.qk_dim;
  const T* v = static_cast<const T*>(a.v) + first_key * a.kv_stride + kv * a.v_head_stride;
  float acc[N] = {};
  for (int first = begin; first < end; first += 32) {
    const int key = first + dev::lane();
    float ds = 0.0f;
    if (key < end) {
      const float p = dev::fexp(a.scale * row_dot(q, k + key * a.kv_stride, a.qk_dim, packs) - lse);
      ds = p * (row_dot(g, v + key * a.kv_stride, a.v_dim, packs) - delta) * a.scale;
    }
    add_rows(acc, ds, k, first, a.kv_stride, end - first < 32 ? end - first : 32, a.qk_dim);
  }
  if (!live) return;
  T* dq = static_cast<T*>(b.dq) + row * a.q_stride + head * a.qk_dim;
  FATHOM_UNROLL
  for (int n = 0; n < N; ++n)
    if (dev::lane() + 32 * n < a.qk_dim) dev::store(dq + dev::lane() + 32 * n, acc[n]);
}

// The queries of a sequence that see a key: begin and end never fall, so they are one run, found by two searches.
FATHOM_DEV void queries_of(const AttentionArgs& a, std::int64_t first, std::int64_t count, std::int64_t key_begin, std::int64_t key_end, std::int64_t& from,
                           std::int64_t& to) {
  // The first whose end lies behind key_begin, and the first whose begin is not before key_end.
  from = lower_bound(a.end + first, static_cast<std::int32_t>(count), key_begin + 1);
  to = lower_bound(a.begin + first, static_cast<std::int32_t>(count), key_end);
}

template <class T, int N>
FATHOM_KERNEL_OCC(kSimtThreads, kSimtBlocks) attention_dkv_simt_kernel(AttentionBackwardArgs b) {
  const AttentionArgs& a = b.forward;
  const std::int64_t kv = dev::bid_y(), sequence = dev::bid_z(), group = a.heads / a.kv_heads;
  const std::int64_t first_key = first_row(a.keys, sequence), key = dev::bid() * (kSimtThreads / 32) + dev::warp();
  const bool live = key < first_row(a.keys, sequence + 1) - first_key, packs = simt_packs<T>(a);
  float* k = dev::smem<float>() + dev::warp() * (a.qk_dim + a.v_dim);
  float* v = k + a.qk_dim;
  const std::int64_t first = first_row(a.queries, sequence), count = first_row(a.queries, sequence + 1) - first;
  int from = 0, to = 0;
  if (live) {
    std::int64_t one = 0, behind = 0;
    queries_of(a, first, count, key, key + 1, one, behind);
    from = static_cast<int>(one), to = static_cast<int>(behind);
    const T* k_at = static_cast<const T*>(a.k) + (first_key + key) * a.kv_stride + kv * a.qk_dim;
    for (int c = dev::lane(); c < a.qk_dim; c += 32) k[c] = dev::load(k_at + c);
    const T* v_at = static_cast<const T*>(a.v) + (first_key + key) * a.kv_stride + kv * a.v_head_stride;
    for (int c = dev::lane(); c < a.v_dim; c += 32) v[c] = dev::load(v_at + c);
  }
  dev::warp_sync();
  float dk[N] = {}, dv[N] = {};
  for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head) {
    const T* q = static_cast<const T*>(a.q) + first * a.q_stride + head * a.qk_dim;
    const T* d_o = static_cast<const T*>(b.d_o) + first * a.o_stride + head * a.v_dim;
    for (int start = from; start < to; start += 32) {
      const int i = start + dev::lane();
      float p = 0.0f, ds = 0.0f;
      if (i < to) {
        const std::int64_t item = (first + i) * a.heads + head;
        p = dev::fexp(a.scale * row_dot(k, q + i * a.q_stride, a.qk_dim, packs) - a.lse[item]);
        ds = p * (row_dot(v, d_o + i * a.o_stride, a.v_dim, packs) - b.delta[item]) * a.scale;
      }
      const int n = to - start < 32 ? to - start : 32;
      add_rows(dv, p, d_o, start, a.o_stride, n, a.v_dim);
      add_rows(dk, ds, q, start, a.q_stride, n, a.qk_dim);
    }
  }
  if (!live) return;
  T* dk_at = static_cast<T*>(b.dk) + (first_key + key) * a.kv_stride + kv * a.qk_dim;
  T* dv_at = static_cast<T*>(b.dv) + (first_key + key) * a.kv_stride + kv * a.v_head_stride;
  FATHOM_UNROLL
  for (int n = 0; n < N; ++n) {
    const int c = dev::lane() + 32 * n;
    if (c < a.qk_dim) dev::store(dk_at + c, dk[n]);
    if (c < a.v_dim) dev::store(dv_at + c, dv[n]);
  }
}

// Columns per lane: 2 (head sizes to 64), 4 (128), 8 (256), 18 (576: absorbed latent attention).
template <class F>
void with_columns(int width, const F& f) {
  if (width <= 64) return f.template operator()<2>();
  if (width <= 128) return f.template operator()<4>();
  if (width <= 256) return f.template operator()<8>();
  f.template operator()<18>();
}

}  // namespace fathom::cuda
