#include "tools/host.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "tools/version.hpp"

#if FATHOM_CPU
#include "kernels/cpu/cpu_info.hpp"
#endif

namespace fathom {
namespace {

// The value of the first line that begins with `name`, as /proc/cpuinfo and /proc/meminfo have it: "name<blanks>: value".
std::string value_of(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    const std::size_t start = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

void set_bytes(Figures& environment, const char* key, std::int64_t bytes) {
  if (bytes > 0) environment.set(key, Cell::count(static_cast<u128>(bytes)));
}

}  // namespace

void set_host_facts(Figures& environment, const std::string& backend, int threads) {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::string cpu = value_of("/proc/cpuinfo", "model name");
#if FATHOM_CPU
  const cpu::CpuInfo& info = cpu::cpu_info();
  cores = info.cores;
  if (cpu.empty()) cpu = info.model_name;
#endif
  if (!cpu.empty()) environment.set("cpu", Cell::text(cpu));
  if (cores > 0) environment.set("cores", Cell::count(static_cast<u128>(cores)));
  const int used = backend == "reference" ? 1 : backend != "cpu" ? 0 : threads > 0 ? threads : cores;
  if (used > 0) environment.set("threads", Cell::count(static_cast<u128>(used)));
  set_bytes(environment, "memory_bytes", std::atoll(value_of("/proc/meminfo", "MemTotal").c_str()) * 1024);  // in kB there
#if FATHOM_CPU
  set_bytes(environment, "cpu_l2_bytes", info.l2_bytes);
  set_bytes(environment, "cpu_l3_bytes", info.l3_bytes);
#endif
  utsname system{};
  if (uname(&system) == 0) environment.set("system", Cell::text(fmt::format("{} {} {}", system.sysname, system.release, system.machine)));
  environment.set("compiler", Cell::text(compiler_text()));
}

}  // namespace fathom
