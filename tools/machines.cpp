#include "tools/machines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "kernels/cuda_host/loader.hpp"
#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "models/machine_ini.hpp"
#include "reports/save.hpp"
#include "tools/cli.hpp"
#include "tools/terminal.hpp"
#if FATHOM_CPU
#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/probe_machine.hpp"
#endif

namespace fathom {
namespace {

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && cache[0] == '/') return std::filesystem::path(cache) / "fathom";
  if (const char* home = std::getenv("HOME"); home && home[0] == '/') return std::filesystem::path(home) / ".cache" / "fathom";
  return {};
}

#if FATHOM_CPU
constexpr int kProbeAttempts = 3;

Machine probe_once(bool quiet, int threads) {
  Progress progress(quiet);
  const double start = system_clock().now();
  cpu::MachineProbeOptions options;
  options.threads = threads;
  options.progress = [&](double share, std::string_view stage) {
    progress.show(fmt::format("probing this machine ({})", stage), share, system_clock().now() - start);
  };
  return cpu::probe_machine(options);
}

// With other processes on the cores, threads wait for each other and rates at more threads come out below those at fewer. Such a file would predict
// nonsense, so the probe is repeated and the faster figures are kept; what still falls is lifted to the rate of fewer threads, with a warning: a
// busy machine gets a report with a wide error, not none.
Machine probe_here(bool quiet, int threads) {
  Machine machine = probe_once(quiet, threads);
  std::vector<std::string> falling = falling_rates(machine);
  for (int attempt = 2; attempt <= kProbeAttempts && !falling.empty(); ++attempt) {
    if (!quiet) tell(fmt::format("fathom: {}; probing again\n", falling.front()));
    take_faster(machine, probe_once(quiet, threads));
    falling = falling_rates(machine);
  }
  if (falling.empty()) return machine;
  raise_falling_rates(machine);
  tell(fmt::format("fathom: warning: this machine is busy: {} of its probed rates fall when threads are added, such as {}; predictions from it may be far off. Probe it again when it is idle: fathom calibrate\n",
             falling.size(), falling.front()));
  return machine;
}

// The cached file, unless it is missing, unreadable, or of another CPU.
Machine this_machine(bool quiet) {
  const std::string file = this_machine_file();
  const cpu::CpuInfo& info = cpu::cpu_info();
  std::error_code closed;  // a folder that may not be entered has no file for us
  if (!file.empty() && std::filesystem::exists(file, closed)) {
    try {
      Machine machine = read_machine_ini(file);
      const bool same = machine.kind == MachineKind::kCpu && machine.isa == cpu::isa_name(cpu::isa()) && machine.cores == info.cores && machine.board.find(info.model_name) != std::string::npos;
      if (same) return machine;
      if (!quiet) tell(fmt::format("fathom: {} describes another CPU ({}, {}); probing again\n", file, machine.board, machine.isa));
    } catch (const Error& error) {
      if (!quiet) tell(fmt::format("fathom: {}; probing again\n", error.what()));
    }
  }
  Machine machine = probe_here(quiet, 0);
  if (!file.empty()) {
    try {
      save_file(file, write_machine_ini(machine));
    } catch (const Error& error) {  // a read-only home is no reason to fail: the figures are here
      if (!quiet) tell(fmt::format("fathom: the probed machine could not be kept: {}: {}\n  hint: XDG_CACHE_HOME=FOLDER names another folder for it; until then each call probes\n", file, error.message()));
    }
  }
  return machine;
}
#endif

}  // namespace

Machine probe_this_machine(bool quiet, int threads) {
#if FATHOM_CPU
  return probe_here(quiet, threads);
#else
  static_cast<void>(quiet);
  static_cast<void>(threads);
  throw_input("this build has no CPU backend, so it cannot probe this machine", {}, "fit a GPU from tables: --from-table FILE");
#endif
}

std::string this_machine_file() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? std::string() : (folder / "this-machine.ini").string();
}

std::vector<std::pair<std::string, std::string>> list_machine_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const MachineEntry& entry : list_machines()) names.emplace_back(entry.name, entry.board);
  names.emplace_back("this-machine", "the CPU fathom runs on, probed on first use and kept in the cache folder");
  return names;
}

std::vector<std::pair<std::string, std::string>> list_backend_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Backend* each : all_backends()) {
    const Support support = each->available();
    names.emplace_back(std::string(each->name()), support.ok ? each->description() : "unavailable: " + support.reason);
  }
  return names;
}

void check_isa(const Machine& machine) {
#if FATHOM_CPU
  if (machine.kind == MachineKind::kCpu && machine.isa != cpu::isa_name(cpu::isa()))
    throw_input(fmt::format("machine '{}' has instruction set {}, this CPU has {}", machine.name, machine.isa, cpu::isa_name(cpu::isa())), {"", 0, "--on"},
                "leave --on out (this machine is probed), or make a file for this CPU: fathom calibrate --save FILE.ini");
#else
  (void)machine;
#endif
}

std::optional<Machine> this_gpu(bool needed) {
  static_cast<void>(backend("cuda"));  // throws where it is not available
  const std::string board = cuda::probe_device().info.name;
  for (const MachineEntry& entry : list_machines()) {  // "h200" of "NVIDIA H200"
    std::string model = entry.name;
    std::transform(model.begin(), model.end(), model.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (board.find(model) != std::string::npos) return load_machine(entry.name);
  }
  if (needed) throw_input(fmt::format("no machine file describes '{}'", board), {"", 0, "--on"}, "name one: --on FILE or --on h200 (fathom list machines)");
  return std::nullopt;
}

Machine resolve_machine(const std::string& name, bool quiet) {
  if (!name.empty() && name != "this-machine") {
    return load_machine(name);
  }
#if FATHOM_CPU
  return this_machine(quiet);
#else
  (void)quiet;
  throw_input("this build has no CPU backend, so it cannot probe this machine", {"", 0, "--on"}, "name a machine: --on h200 (fathom list machines)");
#endif
}

}  // namespace fathom
