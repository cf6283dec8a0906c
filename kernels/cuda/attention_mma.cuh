// Flash attention on tensor cores (mma.sync m16n8k16, bf16 with f32 sums), forward: FlashAttention-2's scheme (Dao, arXiv 2307.08691).
//
// A block owns 128 queries of one head, a warp 32 of them (two row tiles of 16 share every fragment of K and V that is loaded). Key
// tiles of 64 stream through two stages of shared memory by cp.async. The fragment of S = Q K^T that a lane holds is the fragment of P that
// P V wants, so P never leaves the registers. Scores are scaled into base 2; a row that sees nothing gives zeros and -infinity.
#pragma once

#include "kernels/cuda/attention_common.cuh"

namespace fathom::cuda {

// Copies rows first .. first + rows - 1 (of `count`) of a matrix with `width` columns into a tile of `kDim` columns; what is outside becomes 0.
template <int kDim>
FATHOM_DEV void load_tile(bf16* tile, const bf16* from, std::int64_t stride, std::int64_t first, std::int64_t count, int rows, int width) {
  constexpr int kLine = kDim + kTensorPad, kChunks = kDim / 8;
  for (int i = dev::tid(); i < rows * kChunks; i += kTensorThreads) {
    const int row = i / kChunks, c = i % kChunks * 8;
    const bool in = first + row < count && c < width;
    dev::cp_async16(tile + row * kLine + c, in ? from + (first + row) * stride + c : from, in);
  }
}

// Addresses for matrix loads. A operand (16 rows x 16 columns at row, column); B operand from a tile stored [n][k] (16 n x 16 k), and, transposed,
// from one stored [k][n] (16 k x 16 n): each gives the fragments of two column tiles of 8.
template <int kLine>
FATHOM_DEV const bf16* a_rows(const bf16* tile, int row, int column) {
  return tile + (row + dev::lane() % 16) * kLine + column + dev::lane() / 16 * 8;
}
template <int kLine>
FATHOM_DEV const bf16* b_rows(const bf16* tile, int n, int k) {
  return tile + (n + dev::lane() / 16 * 8 + dev::lane() % 8) * kLine + k + dev::lane() / 8 % 2 * 8;
}
template <int kLine>
FATHOM_DEV const bf16* b_rows_transposed(const bf16* tile, int k, int n) {
  return tile + (k + dev::lane() % 16) * kLine + n + dev::lane() / 16 * 8;
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
  constexpr int kRows = tensor_rows(kDim), kTiles = kRows / 64, kLine = kDim + kTensorPad;
  constexpr int kSteps = kDim / 16, kKeyTiles = kTensorKeys / 8;
  bf16* q_tile = dev::smem<bf16>();
  bf16* k_tile = q_tile + kRows * kLine;
  bf16* v_tile = k_tile + 2 * kTensorKeys * kLine;
  // Late queries see the most keys under a causal mask: they go first.
  const std::int64_t sequence = dev::bid_z(), head = dev::bid_y(), kv = head / (a.heads / a.kv_heads);
  const std::int64_t first = first_row(a.queries, sequence), count = first_row(a.queries, sequence + 1) - first;
  const std::int64_t start = (dev::grid_x() - 1 - dev::bid()) * kRows;
  if (start >= count) return;
  const std::int64_t rows = count - start < kRows ? count - start : kRows;
  const std::int64_t first_key = first_row(a.keys, sequence);
  const std::int32_t* begin = a.begin + first + start;
  const std::int32_t* end = a.end + first + start;
  const int key_begin = begin[0] / kTensorKeys * kTensorKeys, key_end = end[rows - 1];
  const int all_begin = begin[rows - 1], all_end = rows == kRows ? end[0] : 0;  // keys that every row sees
  const bf16* q = static_cast<const bf16*>(a.q) + (first + start) * a.q_stride + head * a.qk_dim;
  const bf16* k = static_cast<const bf16*>(a.k) + first_key * a.kv_stride + kv * a.qk_dim;
  const bf16* v = static_cast<const bf16*>(a.v) + first_key * a.kv_stride + kv * a.v_head_stride;

  const int g = dev::lane() / 4, t = dev::lane() % 4, warp_row = dev::warp() * 16 * kTiles;
  int row_begin[kTiles][2], row_end[kTiles][2];
  FATHOM_UNROLL
  for (int m = 0; m < kTiles; ++m) {
    FATHOM_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = warp_row + 16 * m + 8 * h + g;
      row_begin[m][h] = row < rows ? begin[row] : 0;
      row_end[m][h] = row < rows ? end[row] : 0;
    }
  }

  load_tile<kDim>(q_tile, q, a.q_stride, 0, rows, kRows, a.qk_dim);
  load_tile<kDim>(k_tile, k, a.kv_stride, key_begin, key_end, kTensorKeys, a.qk_dim);
  load_tile<kDim>(v_tile, v, a.kv_stride, key_begin, key_end, kTensorKeys, a.v_dim);
  dev::cp_commit();

  const float scale = a.scale * kLog2E;
  float o[kTiles][kDim / 8][4] = {}, top[kTiles][2], sum[kTiles][2] = {};
  FATHOM_UNROLL
  for (int m = 0; m < kTiles; ++m) top[m][0] = top[m][1] = -INFINITY;

  int stage = 0;
  for (int key = key_begin; key < key_end; key += kTensorKeys, stage ^= 1) {
    if (key + kTensorKeys < key_end) {
      load_tile<kDim>(k_tile + (stage ^ 1) * kTensorKeys * kLine, k, a.kv_stride, key + kTensorKeys, key_end, kTensorKeys, a.qk_dim);
      load_tile<kDim>(v_tile + (stage ^ 1) * kTensorKeys * kLine, v, a.kv_stride, key + kTensorKeys, key_end, kTensorKeys, a.v_dim);
    }
    dev::cp_commit();
    dev::cp_wait<1>();
    dev::block_sync();
    const bf16* keys = k_tile + stage * kTensorKeys * kLine;
    const bf16* vals = v_tile + stage * kTensorKeys * kLine;

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

    if (key < all_begin || key + kTensorKeys > all_end) {
      FATHOM_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        FATHOM_UNROLL
        for (int n = 0; n < kKeyTiles; ++n) {
          FATHOM_UNROLL
          for (int e = 0; e < 4; ++e) {
            const int at = key + 8 * n + 2 * t + e % 2;
            if (at < row_begin[m][e / 2] || at >= row_end[m][e / 2]) s[m][n][e] = -INFINITY;
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
      const std::int64_t row = warp_row + 16 * m + 8 * h + g;
      const float last = dev::fmaxf_(top[m][h] * scale, sink), base = last == -INFINITY ? 0.0f : last;
      const float shrink = dev::fexp2(top[m][h] * scale - base);
      const float total = quad_sum(sum[m][h]) * shrink + dev::fexp2(sink - base);
      const float inverse = total > 0.0f ? shrink / total : 0.0f;
      if (row >= rows) continue;
      bf16* to = static_cast<bf16*>(a.o) + (first + start + row) * a.o_stride + head * a.v_dim;
      FATHOM_UNROLL
      for (int n = 0; n < kDim / 8; ++n)
        if (8 * n < a.v_dim) *reinterpret_cast<dev::u32*>(to + 8 * n + 2 * t) = dev::pack_bf16(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse);
      if (a.lse && t == 0) a.lse[(first + start + row) * a.heads + head] = total > 0.0f ? base * kLn2 + dev::flog(total) : -INFINITY;
    }
  }
}

}  // namespace fathom::cuda
