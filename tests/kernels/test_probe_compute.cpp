// The compute probes: plausible against physics (ratios to the probed clock, never absolute times), silent where
// unsupported.
#include <vector>

#include <catch2/catch.hpp>
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/probe_compute.hpp"

#if FATHOM_CPU

using namespace fathom::cpu;

TEST_CASE("rates are summarised by median, best and the p10-p90 spread") {
  // 1..11: median 6, best 11, p10 = 2, p90 = 10 -> spread 8/6.
  const ProbeResult r = summarize_rates({11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6});
  CHECK(r.value == 6);
  CHECK(r.best == 11);
  CHECK(r.spread == Approx(8.0 / 6));
  CHECK(r.samples == 11);
  CHECK(summarize_rates({}).samples == 0);
}

TEST_CASE("probes stay within what the silicon can do") {
  // The clock and the arithmetic are probed at different moments, and turbo moves between them: hence 30 %.
  const ProbeResult clock = probe_clock(20);
  REQUIRE(clock.samples == 20);
  CHECK(clock.best > 0.2e9);
  CHECK(clock.best < 8e9);
  const ProbeResult scalar = probe_scalar(20);
  CHECK(scalar.best / clock.best < 8 * 1.3);  // no x86 core issues more than eight additions a cycle
  const ProbeResult fma = probe_f32_fma(1, 20);
  if (isa() >= Isa::kAvx2) {
    CHECK(fma.samples == 20);
    CHECK(fma.best / clock.best < (isa() >= Isa::kAvx512 ? 64 : 32) * 1.3);  // two FMA units
  } else {
    CHECK(fma.samples == 0);
  }
  const ProbeResult dot = probe_bf16_dot(1, 20);
  if (isa() == Isa::kAvx512 && bf16_products(isa())) {
    CHECK(dot.samples == 20);
    CHECK(dot.best / clock.best < 128 * 1.3);
    CHECK(dot.best > fma.best);  // else products of bf16 would be computed in f32
  } else {
    CHECK(dot.samples == 0);
  }
  const ProbeResult registers = probe_amx_registers(1, 20), l1 = probe_amx_tiles(1, kTilesInL1, 20);
  if (isa() == Isa::kAmx) {
    CHECK(registers.samples == 20);
    CHECK(registers.best / clock.best < 1024 * 1.3);  // one tile multiplication per 16 cycles
    CHECK(l1.best > 0);
    CHECK(l1.best < registers.best * 1.3);
  } else {
    CHECK(registers.samples == 0);
    CHECK(l1.samples == 0);
  }
  StateProbe state;
  CHECK((state.flops_per_second() > 0) == (isa() >= Isa::kAvx2));
}

TEST_CASE("two threads are probed together") {
  if (isa() < Isa::kAvx2) return;
  CHECK(probe_f32_fma(2, 5).samples == 5);
  if (isa() == Isa::kAmx) CHECK(probe_amx_tiles(2, kTilesInL2, 5).samples == 5);
}

#endif
