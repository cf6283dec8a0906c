// What this CPU is and which of our kernels may run on it, found at run time.
//
// Every kernel exists per instruction set (files *_avx2, *_avx512, *_amx) and is entered through isa(), so that one
// binary runs on any x86-64 machine. A CPU flag alone is not enough: the operating system must also save the registers
// (XCR0), and on Linux a process must ask for the AMX tile registers (arch_prctl ARCH_REQ_XCOMP_PERM) before its first
// tile instruction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::cpu {

// Ordered: each level includes the ones before it.
//   kAvx2    AVX2, FMA, F16C
//   kAvx512  AVX-512 F, BW, VL, DQ
//   kAmx     AVX512_BF16, AMX-TILE, AMX-BF16, with the permission to use the tiles
enum class Isa : std::uint8_t { kBase, kAvx2, kAvx512, kAmx };

// "base", "avx2", "avx512", "amx".
std::string_view isa_name(Isa isa);

struct CpuInfo {
  Isa isa = Isa::kBase;    // what the hardware and the operating system allow, without any cap
  std::string vendor;      // "GenuineIntel"
  std::string model_name;  // as the CPU states it; hypervisors shorten it
  int family = 0;
  int model = 0;
  int stepping = 0;
  std::vector<int> cpus;       // logical CPUs in the affinity mask of the process
  int cores = 1;               // physical cores among them: the default thread count
  std::int64_t l1d_bytes = 0;  // per core; 0 where unknown
  std::int64_t l2_bytes = 0;   // per core or core group
  std::int64_t l3_bytes = 0;   // as claimed; a virtual machine often gets far less of it
  bool hypervisor = false;     // runs as a virtual machine
  bool avx512_bf16 = false;    // vdpbf16ps (implied by kAmx, but exists without it)
  std::string flags;           // the flags found, space separated, in a fixed order
};

// Detected once, on first use; thread-safe.
const CpuInfo& cpu_info();

// The level to dispatch on: the lower of the detected one and the cap.
Isa isa();

// Matrix products of bf16 are worth doing in bf16 at this level: by AMX, or by vdpbf16ps where it runs at twice the rate of f32 multiply-adds (AMD from
// Zen 4 on; Intel's without AMX takes twice as long as f32). Elsewhere bf16 operands are computed in f32. False for a level that is only a cap.
bool bf16_products(Isa level);

// Limits isa() and oneDNN's own dispatch to `level`, so that tests reach every path on one machine. oneDNN reads its
// limit once: call this before the first primitive is created. Throws an internal Error when that moment has passed.
void cap_isa(Isa level);

}  // namespace fathom::cpu
