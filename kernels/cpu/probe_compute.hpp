// Compute ceilings of this machine, measured: what no kernel can exceed, and what a product of matrices can hope for.
//
// Why several: the register rates are the ceilings of the arithmetic units; the AMX rate with tiles loaded from L2 is
// the one a bf16 product really has. On shared machines the latter switches between two states (a neighbour on the same
// core slows loads, not arithmetic), which register probes do not see: so the loop over tiles in L2 doubles as the
// state probe that brackets every timed sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/memory.hpp"

namespace fathom::cpu {

struct ProbeResult {
  double value = 0;   // median over the samples, in the probe's unit (FLOP/s, Hz, operations/s); 0 where not supported
  double best = 0;    // highest sample
  double spread = 0;  // (p90 - p10) / median
  int samples = 0;    // 0: this CPU (or the ISA cap) cannot run it
};

// Median, best and spread of rates.
ProbeResult summarize_rates(std::vector<double> rates);

// Core clock in Hz: a chain of dependent 64-bit multiplications, three cycles each on every x86-64 core of the last
// decade. (The time-stamp counter is not the clock; chains of add-immediate are folded at rename and read too high.)
ProbeResult probe_clock(int samples = 50);
// Integer additions per second from eight independent chains: issue width as left over by neighbours.
ProbeResult probe_scalar(int samples = 50);

// f32 FLOP/s of fused multiply-adds on registers only, on `threads` threads together; AVX-512 or AVX2 by isa().
ProbeResult probe_f32_fma(int threads, int samples = 30);

// bf16 FLOP/s of vdpbf16ps on registers only, where bf16 products are computed by it (bf16_products(), no AMX).
ProbeResult probe_bf16_dot(int threads, int samples = 30);

// AMX bf16 FLOP/s on registers only: six accumulator tiles (four do not hide the latency).
ProbeResult probe_amx_registers(int threads, int samples = 30);

// AMX bf16 FLOP/s of the loop a product runs: 2 x 2 tiles, four tile loads and four multiplications a step, over a
// working set of `bytes` per thread (a multiple of 4 KiB): 16 KiB probes L1, 256 KiB L2.
ProbeResult probe_amx_tiles(int threads, std::int64_t bytes, int samples = 30);
inline constexpr std::int64_t kTilesInL1 = 16 << 10;
inline constexpr std::int64_t kTilesInL2 = 256 << 10;

// The state probe: about 100 us on the calling thread, cheap enough to stand before and after every timed batch. It
// measures what the CPU's matrix products depend on: the AMX loop over tiles in L2, or f32 FMAs where there is no AMX.
class StateProbe {
 public:
  StateProbe();
  double flops_per_second();
  bool uses_amx() const { return amx_; }

 private:
  bool amx_;
  Buffer tiles_;
};

// The ceiling of matrix products on `threads` threads together, one sample of about 0.1 ms per call. For bf16: the AMX loop over tiles in L2, or
// vdpbf16ps in registers, whichever computes products here; else f32 FMAs in registers; 0 without AVX2.
class CeilingProbe {
 public:
  CeilingProbe(int threads, bool bf16);
  double flops_per_second();

 private:
  int threads_;
  bool amx_, dot_;
  std::vector<Buffer> tiles_;
};

}  // namespace fathom::cpu
