// The own f32 product beside what test_gemm.cpp asks of every path: its edges, and sums whose bits depend on nothing but the operands.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <catch2/catch.hpp>
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/gemm_f32.hpp"
#include "kernels/cpu/memory.hpp"

#if FATHOM_CPU

using namespace fathom::cpu;

namespace {

std::vector<float> random_floats(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = uniform(random);
  return values;
}

std::vector<float> transposed(const std::vector<float>& from, std::int64_t rows, std::int64_t columns) {
  std::vector<float> to(from.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[static_cast<std::size_t>(j * rows + i)] = from[static_cast<std::size_t>(i * columns + j)];
  return to;
}

// Y from X[m, k] and W[k, n] in whatever form the product wants them; checks that the scratch was large enough.
std::vector<float> run(const F32Product& p, const F32Blocks& blocks, const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>* bias = nullptr) {
  const std::vector<float> xs = p.transpose_x ? transposed(x, p.m, p.k) : x;
  std::vector<float> ws = p.transpose_w ? transposed(w, p.k, p.n) : w;
  if (p.packed) {
    std::vector<float> packed(ws.size());
    f32_pack(p, ws.data(), packed.data());
    ws = packed;
  }
  const std::int64_t bytes = f32_scratch_bytes(p, blocks);
  Buffer scratch(bytes + 4096);
  std::memset(scratch.data(), 0xff, static_cast<std::size_t>(bytes + 4096));
  std::vector<float> y(static_cast<std::size_t>(p.m * p.n), 0.25f);
  f32_run(p, blocks, xs.data(), ws.data(), y.data(), scratch.data(), bias ? bias->data() : nullptr);
  for (std::int64_t i = 0; i < 4096; ++i) REQUIRE(scratch.as<unsigned char>(bytes)[i] == 0xff);
  return y;
}

// Those that this machine runs.
std::vector<Isa> levels() {
  std::vector<Isa> found;
  for (const Isa level : {Isa::kAvx2, Isa::kAvx512})
    if (level <= isa() && f32_has_tiles(level)) found.push_back(level);
  return found;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) { return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0; }

}  // namespace

TEST_CASE("tiles of every height and panels of every width") {
  // 1 to 15 rows: every tile height, and two or three tiles; 1 to 65 columns: narrow, half and whole vectors, one to five panels.
  for (const Isa level : levels()) {
    for (std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 29}) {
      for (std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 65}) {
        for (std::int64_t k : {1, 3, 4, 9, 40}) {
          for (int layout = 0; layout < 3; ++layout) {  // packed, plain, transposed
            F32Product p;
            p.m = m;
            p.n = n;
            p.k = k;
            p.level = level;
            p.packed = layout == 0;
            p.transpose_w = layout == 2;
            p.transpose_x = (m + n) % 2 == 0;
            p.accumulate = k == 9;
            const std::vector<float> x = random_floats(m * k, 1), w = random_floats(k * n, 2), bias = random_floats(n, 3);
            const std::vector<float> y = run(p, f32_blocks(p), x, w, &bias);
            double worst = 0;
            for (std::int64_t i = 0; i < m; ++i) {
              for (std::int64_t j = 0; j < n; ++j) {
                double sum = bias[static_cast<std::size_t>(j)] + (p.accumulate ? 0.25 : 0.0);
                for (std::int64_t l = 0; l < k; ++l) sum += double(x[static_cast<std::size_t>(i * k + l)]) * w[static_cast<std::size_t>(l * n + j)];
                worst = std::max(worst, std::abs(y[static_cast<std::size_t>(i * n + j)] - sum));
              }
            }
            INFO(isa_name(level) << " m=" << m << " n=" << n << " k=" << k << " layout " << layout);
            CHECK(worst < 1e-5);  // 40 terms below 1 and their roundings of 2^-24 each, sums below 16
          }
        }
      }
    }
  }
}

TEST_CASE("bits depend on the operands only: not on threads, layouts, blocks of rows and columns, or the other rows") {
  for (const Isa level : levels()) {
    F32Product p;
    p.m = 61;
    p.n = 200;
    p.k = 4097;  // several blocks of k, the last one short
    p.level = level;
    const std::vector<float> x = random_floats(p.m * p.k, 4), w = random_floats(p.k * p.n, 5);
    const std::vector<float> expected = run(p, f32_blocks(p), x, w);
    for (int bits = 0; bits < 8; ++bits) {
      for (int threads = 1; threads <= 4; ++threads) {
        F32Product q = p;
        q.packed = bits & 1;
        q.transpose_w = bits & 2;
        q.transpose_x = bits & 4;
        q.threads = threads;
        F32Blocks blocks = f32_blocks(q);
        INFO(isa_name(level) << " bits " << bits << " threads " << threads);
        CHECK(same_bits(run(q, blocks, x, w), expected));
        blocks.rows = 17;
        if (!q.packed) blocks.columns = 64;
        CHECK(same_bits(run(q, blocks, x, w), expected));
        // Either may pass by the other.
        blocks.x_stays = !q.packed && !blocks.x_stays;
        CHECK(same_bits(run(q, blocks, x, w), expected));
      }
    }
    // One row alone.
    F32Product one = p;
    one.m = 1;
    const std::vector<float> last(x.end() - static_cast<std::ptrdiff_t>(p.k), x.end());
    CHECK(same_bits(run(one, f32_blocks(one), last, w), std::vector<float>(expected.end() - static_cast<std::ptrdiff_t>(p.n), expected.end())));
  }
}

TEST_CASE("blocks and the grid of threads") {
  F32Product p;
  p.level = Isa::kAvx512;
  p.m = 2048;
  p.n = 2304;
  p.k = 576;
  p.packed = true;
  p.threads = 2;
  F32Blocks b = f32_blocks(p);
  CHECK(b.k == 576);
  CHECK(b.row_parts * b.column_parts == 2);
  // 3072 = 2 x 1536. The blocks of k depend on nothing but k.
  p.k = 3072;
  b = f32_blocks(p);
  CHECK(b.k == 1536);
  p.m = 5;
  p.threads = 1;
  CHECK(f32_blocks(p).k == 1536);
  // Seven panels of 32 columns cannot be shared by four threads evenly (2 of 7 = 0.29); 100 rows can.
  p = {100, 224, 576, false, false, false, true, 4, Isa::kAvx512};
  b = f32_blocks(p);
  CHECK(b.row_parts == 4);
  CHECK(b.column_parts == 1);
  // One row leaves only columns to share.
  p = {1, 4096, 576, false, false, false, true, 4, Isa::kAvx512};
  CHECK(f32_blocks(p).column_parts == 4);
  // Too little work to wake anyone.
  p = {4, 64, 64, false, false, false, true, 4, Isa::kAvx512};
  CHECK(f32_blocks(p).row_parts * f32_blocks(p).column_parts == 1);
  // Tiles of 16 columns: blocks of k are shorter (a fifth of 3072, rounded up to fours), and half the columns are whole panels: two by two threads cost
  // 50 x 112 + 20 x 50 = 6600, four of rows 28 x 224 + 20 x 25 = 6772, four of columns 100 x 64 + 20 x 100 = 8400.
  p = {100, 224, 3072, false, false, false, true, 4, Isa::kAvx2};
  b = f32_blocks(p);
  CHECK(b.k == 616);
  CHECK(b.row_parts == 2);
  CHECK(b.column_parts == 2);
  CHECK_FALSE(b.x_stays);
  // Plain weights pass in whole panels by rows of X that fill no more than 6 MiB: 2553 rows of 616 floats are the 425 tiles of 6 below that.
  p = {10000, 224, 3072, false, false, false, false, 1, Isa::kAvx2};
  b = f32_blocks(p);
  CHECK(b.x_stays);
  CHECK(b.columns % 16 == 0);
  CHECK(b.rows == 2550);
}

#endif
