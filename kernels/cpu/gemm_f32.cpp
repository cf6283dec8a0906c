#include "kernels/cpu/gemm_f32.hpp"

#if FATHOM_CPU

#include <omp.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/gemm_f32_tile.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

constexpr std::int64_t kLine = 64, kLineFloats = 16;
constexpr std::int64_t kRowsTogether = 8;  // of plain W while it is laid out

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

#if defined(__x86_64__)
struct Work {
  const F32Product& p;
  const F32Blocks& blocks;
  const float* x;
  const float* w;
  float* y;
  const float* bias;
  float* x_block;  // of this thread: tiles one after the other, each [k][its rows]
  float* w_block;  // of this thread; null where packed
  Range rows, columns;
  bool apart;

  // What of X is laid out after a block: these rows, from this k on.
  struct Next {
    Range rows;
    std::int64_t k = 0;
  };

  void run() const {
    for (std::int64_t k0 = 0; k0 < p.k; k0 += blocks.k) {
      const Range ks{k0, std::min(p.k, k0 + blocks.k)};
      for (std::int64_t c0 = columns.begin; c0 < columns.end; c0 += blocks.columns) {
        const Range block{c0, std::min(columns.end, c0 + blocks.columns)};
        if (!p.packed) lay_out_w(ks, block);
        // Row blocks of equal height.
        const int row_blocks = static_cast<int>(ceil_div(rows.size(), blocks.rows));
        for (int b = 0; b < row_blocks; ++b) {
          const bool last = b + 1 == row_blocks, last_columns = c0 + blocks.columns >= columns.end;
          Next next;
          next.k = last && last_columns ? ks.end : ks.begin;
          if (next.k < p.k && !p.transpose_x) next.rows = row_block(row_blocks, last ? 0 : b + 1);
          multiply(ks, block, row_block(row_blocks, b), next);
        }
      }
    }
  }

  Range row_block(int count, int index) const {
    const Range r = part(rows.size(), count, index, 1);
    return {rows.begin + r.begin, rows.begin + r.end};
  }

  // Plain rows are read a few at a time over the whole block, as streams, not a narrow panel from top to bottom.
  void lay_out_w(Range ks, Range block) const {
    const std::int64_t step = p.transpose_w ? ks.size() : kRowsTogether;
    for (std::int64_t k0 = ks.begin; k0 < ks.end; k0 += step) {
      const std::int64_t depth = std::min(step, ks.end - k0);
      for (std::int64_t c = block.begin; c < block.end; c += kTileColumns) {
        const std::int64_t width = std::min(kTileColumns, block.end - c);
        float* const to = w_block + (c - block.begin) * ks.size() + (k0 - ks.begin) * width;
        if (p.transpose_w)
          transpose_avx512(w + c * p.k + k0, p.k, width, depth, to, width);
        else
          copy_rows_avx512(w + k0 * p.n + c, p.n, depth, width, to, width);
      }
    }
  }

  void multiply(Range ks, Range block, Range here, Next next_x) const {
    const int tiles = static_cast<int>(ceil_div(here.size(), kTileRows));
    for (int i = 0; i < tiles; ++i) {
      const Range r = part(here.size(), tiles, i, 1);
      const std::int64_t row = here.begin + r.begin;
      if (p.transpose_x)
        copy_rows_avx512(x + ks.begin * p.m + row, p.m, ks.size(), r.size(), x_block + r.begin * ks.size(), r.size());
      else
        transpose_avx512(x + row * p.k + ks.begin, p.k, r.size(), ks.size(), x_block + r.begin * ks.size(), r.size());
    }
    F32Tile tile;
    tile.c_stride = p.n;
    tile.k = ks.size();
    tile.accumulate = p.accumulate || ks.begin > 0;
    tile.apart = apart;
    tile.stream = p.packed && here.size() == rows.size() && tiles == 1;
    // Laying out X waits for memory, the tiles do not: the last of them each prefetch one of the rows that come next.
    std::int64_t tiles_left = tiles * ceil_div(block.size(), kTileColumns);
    // What a tile reads ahead of its turn: the next panel of W, spread evenly over the tiles of this one (in bursts it would fill the queue
    // to DRAM: 256x576x2304 on cold weights 0.89 instead of 0.915).
    const std::int64_t panel_bytes = ks.size() * kTileColumns * 4, prefetches = std::max<std::int64_t>(1, ks.size() / 4 * 2);
    const std::int64_t ahead_step = std::min(kLine, ceil_div(panel_bytes, tiles * prefetches));
    for (std::int64_t c = block.begin; c < block.end; c += kTileColumns) {
      tile.columns = std::min(kTileColumns, block.end - c);
      // Ranges and blocks begin at panels, so only the matrix' last panel is narrower.
      tile.b = p.packed ? w + c * p.k + ks.begin * tile.columns : w_block + (c - block.begin) * ks.size();
      const char* const next = reinterpret_cast<const char*>(p.packed ? w + (c + kTileColumns) * p.k + ks.begin * kTileColumns : tile.b + kTileColumns * ks.size());
      const std::int64_t next_bytes = c + kTileColumns < block.end ? panel_bytes : 0;
      for (int i = 0; i < tiles; ++i) {
        const Range r = part(here.size(), tiles, i, 1);
        tile.rows = r.size();
        tile.a = x_block + r.begin * ks.size();
        tile.c = y + (here.begin + r.begin) * p.n + c;
        tile.bias = bias != nullptr && ks.begin == 0 ? bias + c : nullptr;
        const std::int64_t ahead = i * prefetches * ahead_step;
        tile.ahead = ahead < next_bytes ? next + ahead : reinterpret_cast<const char*>(tile.b);
        tile.ahead_step = ahead < next_bytes ? ahead_step : 0;
        --tiles_left;
        tile.row_ahead = tiles_left < next_x.rows.size() ? x + (next_x.rows.end - 1 - tiles_left) * p.k + next_x.k : tile.a;
        f32_tile_avx512(tile);
      }
    }
  }
};

std::int64_t x_block_floats(const F32Blocks& b) { return round_up(b.rows * b.k, kLineFloats); }
std::int64_t w_block_floats(const F32Product& p, const F32Blocks& b) { return p.packed ? 0 : round_up(b.k * b.columns, kLineFloats); }
#endif

}  // namespace

F32Blocks f32_blocks(const F32Product& p) {
  // Long blocks of k: every further one reads and writes all of Y once more. One thread, fraction of the FMA probe: 256x576x2304 0.90 in
  // two blocks, 0.88 in three; 512x4096x4096 0.955 in three, 0.94 in six, 0.93 in two; 1792x896x3584 0.965 in two, 0.91 in three.
  // Blocks of rows: beside the next rows of X and two panels of W they stay in an L2 of 1 MiB; yet a few hundred rows are one or two blocks,
  // or cold weights are read once more for each. 2-core EPYC (family 26), two threads, weights from DRAM, fraction of the FMA probe:
  // 2048x576x2304 in blocks of 112 rows 0.94, of 224 0.93, of 56 0.94; 256x576x2304 in 64 0.92, in 43 0.89; 256x1728x576 in 128 0.935, in 43 0.89.
  constexpr std::int64_t kLongest = 1792, kXBytes = 512 << 10, kWBytes = 4 << 20;
  F32Blocks blocks;
  const std::int64_t parts = ceil_div(p.k, kLongest);
  blocks.k = std::min(p.k, round_up(ceil_div(p.k, parts), 4));
  // The grid whose largest part is smallest.
  double best = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kSerial = 1 << 17;  // multiply-adds that one thread does while another is being called
  const int threads = p.m * p.n * p.k < kSerial ? 1 : p.threads;
  for (int rows = 1; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    const int columns = threads / rows;
    const auto most_rows = static_cast<double>(ceil_div(p.m, rows));
    const auto most_columns = static_cast<double>(std::min(p.n, ceil_div(ceil_div(p.n, kTileColumns), columns) * kTileColumns));
    // Laying out an element costs about as much as this many multiply-adds.
    constexpr double kLayOut = 20;
    // So does reading an element of W from memory, in the time of which about this many rows are multiplied with it.
    constexpr double kRead = 28;
    const double cost = std::max(most_rows, kRead) * most_columns + kLayOut * (most_rows + (p.packed ? 0 : most_columns));
    if (cost < best) {
      best = cost;
      blocks.row_parts = rows;
      blocks.column_parts = columns;
    }
  }
  blocks.rows = std::min(ceil_div(p.m, blocks.row_parts), std::max<std::int64_t>(kTileRows, kXBytes / 4 / blocks.k / kTileRows * kTileRows));
  // Plain weights: as many columns as one thread gets, while what is laid out stays near.
  const std::int64_t each = ceil_div(ceil_div(p.n, kTileColumns), blocks.column_parts) * kTileColumns;
  blocks.columns = p.packed ? p.n : std::min(each, std::max(kTileColumns, kWBytes / 4 / blocks.k / kTileColumns * kTileColumns));
  return blocks;
}

#if defined(__x86_64__)

std::int64_t f32_scratch_bytes(const F32Product& p, const F32Blocks& b) {
  return 4 * b.row_parts * b.column_parts * (x_block_floats(b) + w_block_floats(p, b));
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
  const int parts = blocks.row_parts * blocks.column_parts;
  const bool apart = cpu_info().vendor == "AuthenticAMD";
  const auto run_part = [&](int index) {
    float* const mine = static_cast<float*>(scratch) + index * each;
    const Range rows = part(p.m, blocks.row_parts, index % blocks.row_parts, 1);
    const Range columns = part(p.n, blocks.column_parts, index / blocks.row_parts, kTileColumns);
    if (rows.size() == 0 || columns.size() == 0) return;
    Work{p, blocks, x, w, y, bias, mine, p.packed ? nullptr : mine + x_floats, rows, columns, apart}.run();
  };
  // No region for one thread: the runtime would allocate a team where the one before had more.
  if (parts == 1) return run_part(0);
  // A region may come with fewer threads than asked for: the parts are dealt out.
#pragma omp parallel num_threads(parts)
  for (int index = omp_get_thread_num(); index < parts; index += omp_get_num_threads()) run_part(index);
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
