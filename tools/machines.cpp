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

constexpr std::string_view kCoresTaken = "because cores were taken away";  // raise_falling_rates writes it

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
// nonsense, so the probe is repeated and the faster figures are kept; what still falls is lifted to the rate of fewer threads, which its source says and
// every use repeats (probe_doubts): a busy machine gets a report with a wide error, not none.
Machine probe_here(bool quiet, int threads) {
  Machine machine = probe_once(quiet, threads);
  std::vector<std::string> falling = falling_rates(machine);
  for (int attempt = 2; attempt <= kProbeAttempts && !falling.empty(); ++attempt) {
    if (!quiet) tell(fmt::format("fathom: {}; probing again\n", falling.front()));
    take_faster(machine, probe_once(quiet, threads));
    falling = falling_rates(machine);
  }
  if (!falling.empty()) raise_falling_rates(machine);
  return machine;
}

void set_memory(Machine& machine) {
  if (const std::int64_t bytes = cpu::main_memory_bytes(); bytes > 0) machine.memory = Figure{static_cast<double>(bytes), Provenance::kDatasheet, "reported by the system"};
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
      if (same && !machine.memory) set_memory(machine);  // files of earlier versions do not say
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
  Machine machine = probe_here(quiet, threads);
  if (const std::string doubts = probe_doubts(machine); !doubts.empty()) tell(fmt::format("fathom: warning: {}\n", doubts));
  return machine;
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

std::string probe_doubts(const Machine& machine) {
  constexpr double kWild = 100;  // per cent of spread: beyond, the threads were off their cores most of the time
  int rates = 0, doubtful = 0;
  std::string first;
  const auto look = [&](const std::string& what, const PerThreads& figures) {
    for (const auto& [threads, figure] : figures) {
      if (figure.provenance != Provenance::kProbed) continue;
      ++rates;
      const size_t spread = figure.source.rfind("spread ");
      const bool wild = spread != std::string::npos && std::strtod(figure.source.c_str() + spread + 7, nullptr) > kWild;
      if (!wild && figure.source.find(kCoresTaken) == std::string::npos) continue;
      ++doubtful;
      if (first.empty()) first = fmt::format("{} at {} thread{} ({})", what, threads, threads == 1 ? "" : "s", figure.source);
    }
  };
  for (const Peak& p : machine.peaks) look(fmt::format("{} peak", dtype_name(p.dtype)), p.rate);
  for (const MemoryLevel& l : machine.levels)
    for (int a = 0; a < kAccesses; ++a) look(fmt::format("{} {}", l.name, access_name(static_cast<Access>(a))), l.rate[a]);
  if (doubtful == 0) return {};
  return fmt::format("{} was busy when it was probed ({}): {} of {} rates are not its own, such as {}. Predictions from them may be far off. Probe it again when it is idle: `fathom calibrate`",
                     machine.name == "this-machine" ? "this machine" : machine.name, machine.date, doubtful, rates, first);
}

Machine resolve_machine(const std::string& name, bool quiet, std::vector<RecordNote>* notes) {
  const auto doubted = [&](Machine machine) {
    if (machine.kind != MachineKind::kCpu) return machine;
    if (const std::string doubts = probe_doubts(machine); !doubts.empty()) {
      if (notes) notes->push_back({Note::Severity::kWarning, doubts});
      else if (!quiet) tell(fmt::format("fathom: warning: {}\n", doubts));
    }
    return machine;
  };
  if (!name.empty() && name != "this-machine") return doubted(load_machine(name));
#if FATHOM_CPU
  return doubted(this_machine(quiet));
#else
  throw_input("this build has no CPU backend, so it cannot probe this machine", {"", 0, "--on"}, "name a machine: --on h200 (fathom list machines)");
#endif
}

}  // namespace fathom
