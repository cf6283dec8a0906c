// Flash attention on tensor cores (mma.sync m16n8k16, bf16 with f32 sums), forward: FlashAttention-2's scheme (Dao, arXiv 2307.08691).
//
// A block owns 128 queries of one head, a warp 32 of them (two row tiles of 16 share every fragment of K and V that is loaded). Key
// tiles of 64 (32 for large heads) stream through two stages of shared memory by cp.async. The fragment of S = Q K^T that a lane holds is the fragment of P that
// P V wants, so P never leaves the registers. Scores are scaled into base 2; a row that sees nothing gives zeros and -infinity.
#pragma once

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/tiles.cuh"

namespace fathom::cuda {

// Copies rows first .. first + kRows - 1 (of `count`) of a matrix with `width` columns into a tile of `kDim` columns; what is outside becomes 0. A
// thread keeps one column and steps from row to row: addresses of all its rows at once would cost the registers that the accumulators need.
template <int kDim, int kRows>
FATHOM_DEV void load_tile(bf16* tile, const bf16* from, std::int64_t stride, int first, int count, int width) {
  constexpr int kLine = kDim + kTensorPad, kChunks = kDim / 8, kStep = kTensorThreads / kChunks;
  static_assert(kTensorThreads % kChunks == 0 && kRows % kStep == 0);
  const int row = dev::tid() / kChunks, c = dev::tid() % kChunks * 8;
  const int live = c < width ? count - first - row : 0;
  const bf16* at = from + (first + row) * stride + c;
  bf16* to = tile + row * kLine + c;
  FATHOM_UNROLL
  for (int p = 0; p < kRows; p += kStep, at += kStep * stride, to += kStep * kLine) dev::cp_async16(to, p < live ? at : from, p < live);
}

// The same for a stage of keys and values, whose rows lie equally far apart; values stand kTileOffset elements behind keys in shared memory.
template <int kDim, int kRows, int kTileOffset>
FATHOM_DEV void load_key_tiles(const AttentionArgs& a, bf16* tile, const bf16* k, const bf16* v, int first, int count) {
  constexpr int kLine = kDim + kTensorPad, kChunks = kDim / 8, kStep = kTensorThreads / kChunks;
  const int t = dev::fresh_tid(), row = t / kChunks, c = t % kChunks * 8;
  const int live = count - first - row, k_live = c < a.qk_dim ? live : 0, v_live = c < a.v_dim ? live : 0;
  const std::int64_t own = (first + row) * a.kv_stride + c;
  bf16* to = tile + row * kLine + c;
  k += own, v += own;
  FATHOM_UNROLL
  for (int p = 0; p < kRows; p += kStep, k += kStep * a.kv_stride, v += kStep * a.kv_stride, to += kStep * kLine) {
    dev::cp_async16(to, p < k_live ? k : static_cast<const bf16*>(a.k), p < k_live);
    dev::cp_async16(to + kTileOffset, p < v_live ? v : static_cast<const bf16*>(a.v), p < v_live);
  }
}

// Fragments of the accumulator of two column tiles as the A operand of the next product.
FATHOM_DEV void as_operand(dev::u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = dev::pack_bf16(left[0], left[1]);
  a[1] = dev::pack_bf16(left[2], left[3]);
  a[2] = dev::pack_bf16(right[0], right[1]);
  a[3] = dev::pack_bf16(right[2], right[3]);
}

FATHOM_DEV float quad_max(float v) {
  v = dev::fmaxf_(v, dev::shfl_xor(v, 1));
  return dev::fmaxf_(v, dev::shfl_xor(v, 2));
}
FATHOM_DEV float quad_sum(float v) {
  v += dev::shfl_xor(v, 1);
  return v + dev::shfl_xor(v, 2);
}

template <int kDim>
FATHOM_KERNEL(kTensorThreads) attention_tensor_kernel(AttentionArgs a) {
  constexpr int kRows = kTensorRows, kTiles = kRows / 64, kLine = kDim + kTensorPad;
  constexpr int kSteps = kDim / 16, kKeys = kTensorKeys<kDim>, kKeyTiles = kKeys / 8;
  bf16* q_tile = dev::smem<bf16>();
  bf16* k_tile = q_tile + kRows * kLine;  // two stages of keys, then of values
  int* ranges = reinterpret_cast<int*>(k_tile + 4 * kKeys * kLine);  // [begin, end][row]: few tiles need them, so they take no registers
  // Late queries see the most keys under a causal mask: they go first.
  // 32-bit numbers where they live through the loop: the accumulators leave few registers.
  const int sequence = static_cast<int>(dev::bid_z()), head = static_cast<int>(dev::bid_y()), kv = head / (a.heads / a.kv_heads);
  const int first = static_cast<int>(first_row(a.queries, sequence) + (dev::grid_x() - 1 - dev::bid()) * kRows), left = static_cast<int>(first_row(a.queries, sequence + 1)) - first;
  if (left <= 0) return;
  const int rows = left < kRows ? left : kRows;
  const std::int64_t first_key = first_row(a.keys, sequence);
  const std::int32_t* begin = a.begin + first;
  const std::int32_t* end = a.end + first;
  const int key_begin = begin[0] / kKeys * kKeys, key_end = end[rows - 1];
  const int all_begin = begin[rows - 1], all_end = rows == kRows ? end[0] : 0;  // keys that every row sees
  const bf16* k = static_cast<const bf16*>(a.k) + first_key * a.kv_stride + kv * a.qk_dim;
  const bf16* v = static_cast<const bf16*>(a.v) + first_key * a.kv_stride + kv * a.v_head_stride;
  const bf16* q = static_cast<const bf16*>(a.q) + first * a.q_stride + head * a.qk_dim;

  const int g = dev::lane() / 4, t = dev::lane() % 4, warp_row = dev::warp() * 16 * kTiles;
  static_assert(kRows == kTensorThreads);
  ranges[dev::tid()] = dev::tid() < rows ? begin[dev::tid()] : 0;
  ranges[kRows + dev::tid()] = dev::tid() < rows ? end[dev::tid()] : 0;
  load_tile<kDim, kRows>(q_tile, q, a.q_stride, 0, rows, a.qk_dim);
  load_key_tiles<kDim, kKeys, 2 * kKeys * kLine>(a, k_tile, k, v, key_begin, key_end);
  dev::cp_commit();

  const float scale = a.scale * kLog2E;
  float o[kTiles][kDim / 8][4] = {}, top[kTiles][2], sum[kTiles][2] = {};
  FATHOM_UNROLL
  for (int m = 0; m < kTiles; ++m) top[m][0] = top[m][1] = -INFINITY;

  int stage = 0;
  for (int key = key_begin; key < key_end; key += kKeys, stage ^= 1) {
    if (key + kKeys < key_end) {
      load_key_tiles<kDim, kKeys, 2 * kKeys * kLine>(a, k_tile + (stage ^ 1) * kKeys * kLine, k, v, key + kKeys, key_end);
    }
    dev::cp_commit();
    dev::cp_wait<1>();
    dev::block_sync();
    const bf16* keys = k_tile + stage * kKeys * kLine;
    const bf16* vals = keys + 2 * kKeys * kLine;

    float s[kTiles][kKeyTiles][4] = {};
    FATHOM_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      dev::u32 fq[kTiles][4];
      FATHOM_UNROLL
      for (int m = 0; m < kTiles; ++m) dev::ldmatrix_x4(fq[m], a_rows<kLine>(q_tile, warp_row + 16 * m, 16 * step));
      FATHOM_UNROLL
      for (int n = 0; n < kKeyTiles; n += 2) {
        dev::u32 fk[4];
        dev::ldmatrix_x4(fk, b_rows<kLine>(keys, 8 * n, 16 * step));
        FATHOM_UNROLL
        for (int m = 0; m < kTiles; ++m) {
          dev::mma_16816(s[m][n], fq[m], {fk[0], fk[1]});
          dev::mma_16816(s[m][n + 1], fq[m], {fk[2], fk[3]});
        }
      }
    }

    if (key < all_begin || key + kKeys > all_end) {
      FATHOM_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        FATHOM_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int row = warp_row + 16 * m + 8 * h + g, low = ranges[row] - key, high = ranges[kRows + row] - key;
          FATHOM_UNROLL
          for (int n = 0; n < kKeyTiles; ++n) {
            FATHOM_UNROLL
            for (int c = 0; c < 2; ++c) {
              const int at = 8 * n + 2 * t + c;
              if (at < low || at >= high) s[m][n][2 * h + c] = -INFINITY;
            }
          }
        }
      }
    }

    FATHOM_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      FATHOM_UNROLL
      for (int h = 0; h < 2; ++h) {
        float next = top[m][h];
        FATHOM_UNROLL
        for (int n = 0; n < kKeyTiles; ++n) next = dev::fmaxf_(next, dev::fmaxf_(s[m][n][2 * h], s[m][n][2 * h + 1]));
        next = quad_max(next);
        const float base = next == -INFINITY ? 0.0f : next * scale;
        const float shrink = dev::fexp2(top[m][h] * scale - base);
        top[m][h] = next;
        float added = 0.0f;
        FATHOM_UNROLL
        for (int n = 0; n < kKeyTiles; ++n) {
          FATHOM_UNROLL
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            s[m][n][e] = dev::fexp2(s[m][n][e] * scale - base);
            added += s[m][n][e];
          }
        }
        sum[m][h] = sum[m][h] * shrink + added;
        if (dev::ballot(shrink != 1.0f) == 0) continue;  // no maximum rose, as in most tiles behind the first
        FATHOM_UNROLL
        for (int n = 0; n < kDim / 8; ++n) o[m][n][2 * h] *= shrink, o[m][n][2 * h + 1] *= shrink;
      }
    }

    FATHOM_UNROLL
    for (int step = 0; step < kKeyTiles / 2; ++step) {
      dev::u32 fp[kTiles][4];
      FATHOM_UNROLL
      for (int m = 0; m < kTiles; ++m) as_operand(fp[m], s[m][2 * step], s[m][2 * step + 1]);
      FATHOM_UNROLL
      for (int n = 0; n < kDim / 8; n += 2) {
        dev::u32 fv[4];
        dev::ldmatrix_x4_trans(fv, b_rows_transposed<kLine>(vals, 16 * step, 8 * n));
        FATHOM_UNROLL
        for (int m = 0; m < kTiles; ++m) {
          dev::mma_16816(o[m][n], fp[m], {fv[0], fv[1]});
          dev::mma_16816(o[m][n + 1], fp[m], {fv[2], fv[3]});
        }
      }
    }
    dev::block_sync();  // before the next copy into this stage
  }
  dev::cp_wait<0>();

  const float sink = sink_of(a, head) * kLog2E;
  FATHOM_UNROLL
  for (int m = 0; m < kTiles; ++m) {
    FATHOM_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = warp_row + 16 * m + 8 * h + g;
      const float last = dev::fmaxf_(top[m][h] * scale, sink), base = last == -INFINITY ? 0.0f : last;
      const float shrink = dev::fexp2(top[m][h] * scale - base);
      const float total = quad_sum(sum[m][h]) * shrink + dev::fexp2(sink - base);
      const float inverse = total > 0.0f ? shrink / total : 0.0f;
      if (row >= rows) continue;
      bf16* to = static_cast<bf16*>(a.o) + (first + row) * a.o_stride + head * a.v_dim;
      FATHOM_UNROLL
      for (int n = 0; n < kDim / 8; ++n)
        if (8 * n < a.v_dim) *reinterpret_cast<dev::u32*>(to + 8 * n + 2 * t) = dev::pack_bf16(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse);
      if (a.lse && t == 0) a.lse[(std::int64_t{first} + row) * a.heads + head] = total > 0.0f ? base * kLn2 + dev::flog(total) : -INFINITY;
    }
  }
}

}  // namespace fathom::cuda
