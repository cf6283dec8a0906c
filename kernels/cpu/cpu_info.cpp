#include "kernels/cpu/cpu_info.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "lib/error.hpp"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if FATHOM_CPU
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace fathom::cpu {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "2048K" -> 2097152; 0 when unreadable.
std::int64_t parse_cache_size(const std::string& text) {
  std::size_t end = 0;
  std::int64_t value = 0;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])))
    value = value * 10 + (text[end++] - '0');
  if (end < text.size() && text[end] == 'K') value <<= 10;
  if (end < text.size() && text[end] == 'M') value <<= 20;
  return value;
}

void find_topology(CpuInfo& info) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) info.cpus.push_back(cpu);
    }
  }
  if (info.cpus.empty()) info.cpus.push_back(0);
  std::set<std::pair<std::string, std::string>> cores;
  for (const int cpu : info.cpus) {
    const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string core = read_line(base + "core_id");
    if (core.empty()) core = "cpu" + std::to_string(cpu);  // no topology: every logical CPU counts
    cores.emplace(read_line(base + "physical_package_id"), core);
  }
  info.cores = static_cast<int>(cores.size());
  const std::string cache = "/sys/devices/system/cpu/cpu" + std::to_string(info.cpus.front()) + "/cache/index";
  for (int index = 0; index < 8; ++index) {
    const std::string base = cache + std::to_string(index) + "/";
    const std::string level = read_line(base + "level");
    if (level.empty()) break;
    const std::int64_t bytes = parse_cache_size(read_line(base + "size"));
    if (level == "1" && read_line(base + "type") != "Instruction") info.l1d_bytes = bytes;
    if (level == "2") info.l2_bytes = bytes;
    if (level == "3") info.l3_bytes = bytes;
  }
#else
  info.cpus.push_back(0);
#endif
}

#if defined(__x86_64__)

struct CpuidRegs {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidRegs cpuid(unsigned leaf, unsigned subleaf = 0) {
  CpuidRegs r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

std::uint64_t read_xcr0() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

// XTILEDATA is state component 18; the kernel refuses (or does not know the call) where tiles cannot be used.
bool request_amx_permission() {
#if defined(__linux__)
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXtileData) == 0;
#else
  return false;
#endif
}

void find_model(CpuInfo& info) {
  const CpuidRegs id = cpuid(0);
  char vendor[13] = {};
  std::memcpy(vendor, &id.ebx, 4);
  std::memcpy(vendor + 4, &id.edx, 4);
  std::memcpy(vendor + 8, &id.ecx, 4);
  info.vendor = vendor;
  const unsigned version = cpuid(1).eax;
  info.family = static_cast<int>((version >> 8) & 0xf);
  info.model = static_cast<int>((version >> 4) & 0xf);
  info.stepping = static_cast<int>(version & 0xf);
  if (info.family == 0xf || info.family == 6) info.model |= static_cast<int>((version >> 12) & 0xf0);
  if (info.family == 0xf) info.family += static_cast<int>((version >> 20) & 0xff);
  if (__get_cpuid_max(0x80000000u, nullptr) >= 0x80000004u) {
    char brand[49] = {};
    for (unsigned part = 0; part < 3; ++part) {
      const CpuidRegs r = cpuid(0x80000002u + part);
      std::memcpy(brand + 16 * part, &r, 16);
    }
    info.model_name = brand;
    const auto first = info.model_name.find_first_not_of(' ');
    const auto last = info.model_name.find_last_not_of(std::string_view(" \0", 2));
    info.model_name = first == std::string::npos ? "" : info.model_name.substr(first, last - first + 1);
  }
}

void find_isa(CpuInfo& info) {
  const CpuidRegs one = cpuid(1);
  const CpuidRegs seven = cpuid(7);
  const CpuidRegs seven_one = cpuid(7, 1);
  info.hypervisor = (one.ecx >> 31) & 1;
  const bool osxsave = (one.ecx >> 27) & 1;
  const std::uint64_t xcr0 = osxsave ? read_xcr0() : 0;
  const bool os_ymm = (xcr0 & 0x6) == 0x6;
  const bool os_zmm = (xcr0 & 0xe6) == 0xe6;
  const bool os_tiles = (xcr0 & 0x60000) == 0x60000;

  struct Flag {
    const char* name;
    bool found;
  };
  const Flag flags[] = {
      {"sse4_1", ((one.ecx >> 19) & 1) != 0},
      {"avx", os_ymm && ((one.ecx >> 28) & 1)},
      {"f16c", os_ymm && ((one.ecx >> 29) & 1)},
      {"fma", os_ymm && ((one.ecx >> 12) & 1)},
      {"avx2", os_ymm && ((seven.ebx >> 5) & 1)},
      {"avx512f", os_zmm && ((seven.ebx >> 16) & 1)},
      {"avx512dq", os_zmm && ((seven.ebx >> 17) & 1)},
      {"avx512bw", os_zmm && ((seven.ebx >> 30) & 1)},
      {"avx512vl", os_zmm && ((seven.ebx >> 31) & 1)},
      {"avx512_vnni", os_zmm && ((seven.ecx >> 11) & 1)},
      {"avx512_bf16", os_zmm && ((seven_one.eax >> 5) & 1)},
      {"avx512_fp16", os_zmm && ((seven.edx >> 23) & 1)},
      {"amx_tile", os_tiles && ((seven.edx >> 24) & 1)},
      {"amx_bf16", os_tiles && ((seven.edx >> 22) & 1)},
      {"amx_int8", os_tiles && ((seven.edx >> 25) & 1)},
  };
  const auto has = [&](std::string_view name) {
    return std::any_of(std::begin(flags), std::end(flags), [&](const Flag& f) { return f.found && name == f.name; });
  };
  for (const Flag& flag : flags) {
    if (!flag.found) continue;
    if (!info.flags.empty()) info.flags += ' ';
    info.flags += flag.name;
  }
  info.avx512_bf16 = has("avx512_bf16");
  if (has("avx2") && has("fma") && has("f16c")) info.isa = Isa::kAvx2;
  if (info.isa == Isa::kAvx2 && has("avx512f") && has("avx512bw") && has("avx512vl") && has("avx512dq")) {
    info.isa = Isa::kAvx512;
  }
  if (info.isa == Isa::kAvx512 && info.avx512_bf16 && has("amx_tile") && has("amx_bf16") && request_amx_permission()) {
    info.isa = Isa::kAmx;
  }
}

#else

void find_model(CpuInfo&) {}
void find_isa(CpuInfo&) {}

#endif

CpuInfo detect() {
  CpuInfo info;
  find_topology(info);
  find_model(info);
  find_isa(info);
  return info;
}

std::atomic<Isa> isa_cap{Isa::kAmx};

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return "base";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

const CpuInfo& cpu_info() {
  static const CpuInfo info = detect();
  return info;
}

Isa isa() {
  return std::min(cpu_info().isa, isa_cap.load(std::memory_order_relaxed));
}

bool bf16_products(Isa level) {
  if (level == Isa::kAmx) return true;
  const CpuInfo& info = cpu_info();
  const bool capped = isa_cap.load(std::memory_order_relaxed) <= Isa::kAvx512;  // the library's own cap knows no AVX-512 with bf16
  return level == Isa::kAvx512 && info.isa == Isa::kAvx512 && !capped && info.avx512_bf16 && info.vendor == "AuthenticAMD";
}

void cap_isa(Isa level) {
#if FATHOM_CPU && defined(__x86_64__)
  dnnl::cpu_isa limit = dnnl::cpu_isa::all;
  if (level == Isa::kBase) limit = dnnl::cpu_isa::sse41;
  if (level == Isa::kAvx2) limit = dnnl::cpu_isa::avx2;
  if (level == Isa::kAvx512) limit = dnnl::cpu_isa::avx512_core;
  if (level == Isa::kAmx) limit = dnnl::cpu_isa::avx512_core_amx;
  if (dnnl::set_max_cpu_isa(limit) != dnnl::status::success) {
    throw_internal("cap_isa(" + std::string(isa_name(level)) +
                   ") came after oneDNN fixed its instruction set; call it before the first primitive is created");
  }
#endif
  isa_cap.store(level, std::memory_order_relaxed);
}

}  // namespace fathom::cpu
