// Flash attention on tensor cores, backward, in two kernels without atomics. With P = exp(S scale - lse) and dS = P (dP - delta) scale:
//   dQ kernel    a block owns 64 queries of a head, a warp 16: per tile of keys S = Q K^T, dP = dO V^T, dQ += dS K
//   dK dV kernel a block owns 64 keys of a key head, a warp 16: per tile of queries S^T = K Q^T, dV += P^T dO, dP^T = V dO^T, dK += dS^T Q
// P and dS go from accumulator fragments to operand fragments in registers. The other side's rows stream through two stages of cp.async.
#pragma once

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_simt.cuh"

namespace fathom::cuda {

// acc += rows of `left` (16 from `row` on) times the transposed rows of `right`: one product over the head's columns.
template <int kDim, int kN>
FATHOM_DEV void multiply_rows(float (&acc)[kN][4], const bf16* left, int row, const bf16* right) {
  constexpr int kLine = kDim + kTensorPad;
  FATHOM_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    dev::u32 fa[4];
    dev::ldmatrix_x4(fa, a_rows<kLine>(left, row, 16 * step));
    FATHOM_UNROLL
    for (int n = 0; n < kN; n += 2) {
      dev::u32 fb[4];
      dev::ldmatrix_x4(fb, b_rows<kLine>(right, 8 * n, 16 * step));
      dev::mma_16816(acc[n], fa, {fb[0], fb[1]});
      dev::mma_16816(acc[n + 1], fa, {fb[2], fb[3]});
    }
  }
}

// acc += w (16 x 8 kN, in accumulator fragments, rounded to bf16) times the rows of `right`.
template <int kDim, int kN>
FATHOM_DEV void accumulate_rows(float (&acc)[kDim / 8][4], const float (&w)[kN][4], const bf16* right) {
  constexpr int kLine = kDim + kTensorPad;
  FATHOM_UNROLL
  for (int step = 0; step < kN / 2; ++step) {
    dev::u32 fa[4];
    as_operand(fa, w[2 * step], w[2 * step + 1]);
    FATHOM_UNROLL
    for (int n = 0; n < kDim / 8; n += 2) {
      dev::u32 fb[4];
      dev::ldmatrix_x4_trans(fb, b_rows_transposed<kLine>(right, 16 * step, 8 * n));
      dev::mma_16816(acc[n], fa, {fb[0], fb[1]});
      dev::mma_16816(acc[n + 1], fa, {fb[2], fb[3]});
    }
  }
}

// Rows of the accumulator to global memory as bf16.
template <int kDim>
FATHOM_DEV void store_rows(bf16* to, std::int64_t stride, std::int64_t rows, int first, int width, const float (&acc)[kDim / 8][4]) {
  const int g = dev::lane() / 4, t = dev::lane() % 4;
  FATHOM_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int row = first + 8 * h + g;
    if (row >= rows) continue;
    FATHOM_UNROLL
    for (int n = 0; n < kDim / 8; ++n)
      if (8 * n < width) *reinterpret_cast<dev::u32*>(to + row * stride + 8 * n + 2 * t) = dev::pack_bf16(acc[n][2 * h], acc[n][2 * h + 1]);
  }
}

template <int kDim>
FATHOM_KERNEL(kTensorThreads) attention_dq_tensor_kernel(AttentionBackwardArgs b) {
  constexpr int kRows = kTensorBackwardRows, kOther = kTensorOther<kDim>, kLine = kDim + kTensorPad, kN = kOther / 8;
  const AttentionArgs& a = b.forward;
  bf16* q_tile = dev::smem<bf16>();
  bf16* g_tile = q_tile + kRows * kLine;
  bf16* k_tile = g_tile + kRows * kLine;  // two stages of K, then of V
  bf16* v_tile = k_tile + 2 * kOther * kLine;
  const std::int64_t sequence = dev::bid_z(), head = dev::bid_y(), kv = head / (a.heads / a.kv_heads);
  const std::int64_t first = first_row(a.queries, sequence), count = first_row(a.queries, sequence + 1) - first;
  const std::int64_t start = (dev::grid_x() - 1 - dev::bid()) * kRows;
  if (start >= count) return;
  const int rows = count - start < kRows ? static_cast<int>(count - start) : kRows;
  const std::int64_t first_key = first_row(a.keys, sequence);
  const std::int32_t* begin = a.begin + first + start;
  const std::int32_t* end = a.end + first + start;
  const int key_begin = begin[0] / kOther * kOther, key_end = end[rows - 1];
  const int all_begin = begin[rows - 1], all_end = rows == kRows ? end[0] : 0;
  const bf16* k = static_cast<const bf16*>(a.k) + first_key * a.kv_stride + kv * a.qk_dim;
  const bf16* v = static_cast<const bf16*>(a.v) + first_key * a.kv_stride + kv * a.v_head_stride;

  const int g = dev::lane() / 4, t = dev::lane() % 4, warp_row = dev::warp() * 16;
  int row_begin[2], row_end[2];
  float lse[2], delta[2];
  FATHOM_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int row = warp_row + 8 * h + g;
    const bool live = row < rows;
    const std::int64_t item = (first + start + row) * a.heads + head;
    row_begin[h] = live ? begin[row] : 0;
    row_end[h] = live ? end[row] : 0;
    lse[h] = live ? a.lse[item] * kLog2E : 0.0f;
    delta[h] = live ? b.delta[item] : 0.0f;
  }

  load_tile<kDim, kRows>(q_tile, static_cast<const bf16*>(a.q) + (first + start) * a.q_stride + head * a.qk_dim, a.q_stride, 0, rows, a.qk_dim);
  load_tile<kDim, kRows>(g_tile, static_cast<const bf16*>(b.d_o) + (first + start) * a.o_stride + head * a.v_dim, a.o_stride, 0, rows, a.v_dim);
  load_tile<kDim, kOther>(k_tile, k, a.kv_stride, key_begin, key_end, a.qk_dim);
  load_tile<kDim, kOther>(v_tile, v, a.kv_stride, key_begin, key_end, a.v_dim);
  dev::cp_commit();

  float dq[kDim / 8][4] = {};
  int stage = 0;
  for (int key = key_begin; key < key_end; key += kOther, stage ^= 1) {
    if (key + kOther < key_end) {
      load_tile<kDim, kOther>(k_tile + (stage ^ 1) * kOther * kLine, k, a.kv_stride, key + kOther, key_end, a.qk_dim);
      load_tile<kDim, kOther>(v_tile + (stage ^ 1) * kOther * kLine, v, a.kv_stride, key + kOther, key_end, a.v_dim);
    }
    dev::cp_commit();
    dev::cp_wait<1>();
    dev::block_sync();
    const bf16* keys = k_tile + stage * kOther * kLine;
    float s[kN][4] = {}, dp[kN][4] = {};
    multiply_rows<kDim>(s, q_tile, warp_row, keys);
    multiply_rows<kDim>(dp, g_tile, warp_row, v_tile + stage * kOther * kLine);
    const bool masked = key < all_begin || key + kOther > all_end;
    FATHOM_UNROLL
    for (int n = 0; n < kN; ++n) {
      FATHOM_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int at = key + 8 * n + 2 * t + e % 2, h = e / 2;
        const bool seen = !masked || (at >= row_begin[h] && at < row_end[h]);
        s[n][e] = seen ? dev::fexp2(s[n][e] * (a.scale * kLog2E) - lse[h]) * (dp[n][e] - delta[h]) * a.scale : 0.0f;
      }
    }
    accumulate_rows<kDim>(dq, s, keys);
    dev::block_sync();
  }
  dev::cp_wait<0>();
  store_rows<kDim>(static_cast<bf16*>(b.dq) + (first + start) * a.q_stride + head * a.qk_dim, a.q_stride, rows, warp_row, a.qk_dim, dq);
}

template <int kDim>
FATHOM_KERNEL(kTensorThreads) attention_dkv_tensor_kernel(AttentionBackwardArgs b) {
  constexpr int kRows = kTensorBackwardRows, kOther = kTensorOther<kDim>, kLine = kDim + kTensorPad, kN = kOther / 8;
  const AttentionArgs& a = b.forward;
  bf16* k_tile = dev::smem<bf16>();
  bf16* v_tile = k_tile + kRows * kLine;
  bf16* q_tile = v_tile + kRows * kLine;  // two stages of Q, then of dO
  bf16* g_tile = q_tile + 2 * kOther * kLine;
  float* stats = reinterpret_cast<float*>(g_tile + 2 * kOther * kLine);  // [stage][lse, delta][kOther]
  const std::int64_t sequence = dev::bid_z();
  const int group = a.heads / a.kv_heads, kv = static_cast<int>(dev::bid_y());
  const std::int64_t first_key = first_row(a.keys, sequence), key_count = first_row(a.keys, sequence + 1) - first_key;
  const std::int64_t start = dev::bid() * kRows;
  if (start >= key_count) return;
  const int rows = key_count - start < kRows ? static_cast<int>(key_count - start) : kRows;
  const std::int64_t first = first_row(a.queries, sequence), count = first_row(a.queries, sequence + 1) - first;
  std::int64_t first_query = 0, behind = 0;
  queries_of(a, first, count, start, start + rows, first_query, behind);
  const int from = static_cast<int>(first_query), to = static_cast<int>(behind);
  const std::int32_t* begin = a.begin + first;
  const std::int32_t* end = a.end + first;

  load_tile<kDim, kRows>(k_tile, static_cast<const bf16*>(a.k) + (first_key + start) * a.kv_stride + kv * a.qk_dim, a.kv_stride, 0, rows, a.qk_dim);
  load_tile<kDim, kRows>(v_tile, static_cast<const bf16*>(a.v) + (first_key + start) * a.kv_stride + kv * a.v_head_stride, a.kv_stride, 0, rows, a.v_dim);

  // The heads of the group one after the other: tile i of all of them.
  const int last_head = (kv + 1) * group;
  const auto fetch = [&](int head, int query, int stage) {
    if (head < last_head) {
      load_tile<kDim, kOther>(q_tile + stage * kOther * kLine, static_cast<const bf16*>(a.q) + first * a.q_stride + head * a.qk_dim, a.q_stride, query, to, a.qk_dim);
      load_tile<kDim, kOther>(g_tile + stage * kOther * kLine, static_cast<const bf16*>(b.d_o) + first * a.o_stride + head * a.v_dim, a.o_stride, query, to, a.v_dim);
      for (int r = dev::tid(); r < kOther; r += kTensorThreads) {
        const bool live = query + r < to;
        const std::int64_t item = (first + query + r) * a.heads + head;
        stats[stage * 2 * kOther + r] = live ? a.lse[item] * kLog2E : 0.0f;
        stats[(stage * 2 + 1) * kOther + r] = live ? b.delta[item] : 0.0f;
      }
    }
    dev::cp_commit();
  };
  // The head and first query of tile i: counted on, because a division costs registers.
  int head = from < to ? kv * group : last_head, query = from;
  fetch(head, query, 0);

  const int g = dev::lane() / 4, t = dev::lane() % 4, warp_row = dev::warp() * 16;
  float dk[kDim / 8][4] = {}, dv[kDim / 8][4] = {};
  int stage = 0;
  while (head < last_head) {
    const bool turn = query + kOther >= to;
    const int next_head = turn ? head + 1 : head, next_query = turn ? from : query + kOther;
    fetch(next_head, next_query, stage ^ 1);
    dev::cp_wait<1>();
    dev::block_sync();
    const bf16* q = q_tile + stage * kOther * kLine;
    const bf16* d_o = g_tile + stage * kOther * kLine;
    const float* lse = stats + stage * 2 * kOther;
    const float* delta = lse + kOther;
    float s[kN][4] = {}, dp[kN][4] = {};
    multiply_rows<kDim>(s, k_tile, warp_row, q);
    // Whether every query of the tile sees every key of the block.
    const bool whole = query + kOther <= to && begin[query + kOther - 1] <= start && end[query] >= start + kRows;
    FATHOM_UNROLL
    for (int n = 0; n < kN; ++n) {
      FATHOM_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int column = 8 * n + 2 * t + c;
        const bool live = query + column < to;
        // Keys count from the block's first here.
        const int low = whole || !live ? 0 : begin[query + column] - static_cast<int>(start), high = !live ? 0 : whole ? kRows : end[query + column] - static_cast<int>(start);
        FATHOM_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int key = warp_row + 8 * h + g;
          float& p = s[n][2 * h + c];
          p = key >= low && key < high ? dev::fexp2(p * (a.scale * kLog2E) - lse[column]) : 0.0f;
        }
      }
    }
    accumulate_rows<kDim>(dv, s, d_o);
    multiply_rows<kDim>(dp, v_tile, warp_row, d_o);
    FATHOM_UNROLL
    for (int n = 0; n < kN; ++n) {
      FATHOM_UNROLL
      for (int e = 0; e < 4; ++e) s[n][e] *= (dp[n][e] - delta[8 * n + 2 * t + e % 2]) * a.scale;
    }
    accumulate_rows<kDim>(dk, s, q);
    dev::block_sync();
    head = next_head, query = next_query, stage ^= 1;
  }
  dev::cp_wait<0>();
  store_rows<kDim>(static_cast<bf16*>(b.dk) + (first_key + start) * a.kv_stride + kv * a.qk_dim, a.kv_stride, rows, warp_row, a.qk_dim, dk);
  store_rows<kDim>(static_cast<bf16*>(b.dv) + (first_key + start) * a.kv_stride + kv * a.v_head_stride, a.kv_stride, rows, warp_row, a.v_dim, dv);
}

}  // namespace fathom::cuda
