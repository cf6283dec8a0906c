// Attention of one query per sequence over a KV cache, on tensor cores: the heads that share a key head are the 16 rows of the products.
// A block is (split, key head, query); its four warps take tiles of 16 keys in turn, each with its own stages of cp.async, and are merged in
// warp order at the end. Splits leave partial results for attention_merge_kernel.
#pragma once

#include "kernels/cuda/attention_mma.cuh"

namespace fathom::cuda {

// A warp's tile of kDecodeKeys keys.
template <int kDim>
FATHOM_DEV void load_decode_tile(bf16* tile, const bf16* from, std::int64_t stride, std::int64_t first, std::int64_t count, int width) {
  constexpr int kLine = kDim + kTensorPad, kChunks = kDim / 8;
  FATHOM_UNROLL
  for (int p = 0; p < kDecodeKeys * kChunks / 32; ++p) {
    const int i = p * 32 + dev::lane(), row = i / kChunks, c = i % kChunks * 8;
    const bool in = first + row < count && c < width;
    dev::cp_async16(tile + row * kLine + c, in ? from + (first + row) * stride + c : from, in);
  }
}

template <int kDim>
FATHOM_KERNEL(kDecodeThreads) attention_decode_kernel(AttentionArgs a) {
  constexpr int kLine = kDim + kTensorPad, kSteps = kDim / 16, kWarps = kDecodeThreads / 32, kTile = kDecodeKeys * kLine;
  bf16* q_tile = dev::smem<bf16>();
  bf16* stages = q_tile + 16 * kLine + dev::warp() * 4 * kTile;  // [stage][K, V]
  const std::int64_t row = dev::bid_z(), kv = dev::bid_y(), split = dev::bid();
  if (row >= first_row(a.queries, a.queries.sequences)) return;
  const int group = a.heads / a.kv_heads;
  const std::int64_t first_key = first_row(a.keys, sequence_of(a.queries, row));
  std::int64_t begin = a.begin[row], end = a.end[row];
  if (a.splits > 1) {
    const std::int64_t tiles = (end - begin + kDecodeKeys - 1) / kDecodeKeys, each = (tiles + a.splits - 1) / a.splits * kDecodeKeys;
    const std::int64_t own = begin + split * each;
    begin = own < end ? own : end;
    end = own + each < end ? own + each : end;
  }
  const bf16* q = static_cast<const bf16*>(a.q) + row * a.q_stride + kv * group * a.qk_dim;
  const bf16* k = static_cast<const bf16*>(a.k) + first_key * a.kv_stride + kv * a.qk_dim;
  const bf16* v = static_cast<const bf16*>(a.v) + first_key * a.kv_stride + kv * a.v_head_stride;

  for (int i = dev::tid(); i < 16 * kDim / 8; i += kDecodeThreads) {
    const int head = i / (kDim / 8), c = i % (kDim / 8) * 8;
    const bool in = head < group && c < a.qk_dim;
    dev::cp_async16(q_tile + head * kLine + c, in ? q + head * a.qk_dim + c : q, in);
  }
  dev::cp_commit();
  const std::int64_t first = begin + dev::warp() * kDecodeKeys, step_keys = kWarps * kDecodeKeys;
  const auto fetch = [&](std::int64_t key, int stage) {
    if (key < end) {
      load_decode_tile<kDim>(stages + stage * 2 * kTile, k, a.kv_stride, key, end, a.qk_dim);
      load_decode_tile<kDim>(stages + (stage * 2 + 1) * kTile, v, a.kv_stride, key, end, a.v_dim);
    }
    dev::cp_commit();
  };
  fetch(first, 0);
  dev::cp_wait<1>();
  dev::block_sync();
  dev::u32 fq[kSteps][4];
  FATHOM_UNROLL
  for (int step = 0; step < kSteps; ++step) dev::ldmatrix_x4(fq[step], a_rows<kLine>(q_tile, 0, 16 * step));

  const int g = dev::lane() / 4, t = dev::lane() % 4;
  const float scale = a.scale * kLog2E;
  float o[kDim / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  int stage = 0;
  for (std::int64_t key = first; key < end; key += step_keys, stage ^= 1) {
    fetch(key + step_keys, stage ^ 1);
    dev::cp_wait<1>();
    dev::warp_sync();
    const bf16* keys = stages + stage * 2 * kTile;
    float s[2][4] = {};
    FATHOM_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      dev::u32 fk[4];
      dev::ldmatrix_x4(fk, b_rows<kLine>(keys, 0, 16 * step));
      dev::mma_16816(s[0], fq[step], {fk[0], fk[1]});
      dev::mma_16816(s[1], fq[step], {fk[2], fk[3]});
    }
    FATHOM_UNROLL
    for (int h = 0; h < 2; ++h) {
      float next = top[h];
      FATHOM_UNROLL
      for (int n = 0; n < 2; ++n) {
        FATHOM_UNROLL
        for (int e = 0; e < 2; ++e) {
          if (key + 8 * n + 2 * t + e >= end) s[n][2 * h + e] = -INFINITY;
          next = dev::fmaxf_(next, s[n][2 * h + e]);
        }
      }
      next = quad_max(next);
      const float base = next * scale, shrink = dev::fexp2(top[h] * scale - base);
      top[h] = next;
      float added = 0.0f;
      FATHOM_UNROLL
      for (int n = 0; n < 2; ++n) {
        FATHOM_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; ++e) s[n][e] = dev::fexp2(s[n][e] * scale - base), added += s[n][e];
      }
      sum[h] = sum[h] * shrink + added;
      FATHOM_UNROLL
      for (int n = 0; n < kDim / 8; ++n) o[n][2 * h] *= shrink, o[n][2 * h + 1] *= shrink;
    }
    dev::u32 fp[4];
    as_operand(fp, s[0], s[1]);
    FATHOM_UNROLL
    for (int n = 0; n < kDim / 8; n += 2) {
      dev::u32 fv[4];
      dev::ldmatrix_x4_trans(fv, b_rows_transposed<kLine>(keys + kTile, 0, 8 * n));
      dev::mma_16816(o[n], fp, {fv[0], fv[1]});
      dev::mma_16816(o[n + 1], fp, {fv[2], fv[3]});
    }
    dev::warp_sync();
  }
  dev::cp_wait<0>();
  dev::block_sync();

  // [warp][head][kDim + 2]: sums, then maximum (base 2) and denominator.
  float* merge = dev::smem<float>(16 * kLine * 2);
  FATHOM_UNROLL
  for (int h = 0; h < 2; ++h) {
    float* to = merge + (dev::warp() * 16 + 8 * h + g) * (kDim + 2);
    FATHOM_UNROLL
    for (int n = 0; n < kDim / 8; ++n) to[8 * n + 2 * t] = o[n][2 * h], to[8 * n + 2 * t + 1] = o[n][2 * h + 1];
    const float total = quad_sum(sum[h]);
    if (t == 0) to[kDim] = top[h] * scale, to[kDim + 1] = total;
  }
  dev::block_sync();
  for (int i = dev::tid(); i < group * a.v_dim; i += kDecodeThreads) {
    const int own = i / a.v_dim, c = i % a.v_dim;
    const std::int64_t head = kv * group + own;
    const float sink = a.splits > 1 ? -INFINITY : sink_of(a, head) * kLog2E;
    float last = sink;
    for (int w = 0; w < kWarps; ++w) last = dev::fmaxf_(last, merge[(w * 16 + own) * (kDim + 2) + kDim]);
    const float base = last == -INFINITY ? 0.0f : last;
    float total = dev::fexp2(sink - base), value = 0.0f;
    for (int w = 0; w < kWarps; ++w) {
      const float* from = merge + (w * 16 + own) * (kDim + 2);
      const float weight = dev::fexp2(from[kDim] - base);
      total += weight * from[kDim + 1];
      value += weight * from[c];
    }
    value = total > 0.0f ? value / total : 0.0f;
    const float lse = total > 0.0f ? base * kLn2 + dev::flog(total) : -INFINITY;
    if (a.splits > 1) {
      const std::int64_t item = split * a.row_limit * a.heads + row * a.heads + head;
      a.partial_o[item * a.v_dim + c] = value;
      if (c == 0) a.partial_lse[item] = lse;
    } else {
      dev::store(static_cast<bf16*>(a.o) + row * a.o_stride + head * a.v_dim + c, value);
      if (c == 0 && a.lse) a.lse[row * a.heads + head] = lse;
    }
  }
}

}  // namespace fathom::cuda
