#include "kernels/cpu/gemm_f32.hpp"

#if FATHOM_CPU

#include <omp.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/gemm_f32_tile.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

constexpr std::int64_t kLine = 64, kLineFloats = 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t step) { return ceil_div(a, step) * step; }

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
// Part `index` of 0..count cut in `parts` of sizes that differ by at most `unit`, in multiples of it.
Range part(std::int64_t count, int parts, int index, std::int64_t unit) {
  const std::int64_t units = ceil_div(count, unit);
  return {std::min(count, units * index / parts * unit), std::min(count, units * (index + 1) / parts * unit)};
}

// Rows of a copied block of X: an odd number of cache lines, so that the rows of a tile fall in different cache sets.
std::int64_t copy_stride(std::int64_t k) {
  const std::int64_t lines = ceil_div(k, kLineFloats);
  return (lines + 1 - lines % 2) * kLineFloats;
}

// Rows of this stride, 14 of them, would fight for the ways of few cache sets.
bool rows_collide(std::int64_t stride) { return stride % 512 == 0; }

#if defined(__x86_64__)
struct Work {
  const F32Product& p;
  const F32Blocks& blocks;
  const float* x;
  const float* w;
  float* y;
  const float* bias;
  float* x_block;  // of this thread; null where X is read in place
  float* w_block;  // of this thread; null where packed
  Range rows, columns;

  void run() const {
    for (std::int64_t k0 = 0; k0 < p.k; k0 += blocks.k) {
      const Range ks{k0, std::min(p.k, k0 + blocks.k)};
      for (std::int64_t c0 = columns.begin; c0 < columns.end; c0 += blocks.columns) {
        const Range block{c0, std::min(columns.end, c0 + blocks.columns)};
        if (!p.packed) lay_out_w(ks, block);
        // Row blocks of equal height.
        const int row_blocks = static_cast<int>(ceil_div(rows.size(), blocks.rows));
        for (int b = 0; b < row_blocks; ++b) {
          const Range here = part(rows.size(), row_blocks, b, 1);
          multiply(ks, block, {rows.begin + here.begin, rows.begin + here.end});
        }
      }
    }
  }

  void lay_out_w(Range ks, Range block) const {
    for (std::int64_t c = block.begin; c < block.end; c += kTileColumns) {
      const std::int64_t width = std::min(kTileColumns, block.end - c);
      float* const to = w_block + (c - block.begin) * ks.size();
      if (p.transpose_w)
        transpose_avx512(w + c * p.k + ks.begin, p.k, width, ks.size(), to, width);
      else
        copy_rows_avx512(w + ks.begin * p.n + c, p.n, ks.size(), width, to, width);
    }
  }

  void multiply(Range ks, Range block, Range here) const {
    const float* a = x + here.begin * p.k + ks.begin;
    std::int64_t a_stride = p.k;
    if (blocks.copy_x) {
      a_stride = copy_stride(ks.size());
      if (p.transpose_x)
        transpose_avx512(x + ks.begin * p.m + here.begin, p.m, ks.size(), here.size(), x_block, a_stride);
      else
        copy_rows_avx512(a, p.k, here.size(), ks.size(), x_block, a_stride);
      a = x_block;
    }
    const int tiles = static_cast<int>(ceil_div(here.size(), kTileRows));
    F32Tile tile;
    tile.a_stride = a_stride;
    tile.c_stride = p.n;
    tile.k = ks.size();
    tile.accumulate = p.accumulate || ks.begin > 0;
    // What a tile reads ahead of its turn: the next panel of W, shared out over the tiles of this one.
    const std::int64_t lines_a_tile = ks.size() / 4;
    for (std::int64_t c = block.begin; c < block.end; c += kTileColumns) {
      tile.columns = std::min(kTileColumns, block.end - c);
      const std::int64_t panel_width = std::min(kTileColumns, p.n - c);  // equal to columns unless a range ends inside a panel
      tile.b = p.packed ? w + c * p.k + ks.begin * panel_width : w_block + (c - block.begin) * ks.size();
      tile.b_stride = tile.columns;
      const char* const next = reinterpret_cast<const char*>(p.packed ? w + (c + kTileColumns) * p.k + ks.begin * kTileColumns : tile.b + kTileColumns * ks.size());
      const std::int64_t next_lines = c + kTileColumns < block.end ? ks.size() * kTileColumns / kLineFloats : 0;
      for (int i = 0; i < tiles; ++i) {
        const Range r = part(here.size(), tiles, i, 1);
        tile.rows = r.size();
        tile.a = a + r.begin * a_stride;
        tile.c = y + (here.begin + r.begin) * p.n + c;
        tile.bias = bias != nullptr && ks.begin == 0 ? bias + c : nullptr;
        const bool prefetch = i * lines_a_tile < next_lines;
        tile.ahead = prefetch ? next + i * lines_a_tile * kLine : reinterpret_cast<const char*>(tile.b);
        tile.ahead_step = prefetch ? kLine : 0;
        f32_tile_avx512(tile);
      }
    }
  }
};

std::int64_t x_block_floats(const F32Blocks& b) { return b.copy_x ? b.rows * copy_stride(b.k) : 0; }
std::int64_t w_block_floats(const F32Product& p, const F32Blocks& b) { return p.packed ? 0 : round_up(b.k * b.columns, kLineFloats); }
#endif

}  // namespace

F32Blocks f32_blocks(const F32Product& p) {
  constexpr std::int64_t kLongest = 768, kXBytes = 1 << 20, kColumns = 1024;
  F32Blocks blocks;
  const std::int64_t parts = ceil_div(p.k, kLongest);
  blocks.k = std::min(p.k, round_up(ceil_div(p.k, parts), 4));
  blocks.copy_x = p.transpose_x || rows_collide(p.k);
  // The grid whose largest part is smallest.
  double best = std::numeric_limits<double>::infinity();
  for (int rows = 1; rows <= p.threads; ++rows) {
    if (p.threads % rows != 0) continue;
    const int columns = p.threads / rows;
    const auto most_rows = static_cast<double>(ceil_div(p.m, rows));
    const auto most_columns = static_cast<double>(std::min(p.n, ceil_div(ceil_div(p.n, kTileColumns), columns) * kTileColumns));
    // Laying out an element costs about as much as this many multiply-adds.
    constexpr double kLayOut = 40;
    const double cost = most_rows * most_columns + (p.packed ? 0 : kLayOut * most_columns) + (blocks.copy_x ? kLayOut * most_rows : 0);
    if (cost < best) {
      best = cost;
      blocks.row_parts = rows;
      blocks.column_parts = columns;
    }
  }
  blocks.rows = std::min(ceil_div(p.m, blocks.row_parts), std::max<std::int64_t>(kTileRows, kXBytes / 4 / blocks.k / kTileRows * kTileRows));
  blocks.columns = p.packed ? p.n : std::min(round_up(p.n, kTileColumns), kColumns);
  return blocks;
}

#if defined(__x86_64__)

std::int64_t f32_scratch_bytes(const F32Product& p, const F32Blocks& b) {
  return 4 * p.threads * (x_block_floats(b) + w_block_floats(p, b));
}

void f32_pack(const F32Product& p, const float* w, float* packed) {
  const std::int64_t panels = ceil_div(p.n, kTileColumns);
#pragma omp parallel for schedule(static) num_threads(p.threads)
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t c = panel * kTileColumns, width = std::min(kTileColumns, p.n - c);
    if (p.transpose_w)
      transpose_avx512(w + c * p.k, p.k, width, p.k, packed + c * p.k, width);
    else
      copy_rows_avx512(w + c, p.n, p.k, width, packed + c * p.k, width);
  }
}

void f32_run(const F32Product& p, const F32Blocks& blocks, const float* x, const float* w, float* y, void* scratch, const float* bias) {
  const std::int64_t x_floats = x_block_floats(blocks), each = x_floats + w_block_floats(p, blocks);
#pragma omp parallel num_threads(p.threads)
  {
    // A region may come with fewer threads than asked for: the parts are dealt out.
    for (int index = omp_get_thread_num(); index < p.threads; index += omp_get_num_threads()) {
      float* const mine = static_cast<float*>(scratch) + index * each;
      const Range rows = part(p.m, blocks.row_parts, index % blocks.row_parts, 1);
      const Range columns = part(p.n, blocks.column_parts, index / blocks.row_parts, kTileColumns);
      if (rows.size() == 0 || columns.size() == 0) continue;
      Work{p, blocks, x, w, y, bias, blocks.copy_x ? mine : nullptr, p.packed ? nullptr : mine + x_floats, rows, columns}.run();
    }
  }
}

#else

std::int64_t f32_scratch_bytes(const F32Product&, const F32Blocks&) { return 0; }
void f32_pack(const F32Product&, const float*, float*) { throw_internal("the AVX-512 product was chosen on another processor"); }
void f32_run(const F32Product&, const F32Blocks&, const float*, const float*, float*, void*, const float*) {
  throw_internal("the AVX-512 product was chosen on another processor");
}

#endif

}  // namespace fathom::cpu

#endif
