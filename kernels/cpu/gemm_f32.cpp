#include "kernels/cpu/gemm_f32.hpp"

#if FATHOM_CPU

#include <omp.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/gemm_f32_tile.hpp"
#include "kernels/cpu/own_first.hpp"
#include "lib/error.hpp"

namespace fathom::cpu {
namespace {

constexpr std::int64_t kLine = 64, kLineFloats = 16;
constexpr std::int64_t kRowsTogether = 8;  // of plain W while it is laid out
constexpr std::int64_t kRowsOfX = 32;      // of X stored [k][m]

// What differs between instruction sets.
struct Kernels {
  F32TileSize full;
  std::int64_t longest_k;
  void (*tile)(const F32Tile& tile);
  void (*copy_rows)(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);
  void (*transpose)(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_stride);
};

// Long blocks of k: every further one reads and writes all of Y once more. One thread, fraction of the FMA probe, AVX-512: 256x576x2304 0.90 in
// two blocks, 0.88 in three; 512x4096x4096 0.955 in three, 0.94 in six, 0.93 in two; 1792x896x3584 0.965 in two, 0.91 in three.
// AVX2, 2-core EPYC (family 25): blocks of 250 to 1024 differ by 2 %, but past X that stays laid out in L3 two panels of W must fit in L2.
constexpr std::int64_t kLongestAvx512 = 1792, kLongestAvx2 = 640;

#if defined(__x86_64__)
constexpr Kernels kAvx512Kernels{kTileAvx512, kLongestAvx512, f32_tile_avx512, copy_rows_avx512, transpose_avx512};
constexpr Kernels kAvx2Kernels{kTileAvx2, kLongestAvx2, f32_tile_avx2, copy_rows_avx2, transpose_avx2};
#else
constexpr Kernels kAvx512Kernels{kTileAvx512, kLongestAvx512, nullptr, nullptr, nullptr}, kAvx2Kernels{kTileAvx2, kLongestAvx2, nullptr, nullptr, nullptr};
#endif
const Kernels& kernels(Isa level) { return level >= Isa::kAvx512 ? kAvx512Kernels : kAvx2Kernels; }

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
  const Kernels& kernel;
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
    if (blocks.x_stays) return run_past_x();
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
    const std::int64_t step = p.transpose_w ? ks.size() : kRowsTogether, panel = kernel.full.columns;
    for (std::int64_t k0 = ks.begin; k0 < ks.end; k0 += step) {
      const std::int64_t depth = std::min(step, ks.end - k0);
      for (std::int64_t c = block.begin; c < block.end; c += panel) {
        const std::int64_t width = std::min(panel, block.end - c);
        float* const to = w_block + (c - block.begin) * ks.size() + (k0 - ks.begin) * width;
        if (p.transpose_w)
          kernel.transpose(w + c * p.k + k0, p.k, width, depth, to, width);
        else
          kernel.copy_rows(w + k0 * p.n + c, p.n, depth, width, to, width);
      }
    }
  }

  // Stored [k][m], a line holds elements of several tiles: a few rows for all tiles before the next.
  void lay_out_x(Range ks, Range here, int tiles) const {
    const std::int64_t step = p.transpose_x ? kRowsOfX : ks.size();
    for (std::int64_t k0 = ks.begin; k0 < ks.end; k0 += step) {
      const std::int64_t depth = std::min(step, ks.end - k0);
      for (int i = 0; i < tiles; ++i) {
        const Range r = part(here.size(), tiles, i, 1);
        const std::int64_t row = here.begin + r.begin;
        float* const to = x_block + r.begin * ks.size() + (k0 - ks.begin) * r.size();
        if (p.transpose_x)
          kernel.copy_rows(x + k0 * p.m + row, p.m, depth, r.size(), to, r.size());
        else
          kernel.transpose(x + row * p.k + k0, p.k, r.size(), depth, to, r.size());
      }
    }
  }

  void multiply(Range ks, Range block, Range here, Next next_x) const {
    const int tiles = static_cast<int>(ceil_div(here.size(), kernel.full.rows));
    lay_out_x(ks, here, tiles);
    const std::int64_t panel = kernel.full.columns;
    F32Tile tile;
    tile.c_stride = p.n;
    tile.k = ks.size();
    tile.accumulate = p.accumulate || ks.begin > 0;
    tile.apart = apart;
    tile.stream = p.packed && here.size() == rows.size() && tiles == 1;
    // Laying out X waits for memory, the tiles do not: the last of them each prefetch one of the rows that come next.
    std::int64_t tiles_left = tiles * ceil_div(block.size(), panel);
    // What a tile reads ahead of its turn: the next panel of W, spread evenly over the tiles of this one (in bursts it would fill the queue
    // to DRAM: 256x576x2304 on cold weights 0.89 instead of 0.915).
    const std::int64_t panel_bytes = ks.size() * panel * 4, prefetches = std::max<std::int64_t>(1, ks.size() / 4 * 2);
    const std::int64_t ahead_step = std::min(kLine, ceil_div(panel_bytes, tiles * prefetches));
    for (std::int64_t c = block.begin; c < block.end; c += panel) {
      tile.columns = std::min(panel, block.end - c);
      // Ranges and blocks begin at panels, so only the matrix' last panel is narrower.
      tile.b = p.packed ? w + c * p.k + ks.begin * tile.columns : w_block + (c - block.begin) * ks.size();
      const char* const next = reinterpret_cast<const char*>(p.packed ? w + (c + panel) * p.k + ks.begin * panel : tile.b + panel * ks.size());
      const std::int64_t next_bytes = c + panel < block.end ? panel_bytes : 0;
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
        kernel.tile(tile);
      }
    }
  }

  // F32Blocks::x_stays: every few panels of W, laid out in L2, pass by many rows of X, which are laid out the first time.
  void run_past_x() const {
    for (std::int64_t k0 = 0; k0 < p.k; k0 += blocks.k) {
      const Range ks{k0, std::min(p.k, k0 + blocks.k)};
      for (std::int64_t r0 = rows.begin; r0 < rows.end; r0 += blocks.rows) {
        const Range here{r0, std::min(rows.end, r0 + blocks.rows)};
        const int tiles = static_cast<int>(ceil_div(here.size(), kernel.full.rows));
        if (p.transpose_x) lay_out_x(ks, here, tiles);
        for (std::int64_t c0 = columns.begin; c0 < columns.end; c0 += blocks.columns) {
          const Range block{c0, std::min(columns.end, c0 + blocks.columns)};
          lay_out_w(ks, block);
          pass(ks, block, here, tiles, c0 == columns.begin && !p.transpose_x, lines_of_w(ks, {block.end, std::min(columns.end, block.end + blocks.columns)}));
        }
      }
    }
  }

  // Plain W, to be prefetched line by line.
  struct Lines {
    const char* row;
    std::int64_t stride, row_bytes, rows, at = 0;
    std::int64_t count() const { return rows * ceil_div(row_bytes, kLine); }
    void prefetch(std::int64_t lines) {
      for (; lines > 0 && rows > 0; --lines) {
        __builtin_prefetch(row + at, 0, 2);
        at += kLine;
        if (at < row_bytes) continue;
        at = 0;
        row += stride;
        --rows;
      }
    }
  };
  Lines lines_of_w(Range ks, Range block) const {
    if (p.transpose_w) return {reinterpret_cast<const char*>(w + block.begin * p.k + ks.begin), p.k * 4, ks.size() * 4, block.size()};
    return {reinterpret_cast<const char*>(w + ks.begin * p.n + block.begin), p.n * 4, block.size() * 4, block.size() > 0 ? ks.size() : 0};
  }

  void pass(Range ks, Range block, Range here, int tiles, bool lay_out, Lines next_w) const {
    const std::int64_t panel = kernel.full.columns, panels = ceil_div(block.size(), panel), prefetches = std::max<std::int64_t>(1, ks.size() / 4 * 2);
    constexpr std::int64_t kMost = 16;  // misses that one core can have outstanding, beside what tiles prefetch
    const std::int64_t lines = std::min(kMost, ceil_div(next_w.count(), tiles * panels));
    F32Tile tile;
    tile.c_stride = p.n;
    tile.k = ks.size();
    tile.accumulate = p.accumulate || ks.begin > 0;
    tile.apart = apart;
    for (int i = 0; i < tiles; ++i) {
      const Range r = part(here.size(), tiles, i, 1), next = i + 1 < tiles ? part(here.size(), tiles, i + 1, 1) : Range{};
      float* const a = x_block + r.begin * ks.size();
      if (lay_out) kernel.transpose(x + (here.begin + r.begin) * p.k + ks.begin, p.k, r.size(), ks.size(), a, r.size());
      tile.rows = r.size();
      tile.a = a;
      const std::int64_t next_bytes = next.size() * ks.size() * 4, step = std::min(kLine, ceil_div(next_bytes, panels * prefetches));
      for (std::int64_t j = 0; j < panels; ++j) {
        const std::int64_t c = block.begin + j * panel;
        tile.columns = std::min(panel, block.end - c);
        tile.b = w_block + (c - block.begin) * ks.size();
        tile.c = y + (here.begin + r.begin) * p.n + c;
        tile.bias = bias != nullptr && ks.begin == 0 ? bias + c : nullptr;
        // The tile of X that comes next: two of its plain rows, or its share of what is laid out.
        const std::int64_t ahead = j * prefetches * step;
        const bool some = lay_out ? 2 * j + 1 < next.size() : ahead < next_bytes;
        const float* const row = x + (here.begin + next.begin + 2 * j) * p.k + ks.begin;
        tile.row_ahead = lay_out && 2 * j < next.size() ? row : a;
        tile.ahead = !some ? reinterpret_cast<const char*>(a) : lay_out ? reinterpret_cast<const char*>(row + p.k) : reinterpret_cast<const char*>(a + r.size() * ks.size()) + ahead;
        tile.ahead_step = !some ? 0 : lay_out ? 8 : step;
        next_w.prefetch(lines);
        kernel.tile(tile);
      }
    }
  }
};

std::int64_t x_block_floats(const F32Blocks& b) { return round_up(b.rows * b.k, kLineFloats); }
std::int64_t w_block_floats(const F32Product& p, const F32Blocks& b) { return p.packed ? 0 : round_up(b.k * b.columns, kLineFloats); }
#endif

}  // namespace

bool f32_has_tiles(Isa level) { return level >= Isa::kAvx2; }

F32Blocks f32_blocks(const F32Product& p) {
  const Kernels& kernel = kernels(p.level);
  const std::int64_t panel = kernel.full.columns;
  // Blocks of rows: beside the next rows of X and two panels of W they stay in an L2 of 1 MiB; yet a few hundred rows are one or two blocks,
  // or cold weights are read once more for each. 2-core EPYC (family 26), two threads, weights from DRAM, fraction of the FMA probe:
  // 2048x576x2304 in blocks of 112 rows 0.94, of 224 0.93, of 56 0.94; 256x576x2304 in 64 0.92, in 43 0.89; 256x1728x576 in 128 0.935, in 43 0.89.
  constexpr std::int64_t kWBytes = 4 << 20;
  const std::int64_t x_bytes = std::clamp<std::int64_t>(cpu_info().l2_bytes / 2, 128 << 10, 512 << 10);
  F32Blocks blocks;
  const std::int64_t parts = ceil_div(p.k, kernel.longest_k);
  blocks.k = std::min(p.k, round_up(ceil_div(p.k, parts), 4));
  // The grid whose largest part is smallest.
  double best = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kSerial = 1 << 17;  // multiply-adds that one thread does while another is being called
  const int threads = p.m * p.n * p.k < kSerial ? 1 : p.threads;
  for (int rows = 1; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    const int columns = threads / rows;
    const auto most_rows = static_cast<double>(ceil_div(p.m, rows));
    const auto most_columns = static_cast<double>(std::min(p.n, ceil_div(ceil_div(p.n, panel), columns) * panel));
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
  blocks.rows = std::min(ceil_div(p.m, blocks.row_parts), std::max(kernel.full.rows, x_bytes / 4 / blocks.k / kernel.full.rows * kernel.full.rows));
  blocks.x_stays = !p.packed && p.level == Isa::kAvx2;
  if (blocks.x_stays) {
    // One thread, fraction of the FMA probe: 256x2304x576 in panels that fill 128 KiB of an L2 of 512 0.89, 256 KiB 0.87, the other order 0.81; 2048 rows 0.93, 0.915, 0.92.
    constexpr std::int64_t kManyBytes = 6 << 20;
    blocks.rows = std::min(ceil_div(p.m, blocks.row_parts), std::max(kernel.full.rows, kManyBytes / 4 / blocks.k / kernel.full.rows * kernel.full.rows));
    blocks.columns = std::min(round_up(p.n, panel), std::max(panel, x_bytes / 2 / 4 / blocks.k / panel * panel));
    return blocks;
  }
  // Plain weights: as many columns as one thread gets, while what is laid out stays near.
  const std::int64_t each = ceil_div(ceil_div(p.n, panel), blocks.column_parts) * panel;
  blocks.columns = p.packed ? p.n : std::min(each, std::max(panel, kWBytes / 4 / blocks.k / panel * panel));
  return blocks;
}

#if defined(__x86_64__)

std::int64_t f32_scratch_bytes(const F32Product& p, const F32Blocks& b) {
  const std::int64_t parts = b.row_parts * b.column_parts;
  return parts * (4 * (x_block_floats(b) + w_block_floats(p, b)) + static_cast<std::int64_t>(sizeof(OwnFirst::Stretch)));
}

void f32_pack(const F32Product& p, const float* w, float* packed) {
  const Kernels& kernel = kernels(p.level);
  const std::int64_t columns = kernel.full.columns, panels = ceil_div(p.n, columns);
#pragma omp parallel for schedule(static) num_threads(p.threads)
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t c = panel * columns, width = std::min(columns, p.n - c);
    if (p.transpose_w)
      kernel.transpose(w + c * p.k, p.k, width, p.k, packed + c * p.k, width);
    else
      kernel.copy_rows(w + c, p.n, p.k, width, packed + c * p.k, width);
  }
}

void f32_run(const F32Product& p, const F32Blocks& blocks, const float* x, const float* w, float* y, void* scratch, const float* bias) {
  const std::int64_t x_floats = x_block_floats(blocks), each = x_floats + w_block_floats(p, blocks);
  const int parts = blocks.row_parts * blocks.column_parts;
  const Kernels& kernel = kernels(p.level);
  const bool apart = cpu_info().vendor == "AuthenticAMD";
  const auto run_part = [&](Range rows, Range columns, int thread) {
    float* const mine = static_cast<float*>(scratch) + thread * each;
    if (rows.size() == 0 || columns.size() == 0) return;
    Work{p, kernel, blocks, x, w, y, bias, mine, p.packed ? nullptr : mine + x_floats, rows, columns, apart}.run();
  };
  const Range all_columns{0, p.n};
  // No region for one thread: the runtime would allocate a team where the one before had more.
  if (parts == 1) return run_part({0, p.m}, all_columns, 0);
  // A region may come with fewer threads than asked for: the parts are dealt out.
  if (p.packed && blocks.column_parts == 1) {
    // Block by block of rows, for which X is laid out one by one anyway: a core that something else slows down leaves some of its own to the other. Two threads
    // on a busy 2-core EPYC (family 25), in turn with fixed halves, medians: 1024x3072x768 1.00 to 1.18 of their rate, 1024x768x3072 1.00 to 1.16.
    const std::int64_t pieces = parts * ceil_div(ceil_div(p.m, parts), blocks.rows);
    OwnFirst deal(reinterpret_cast<OwnFirst::Stretch*>(static_cast<float*>(scratch) + parts * each), parts, pieces);
#pragma omp parallel num_threads(parts)
    {
      const int thread = omp_get_thread_num();
      for (std::int64_t i = deal.next(thread); i >= 0; i = deal.next(thread)) run_part(part(p.m, static_cast<int>(pieces), static_cast<int>(i), 1), all_columns, thread);
    }
    return;
  }
#pragma omp parallel num_threads(parts)
  for (int index = omp_get_thread_num(); index < parts; index += omp_get_num_threads())
    run_part(part(p.m, blocks.row_parts, index % blocks.row_parts, 1), part(p.n, blocks.column_parts, index / blocks.row_parts, kernel.full.columns), index);
}

#else

std::int64_t f32_scratch_bytes(const F32Product&, const F32Blocks&) { return 0; }
void f32_pack(const F32Product&, const float*, float*) { throw_internal("the own product was chosen on another processor"); }
void f32_run(const F32Product&, const F32Blocks&, const float*, const float*, float*, void*, const float*) {
  throw_internal("the own product was chosen on another processor");
}

#endif

}  // namespace fathom::cpu

#endif
