// Device code of kernels/cuda/grouped.hpp.
#pragma once

#include "kernels/cuda/grouped.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/tiles.cuh"

namespace fathom::cuda {

// Which expert a tile of rows belongs to, and its rows: tiles of expert 0, then of expert 1 ... False: there is no such tile. Every warp finds it alone.
FATHOM_DEV bool grouped_tile(const GroupedArgs& a, std::int64_t tile, int tile_rows, int& expert, std::int64_t& begin, std::int64_t& end) {
  for (int first = 0; first < a.experts; first += 32) {
    const int e = first + dev::lane();
    const std::int32_t own = e < a.experts ? (a.offsets[e + 1] - a.offsets[e] + tile_rows - 1) / tile_rows : 0;
    const std::int32_t upto = dev::warp_scan(own), total = dev::shfl(upto, 31);
    if (tile < total) {
      const dev::u32 behind = dev::ballot(upto > tile);
      const int owner = dev::popc((behind & (~behind + 1)) - 1);  // the first lane whose tiles end behind this one
      tile -= dev::shfl(upto - own, owner);
      expert = first + owner;
      begin = a.offsets[expert] + tile * tile_rows;
      end = a.offsets[expert + 1];
      return true;
    }
    tile -= total;
  }
  return false;
}

// kRows x kColumns elements from (row, column) on; what lies at or beyond row_end or column_end becomes 0.
template <int kRows, int kColumns>
FATHOM_DEV void load_block(bf16* tile, const bf16* from, std::int64_t stride, std::int64_t row, std::int64_t row_end, std::int64_t column, std::int64_t column_end) {
  constexpr int kChunks = kColumns / 8, kLine = kColumns + kGroupedPad;
  FATHOM_UNROLL
  for (int p = 0; p < (kRows * kChunks + kGroupedThreads - 1) / kGroupedThreads; ++p) {
    const int i = p * kGroupedThreads + dev::tid(), r = i / kChunks, c = i % kChunks * 8;
    if (kRows * kChunks % kGroupedThreads != 0 && r >= kRows) continue;
    const bool in = row + r < row_end && column + c < column_end;
    dev::cp_async16(tile + r * kLine + c, in ? from + (row + r) * stride + column + c : from, in);
  }
}

// Two neighbouring results of one row.
FATHOM_DEV void store_pair(const GroupedArgs& a, std::int64_t at, float left, float right) {
  if (a.result == DType::kBF16) {
    auto* to = reinterpret_cast<dev::u32*>(static_cast<bf16*>(a.c) + at);
    if (a.accumulate) {
      const dev::u32 old = *to;
      left += dev::bf16_low(old), right += dev::bf16_high(old);
    }
    *to = dev::pack_bf16(left, right);
  } else {
    float* to = static_cast<float*>(a.c) + at;
    to[0] = a.accumulate ? to[0] + left : left;
    to[1] = a.accumulate ? to[1] + right : right;
  }
}

// A block owns kM x 128 elements of C, a warp 32 rows of them. Terms stream through three stages of shared memory by cp.async.
template <bool kWeights, bool kTransposed, int kM>
FATHOM_KERNEL(kGroupedThreads) grouped_tensor_kernel(GroupedArgs a) {
  constexpr int kK = kGroupedK, kN = kGroupedN, kWarps = kGroupedThreads / 32, kWarpsM = kM / 32, kWarpN = kN / (kWarps / kWarpsM), kColumns = kWarpN / 8;
  constexpr int kLeftLine = (kWeights ? kM : kK) + kGroupedPad, kRightLine = (kTransposed ? kK : kN) + kGroupedPad;
  constexpr int kLeft = (kWeights ? kK : kM) * kLeftLine, kRight = (kTransposed ? kN : kK) * kRightLine;
  bf16* left = dev::smem<bf16>();
  bf16* right = left + kGroupedStages * kLeft;
  const std::int64_t column = dev::bid_y() * kN;
  int expert = 0;
  std::int64_t row = 0, row_end = 0, term = 0, term_end = a.k;  // rows of C, and terms of the sums
  if constexpr (kWeights) {
    expert = static_cast<int>(dev::bid_z());
    row = dev::bid() * kM, row_end = a.m;
    term = a.offsets[expert], term_end = a.offsets[expert + 1];
    if (a.accumulate && term == term_end) return;
  } else {
    if (!grouped_tile(a, dev::bid(), kM, expert, row, row_end)) return;
  }
  const bf16* from_left = static_cast<const bf16*>(a.a);
  const bf16* from_right = static_cast<const bf16*>(a.b) + (kWeights ? 0 : expert * a.k * a.n);
  const auto fetch = [&](std::int64_t at, int stage) {
    if (at < term_end) {
      if constexpr (kWeights)
        load_block<kK, kM>(left + stage * kLeft, from_left, a.m, at, term_end, row, row_end);
      else
        load_block<kM, kK>(left + stage * kLeft, from_left, a.k, row, row_end, at, term_end);
      if constexpr (kTransposed)
        load_block<kN, kK>(right + stage * kRight, from_right, a.k, column, a.n, at, term_end);
      else
        load_block<kK, kN>(right + stage * kRight, from_right, a.n, at, term_end, column, a.n);
    }
    dev::cp_commit();
  };
  FATHOM_UNROLL
  for (int s = 0; s < kGroupedStages - 1; ++s) fetch(term + s * kK, s);

  const int warp_row = dev::warp() % kWarpsM * 32, warp_column = dev::warp() / kWarpsM * kWarpN;
  float sums[2][kColumns][4] = {};
  int stage = 0;
  for (; term < term_end; term += kK) {
    dev::cp_wait<kGroupedStages - 2>();
    dev::block_sync();  // this stage has come for all, and all are done with the stage that the next copy overwrites
    const int next = stage == 0 ? kGroupedStages - 1 : stage - 1;
    fetch(term + (kGroupedStages - 1) * kK, next);
    const bf16* l = left + stage * kLeft;
    const bf16* r = right + stage * kRight;
    FATHOM_UNROLL
    for (int step = 0; step < kK; step += 16) {
      dev::u32 fa[2][4];
      FATHOM_UNROLL
      for (int m = 0; m < 2; ++m) {
        if constexpr (kWeights)
          dev::ldmatrix_x4_trans(fa[m], b_rows<kLeftLine>(l, step, warp_row + 16 * m));
        else
          dev::ldmatrix_x4(fa[m], a_rows<kLeftLine>(l, warp_row + 16 * m, step));
      }
      FATHOM_UNROLL
      for (int n = 0; n < kColumns; n += 2) {
        dev::u32 fb[4];
        if constexpr (kTransposed)
          dev::ldmatrix_x4(fb, b_rows<kRightLine>(r, warp_column + 8 * n, step));
        else
          dev::ldmatrix_x4_trans(fb, b_rows_transposed<kRightLine>(r, step, warp_column + 8 * n));
        FATHOM_UNROLL
        for (int m = 0; m < 2; ++m) {
          dev::mma_16816(sums[m][n], fa[m], {fb[0], fb[1]});
          dev::mma_16816(sums[m][n + 1], fa[m], {fb[2], fb[3]});
        }
      }
    }
    stage = stage == kGroupedStages - 1 ? 0 : stage + 1;
  }
  dev::cp_wait<0>();

  const std::int64_t base = kWeights ? expert * a.m * a.n : 0;
  const int g = dev::lane() / 4, t = dev::lane() % 4;
  FATHOM_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    const std::int64_t c = column + warp_column + 8 * n + 2 * t;
    if (c >= a.n) continue;
    float add[2] = {};
    if (a.bias) {
      const bf16* bias = static_cast<const bf16*>(a.bias) + expert * a.n + c;
      add[0] = dev::load(bias), add[1] = dev::load(bias + 1);
    }
    FATHOM_UNROLL
    for (int m = 0; m < 2; ++m) {
      FATHOM_UNROLL
      for (int h = 0; h < 2; ++h) {
        const std::int64_t at = row + warp_row + 16 * m + 8 * h + g;
        if (at < row_end) store_pair(a, base + at * a.n + c, sums[m][n][2 * h] + add[0], sums[m][n][2 * h + 1] + add[1]);
      }
    }
  }
}

// Any type and alignment: tiles of 64 x 64, sixteen terms at a time, a thread 4 x 4 elements that lie 16 apart.
template <class T, bool kWeights>
FATHOM_KERNEL_OCC(kGroupedThreads, 2) grouped_plain_kernel(GroupedArgs a) {
  constexpr int kTile = kGroupedPlain, kK = kGroupedPlainK, kLine = kTile + 1;
  float* left = dev::smem<float>();  // [term][row]
  float* right = left + kK * kLine;  // [term][column]
  const std::int64_t column = dev::bid_y() * kTile;
  int expert = 0;
  std::int64_t row = 0, row_end = 0, term = 0, term_end = a.k;
  if constexpr (kWeights) {
    expert = static_cast<int>(dev::bid_z());
    row = dev::bid() * kTile, row_end = a.m;
    term = a.offsets[expert], term_end = a.offsets[expert + 1];
    if (a.accumulate && term == term_end) return;
  } else {
    if (!grouped_tile(a, dev::bid(), kTile, expert, row, row_end)) return;
  }
  const T* from_left = static_cast<const T*>(a.a);
  const T* from_right = static_cast<const T*>(a.b) + (kWeights ? 0 : expert * a.k * a.n);
  const int y = dev::tid() / 16, x = dev::tid() % 16;
  float sums[4][4] = {};
  for (; term < term_end; term += kK) {
    dev::block_sync();
    for (int i = dev::tid(); i < kK * kTile; i += kGroupedThreads) {
      // Neighbouring threads take what is neighbouring in memory.
      const int by_term = i / kTile, by_tile = i % kTile, own_term = i % kK, own_tile = i / kK;
      if constexpr (kWeights) {
        const bool in = term + by_term < term_end;
        left[by_term * kLine + by_tile] = in && row + by_tile < row_end ? dev::load(from_left + (term + by_term) * a.m + row + by_tile) : 0.0f;
      } else {
        left[own_term * kLine + own_tile] = term + own_term < term_end && row + own_tile < row_end ? dev::load(from_left + (row + own_tile) * a.k + term + own_term) : 0.0f;
      }
      if (!kWeights && a.transpose_b)
        right[own_term * kLine + own_tile] = term + own_term < term_end && column + own_tile < a.n ? dev::load(from_right + (column + own_tile) * a.k + term + own_term) : 0.0f;
      else
        right[by_term * kLine + by_tile] = term + by_term < term_end && column + by_tile < a.n ? dev::load(from_right + (term + by_term) * a.n + column + by_tile) : 0.0f;
    }
    dev::block_sync();
    FATHOM_UNROLL_BY(4)
    for (int k = 0; k < kK; ++k) {
      float l[4], r[4];
      FATHOM_UNROLL
      for (int i = 0; i < 4; ++i) l[i] = left[k * kLine + y + 16 * i], r[i] = right[k * kLine + x + 16 * i];
      FATHOM_UNROLL
      for (int i = 0; i < 4; ++i) {
        FATHOM_UNROLL
        for (int j = 0; j < 4; ++j) sums[i][j] += l[i] * r[j];
      }
    }
  }
  FATHOM_UNROLL
  for (int i = 0; i < 4; ++i) {
    FATHOM_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::int64_t at = row + y + 16 * i, c = column + x + 16 * j;
      if (at >= row_end || c >= a.n) continue;
      const float bias = a.bias ? dev::load(static_cast<const T*>(a.bias) + expert * a.n + c) : 0.0f;
      const std::int64_t to = (kWeights ? expert * a.m * a.n : 0) + at * a.n + c;
      if (a.result == DType::kBF16) {
        bf16* value = static_cast<bf16*>(a.c) + to;
        dev::store(value, (a.accumulate ? dev::load(value) : 0.0f) + sums[i][j] + bias);
      } else {
        float* value = static_cast<float*>(a.c) + to;
        *value = (a.accumulate ? *value : 0.0f) + sums[i][j] + bias;
      }
    }
  }
}

// A block per expert and 32 columns: a warp sums every eighth row, the warps are added in order.
template <class T>
FATHOM_KERNEL(kGroupedThreads) grouped_bias_kernel(GroupedBiasArgs a) {
  const std::int64_t expert = dev::bid_y(), column = dev::bid() * 32 + dev::lane(), end = a.offsets[expert + 1];
  float* parts = dev::smem<float>();
  float sum = 0.0f;
  for (std::int64_t row = a.offsets[expert] + dev::warp(); row < end; row += kGroupedThreads / 32)
    if (column < a.n) sum += dev::load(static_cast<const T*>(a.dy) + row * a.n + column);
  parts[dev::tid()] = sum;
  dev::block_sync();
  if (dev::warp() != 0 || column >= a.n) return;
  float total = 0.0f;
  for (int w = 0; w < kGroupedThreads / 32; ++w) total += parts[w * 32 + dev::lane()];
  const std::int64_t at = expert * a.n + column;
  if (a.grad_type == DType::kBF16) {
    bf16* to = static_cast<bf16*>(a.db) + at;
    dev::store(to, a.accumulate ? dev::load(to) + total : total);
  } else {
    float* to = static_cast<float*>(a.db) + at;
    *to = a.accumulate ? *to + total : total;
  }
}

inline void grouped_product(const GroupedArgs& a, simt::Stream stream) {
  const LaunchShape shape = grouped_launch(a);
  if (grouped_tensor_ready(a)) {
    if (a.weights) return simt::launch(grouped_tensor_kernel<true, false, 128>, shape, a, stream);
    if (grouped_tile_rows(a) == 32) return simt::launch(a.transpose_b ? grouped_tensor_kernel<false, true, 32> : grouped_tensor_kernel<false, false, 32>, shape, a, stream);
    return simt::launch(a.transpose_b ? grouped_tensor_kernel<false, true, 128> : grouped_tensor_kernel<false, false, 128>, shape, a, stream);
  }
  with_type(a.type, [&]<class T>() { simt::launch(a.weights ? grouped_plain_kernel<T, true> : grouped_plain_kernel<T, false>, shape, a, stream); });
}
inline void grouped_bias(const GroupedBiasArgs& a, simt::Stream stream) {
  with_type(a.type, [&]<class T>() { simt::launch(grouped_bias_kernel<T>, grouped_bias_launch(a), a, stream); });
}

}  // namespace fathom::cuda
