// Backward of f32 attention for one range of keys. Template, included by the instruction-set twins.
//
// With P recomputed from the saved log-sum-exp, D_i = d_out_i . out_i and dP = d_out V^T:
//   dS = P * (dP - D),  dV = P^T d_out,  dK = scale * dS^T q,  dQ = scale * dS k.
// Five products instead of the forward's two. dK and dV stay with the task; dQ is a partial sum over the task's keys.
#pragma once

#include "kernels/cpu/attention_f32_forward.hpp"

namespace {

template <class V>
struct Backward {
  static constexpr int kTile = V::kTileVecs * V::kWidth;
  static constexpr Index kBlock = V::kBackwardKeyBlock;
  using Task = fathom::cpu::attention::BackwardTask;
  using Reduce = fathom::cpu::attention::ReduceTask;

  // Scratch, in this order.
  struct Buffers {
    float *q_t, *d_out_t;   // [tiles][d][tile], transposed queries and output gradients of one head
    float *q, *d_out;       // [q_rows][d padded]
    float *lse2, *delta;    // [tiles * tile]
    float *k, *v;           // [kBlock][d padded], dense copies of the current keys
    float *p, *ds;          // [kBlock][tile]
    float *dk, *dv;         // [keys][d padded]
    Index total;
    Index pad_qk, pad_v;
  };

  static Buffers layout(float* base, Index q_rows, Index keys, Index d_qk, Index d_v) {
    Buffers b{};
    Index at = 0;
    const auto take = [&](Index floats) {
      const Index begin = at;
      at += round_up(floats, 16);
      return base == nullptr ? nullptr : base + begin;
    };
    b.pad_qk = round_up(d_qk, V::kWidth);
    b.pad_v = round_up(d_v, V::kWidth);
    const Index lanes = round_up(q_rows, kTile);
    b.q_t = take(lanes * d_qk);
    b.d_out_t = take(lanes * d_v);
    b.q = take(q_rows * b.pad_qk);
    b.d_out = take(q_rows * b.pad_v);
    b.lse2 = take(lanes);
    b.delta = take(lanes);
    b.k = take(kBlock * b.pad_qk);
    b.v = take(kBlock * b.pad_v);
    b.p = take(kBlock * kTile);
    b.ds = take(kBlock * kTile);
    b.dk = take(keys * b.pad_qk);
    b.dv = take(keys * b.pad_v);
    b.total = at;
    return b;
  }

  static Index floats(Index q_rows, Index keys, Index d_qk, Index d_v) {
    return layout(nullptr, q_rows, keys, d_qk, d_v).total;
  }

  static void copy_rows(const float* in, Index stride, Index rows, Index d, float* out, Index padded) {
    for (Index r = 0; r < rows; ++r) {
      const float* from = in + r * stride;
      float* to = out + r * padded;
      Index i = 0;
      for (; i + V::kWidth <= d; i += V::kWidth) V::store(to + i, V::load(from + i));
      for (; i < d; ++i) to[i] = from[i];
      for (; i < padded; ++i) to[i] = 0.0f;
    }
  }

  static void write_rows(const float* in, Index padded, Index rows, Index d, float scale, float* out, Index stride) {
    const typename V::T factor = V::set1(scale);
    for (Index r = 0; r < rows; ++r) {
      Index i = 0;
      for (; i + V::kWidth <= d; i += V::kWidth) {
        V::store(out + r * stride + i, V::mul(V::load(in + r * padded + i), factor));
      }
      for (; i < d; ++i) out[r * stride + i] = in[r * padded + i] * scale;
    }
  }

  static float dot(const float* a, const float* b, Index n) {
    typename V::T acc = V::zero();
    Index i = 0;
    for (; i + V::kWidth <= n; i += V::kWidth) acc = V::fma(V::load(a + i), V::load(b + i), acc);
    float lanes[V::kWidth];
    V::store(lanes, acc);
    float total = 0.0f;
    for (int l = 0; l < V::kWidth; ++l) total += lanes[l];
    for (; i < n; ++i) total += a[i] * b[i];
    return total;
  }

  // Queries of one head: rows, transposed tiles, log-sum-exp in base 2 and delta. Lanes past the last query stay neutral:
  // q and d_out are zero there, so they add nothing.
  static void load_head(const Task& t, int head, const Buffers& b) {
    const float* q = t.q + head * t.d_qk;
    const float* out = t.out + head * t.d_v;
    const float* d_out = t.d_out + head * t.d_v;
    copy_rows(q, t.q_stride, t.q_rows, t.d_qk, b.q, b.pad_qk);
    copy_rows(d_out, t.d_out_stride, t.q_rows, t.d_v, b.d_out, b.pad_v);
    for (Index r0 = 0; r0 < t.q_rows; r0 += kTile) {
      const int rows = static_cast<int>(min_of(kTile, t.q_rows - r0));
      transpose_in<V>(b.q + r0 * b.pad_qk, b.pad_qk, rows, t.d_qk, b.q_t + r0 * t.d_qk);
      transpose_in<V>(b.d_out + r0 * b.pad_v, b.pad_v, rows, t.d_v, b.d_out_t + r0 * t.d_v);
    }
    for (Index r = 0; r < round_up(t.q_rows, kTile); ++r) {
      const bool live = r < t.q_rows && t.lo[r] < t.hi[r];
      b.lse2[r] = live ? t.lse[r * t.lse_stride + head] * kLog2E : 0.0f;
      b.delta[r] = live ? dot(out + r * t.out_stride, d_out + r * t.d_out_stride, t.d_v) : 0.0f;
    }
  }

  // c[key][i lanes] += sum over queries of a[key][query] * b[query][i lanes], for the queries a segment's vectors hold.
  static void accumulate_keys(const float* a, Index keys, const float* b, Index padded, Index queries, float* c) {
    for (Index lane = 0; lane < padded; lane += kTile) {
      const int vecs = static_cast<int>(min_of(V::kTileVecs, (padded - lane) / V::kWidth));
      by_vecs<V>(vecs, [&]<int kVecs>() {
        by_rows<V>(keys, [&]<int kRows>(Index i) {
          accumulate_rows<V, kRows, kVecs, false, false>(a + i * kTile, kTile, b + lane, padded, queries,
                                                         c + i * padded + lane, padded, nullptr);
        });
      });
    }
  }

  // One tile of queries against one block of keys.
  static void run_block(const Task& t, const Buffers& b, Index r0, Index block, Index end, float* dq_t) {
    const int rows = static_cast<int>(min_of(kTile, t.q_rows - r0));
    const int vecs = (rows + V::kWidth - 1) / V::kWidth;
    Segment segments[2 * V::kTileVecs + 1];
    const int count = split_block<V>(t.lo + r0, t.hi + r0, vecs, block, end, segments);
    const float c = t.scale * kLog2E;
    const float* q_t = b.q_t + r0 * t.d_qk;
    const float* d_out_t = b.d_out_t + r0 * t.d_v;
    for (int g = 0; g < count; ++g) {
      const Segment& seg = segments[g];
      const int lane = seg.first * V::kWidth;
      const Index keys = seg.end - seg.begin, row = seg.begin - block;
      const float* k = b.k + row * b.pad_qk;
      const float* v = b.v + row * b.pad_v;
      float* p = b.p + row * kTile + lane;
      float* ds = b.ds + row * kTile + lane;
      by_vecs<V>(seg.last - seg.first, [&]<int kVecs>() {
        by_rows<V>(keys, [&]<int kRows>(Index i) {
          const auto score = seg.masked ? score_rows<V, kRows, kVecs, true, false> : score_rows<V, kRows, kVecs, false, false>;
          score(k + i * b.pad_qk, b.pad_qk, q_t + lane, t.d_qk, p + i * kTile, t.lo + r0 + lane, t.hi + r0 + lane,
                seg.begin + i, nullptr);
          score_gradient_rows<V, kRows, kVecs>(v + i * b.pad_v, b.pad_v, d_out_t + lane, t.d_v, p + i * kTile,
                                               ds + i * kTile, c, b.lse2 + r0 + lane, b.delta + r0 + lane);
        });
        by_rows<V>(t.d_qk, [&]<int kRows>(Index i) {
          accumulate_rows<V, kRows, kVecs, true, false>(k + i, b.pad_qk, ds, kTile, keys, dq_t + i * kTile + lane, kTile,
                                                        nullptr);
        });
      });
      const Index queries = min_of(seg.last * V::kWidth, rows) - lane;
      const Index first_key = seg.begin - t.key_begin;
      accumulate_keys(p, keys, b.d_out + (r0 + lane) * b.pad_v, b.pad_v, queries, b.dv + first_key * b.pad_v);
      accumulate_keys(ds, keys, b.q + (r0 + lane) * b.pad_qk, b.pad_qk, queries, b.dk + first_key * b.pad_qk);
    }
  }

  static void run(const Task& t) {
    const Index keys = t.key_end - t.key_begin;
    const Buffers b = layout(t.scratch, t.q_rows, keys, t.d_qk, t.d_v);
    const Index tiles = (t.q_rows + kTile - 1) / kTile;
    for (Index i = 0; i < keys * b.pad_qk; i += V::kWidth) V::store(b.dk + i, V::zero());
    for (Index i = 0; i < keys * b.pad_v; i += V::kWidth) V::store(b.dv + i, V::zero());
    for (int head = 0; head < t.group; ++head) {
      load_head(t, head, b);
      float* dq = t.dq_partial + head * tiles * t.d_qk * kTile;
      for (Index tile = 0; tile < tiles; ++tile) {
        if (!sees(t, tile, t.key_begin, t.key_end)) continue;
        float* zero = dq + tile * t.d_qk * kTile;
        for (Index i = 0; i < t.d_qk * kTile; i += V::kWidth) V::store(zero + i, V::zero());
      }
      for (Index block = t.key_begin; block < t.key_end; block += kBlock) {
        const Index end = min_of(block + kBlock, t.key_end);
        copy_rows(t.k + block * t.k_stride, t.k_stride, end - block, t.d_qk, b.k, b.pad_qk);
        copy_rows(t.v + block * t.v_stride, t.v_stride, end - block, t.d_v, b.v, b.pad_v);
        for (Index tile = 0; tile < tiles; ++tile) {
          if (sees(t, tile, block, end)) run_block(t, b, tile * kTile, block, end, dq + tile * t.d_qk * kTile);
        }
      }
    }
    write_rows(b.dk, b.pad_qk, keys, t.d_qk, t.scale, t.dk + t.key_begin * t.dk_stride, t.dk_stride);
    write_rows(b.dv, b.pad_v, keys, t.d_v, 1.0f, t.dv + t.key_begin * t.dv_stride, t.dv_stride);
  }

  // Whether the range [lo of the tile's first query, hi of its last) meets the keys; the dispatcher applies the same rule.
  static bool sees(const Task& t, Index tile, Index begin, Index end) {
    return t.lo[tile * kTile] < end && t.hi[tile * kTile + kTile - 1] > begin;
  }

  static void reduce(const Reduce& t) {
    float* sum = t.scratch;
    float factor[kTile];
    for (int r = 0; r < kTile; ++r) factor[r] = t.scale;
    for (Index i = 0; i < t.d_qk * kTile; i += V::kWidth) {
      typename V::T total = V::zero();
      for (int part = 0; part < t.parts; ++part) total = V::add(total, V::load(t.partial[part] + i));
      V::store(sum + i, total);
    }
    transpose_out<V>(sum, factor, t.rows, t.d_qk, t.dq, t.dq_stride);
  }
};

}  // namespace
