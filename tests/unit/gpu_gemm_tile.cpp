// The GEMM tile model: a hand-worked product, reference against fast, and what each input must do.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "lib/error.hpp"
#include "lib/gpu/gemm_tile.hpp"
#include "lib/gpu/physics_fit.hpp"
#include "lib/gpu/table.hpp"

using namespace fathom;
using namespace fathom::gpu;

namespace {

const GpuDevice kRound = {"round", "", 100e12, 1e12, 100, 1e6};

// No pipeline fill, no small-tile loss, no cache, no power: every number below can be done on paper.
GemmParams plain() {
  GemmParams p;
  p.e = 1, p.h = 0, p.p = 0, p.b_eff = 1, p.w = 1, p.r = 1, p.q = 1, p.theta = 0, p.tau = 1, p.l = 1e9, p.c = 1e-3, p.t0 = 1;
  return p;
}

double random_log(std::uint64_t& state, double low, double high) {
  state = mix_hash(state);
  return std::exp(std::log(low) + static_cast<double>(state >> 11) * 0x1p-53 * (std::log(high) - std::log(low)));
}

GemmShape random_shape(std::uint64_t& state) {
  return {std::floor(random_log(state, 1, 40000)), std::floor(random_log(state, 1, 70000)), std::floor(random_log(state, 1, 70000)),
          std::floor(random_log(state, 1, 9))};
}

}  // namespace

// m = n = k = 256 on 100 SMs of 1 TFLOP/s each: tile 64x16 gives 4·16 = 64 blocks, one wave, 2·1024·64·4 = 524,288 FLOP
// per block = 0.524288 us (64x8 needs two waves of half that: a tie, the first in the list is kept; a split of 2 leaves
// 2 < 4 steps of 64). Bytes 3·131,072 = 393,216 at 1 TB/s = 0.393216 us (less a hit share below 1e-8).
// q = 1 adds them: 0.917504 + t0 1 = 1.917504 us.
TEST_CASE("gemm tile model: hand-worked product") {
  const GemmEstimate e = explain_gemm({256, 256, 256}, kRound, plain());
  CHECK(e.tile_m == 64);
  CHECK(e.tile_n == 16);
  CHECK(e.split == 1);
  CHECK(e.blocks == 64);
  CHECK(e.waves == 1);
  CHECK(e.flops == 33554432);
  CHECK(e.compute_s == Approx(0.524288e-6).epsilon(1e-12));
  CHECK(e.memory_s == Approx(0.393216e-6).epsilon(1e-8));
  CHECK(e.seconds == Approx(1.917504e-6).epsilon(1e-8));
  CHECK(std::string(e.binding) == "fixed");
}

// With w = 0 the last wave is not lost: 64x8 pays 128/100 of 0.262144 us = 0.33554432 us and wins.
TEST_CASE("gemm tile model: the wave weight decides the tile") {
  GemmParams p = plain();
  p.w = 0;
  const GemmEstimate e = explain_gemm({256, 256, 256}, kRound, p);
  CHECK(e.tile_n == 8);
  CHECK(e.compute_s == Approx(0.33554432e-6).epsilon(1e-12));
}

// k = 512: a split of 2 has 4 steps of 64 and is admissible, 4 is not (2 steps). m = 64, n = 8: one block of 64x8,
// 8 steps 0.524288 us; split in 2: 0.262144 us + r. With r = 1 it loses, with r = 0.1 it wins.
TEST_CASE("gemm tile model: split of k") {
  GemmParams p = plain();
  CHECK(explain_gemm({64, 8, 512}, kRound, p).split == 1);
  p.r = 0.1;
  const GemmEstimate e = explain_gemm({64, 8, 512}, kRound, p);
  CHECK(e.split == 2);
  CHECK(e.compute_s == Approx(0.262144e-6).epsilon(1e-12));
  CHECK(e.split_s == Approx(0.1e-6));
}

TEST_CASE("gemm tile model: fast and reference agree to 1e-12 on 1e5 random shapes") {
  std::uint64_t state = 5;
  double worst = 0;
  const auto& devices = known_devices();
  for (int i = 0; i < 100000; ++i) {
    const GemmShape shape = random_shape(state);
    const GpuDevice& device = devices[i % devices.size()];
    GemmParams p = gemm_prior(device);
    p.w = random_log(state, 1, 2) - 1;
    p.q = random_log(state, 1, 8);
    const double fast = predict_gemm(shape, device, p), slow = reference_gemm(shape, device, p).seconds;
    worst = std::max(worst, std::abs(fast / slow - 1));
  }
  CHECK(worst < 1e-12);
}

TEST_CASE("gemm tile model: refuses empty products") { CHECK_THROWS_AS(predict_gemm({0, 1, 1}, kRound, plain()), Error); }
