#include "kernels/cpu/probe_machine.hpp"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_info.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/pinned.hpp"
#include "kernels/cpu/probe_compute.hpp"
#include "kernels/cpu/probe_memory.hpp"

namespace fathom::cpu {
namespace {

constexpr double kClockHeadroom = 1.05;          // a clock may rise above what was seen
constexpr std::int64_t kMainMemoryBytes = std::int64_t{384} << 20;  // beyond what caches hold
constexpr std::int64_t kLastCacheBytes = 12 << 20;  // per thread, at most
constexpr double kSecondsEach = 0.03;
constexpr double kWarmUp = 0.3;           // seconds
constexpr double kArithmeticUntil = 17;   // seconds after which no more groups are probed for agreement
constexpr int kMoreRounds = 40;
constexpr std::int64_t kTopKCount = 2048, kTopKKept = 256;

// A disturbed probe (its threads lost their cores, or a neighbour slowed the core) has a median of two states mixed. The ceiling is the undisturbed
// state, so the fastest sample stands for it then, and the source says so.
constexpr double kDisturbed = 0.25;

Figure probed(double value, const std::string& what, int samples, double spread) {
  return {value, Provenance::kProbed, fmt::format("{}, {} samples, spread {:.1f} %", what, samples, 100 * spread)};
}
template <class Result>
Figure probed(const Result& r, const std::string& what, bool rate = true) {
  const bool disturbed = rate ? (r.value) < (1 - kDisturbed) * r.best : r.value > (1 + kDisturbed) * r.best;
  return probed(disturbed ? r.best : r.value, disturbed ? what + ", fastest sample of a disturbed probe" : what, r.samples, r.spread);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Repeats a probe on several threads until its rate scales as it should over one thread's, at most kAttempts times; keeps the fastest.
constexpr int kAttempts = 4;
constexpr double kScaling = 1.4;
template <class Probe>
auto scaled(const Probe& probe, double single, int threads) {
  auto result = probe();
  for (int i = 1; i < kAttempts && threads > 1 && result.value < kScaling * single; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto again = probe();
    if (again.value > result.value) result = again;
  }
  return result;
}

// The least of a few medians, for costs that last microseconds: a neighbour can only add to them.
constexpr int kRepeats = 3;
template <class Probe>
auto least(const Probe& probe) {
  auto result = probe();
  for (int i = 1; i < kRepeats; ++i) {
    const auto again = probe();
    if (again.value < result.value) result = again;
  }
  return result;
}

// A ceiling of the arithmetic, probed in groups of samples (a few milliseconds each) that are spread over all the time the machine is
// probed. A neighbour, a thread that lost its core, a clock not yet risen make whole groups slow, never fast, so the ceiling is the median
// of the fastest group, believed once two more groups come within 2 % of it.
class Ceiling {
 public:
  static constexpr double kAgreement = 0.98;
  static constexpr int kAgreeing = 3;

  Ceiling(std::string what, std::function<ProbeResult()> probe) : what_(std::move(what)), probe_(std::move(probe)) {}
  void round() {
    if (const ProbeResult r = probe_(); r.samples > 0) groups_.push_back(r);
  }
  bool found() const { return !groups_.empty(); }
  double value() const { return fastest().value; }
  double best() const {
    double best = 0;
    for (const ProbeResult& g : groups_) best = std::max(best, g.best);
    return best;
  }
  double spread() const { return fastest().spread; }
  bool settled() const {
    if (groups_.empty()) return true;
    const double wanted = kAgreement * value();
    return std::count_if(groups_.begin(), groups_.end(), [wanted](const ProbeResult& g) { return g.value >= wanted; }) >= kAgreeing;
  }
  Figure figure() const {
    return {value(), Provenance::kProbed,
            fmt::format("{}, median of the fastest of {} groups of {} samples, spread {:.1f} %", what_, groups_.size(), fastest().samples, 100 * spread())};
  }

 private:
  const ProbeResult& fastest() const {
    return *std::max_element(groups_.begin(), groups_.end(), [](const ProbeResult& a, const ProbeResult& b) { return a.value < b.value; });
  }

  std::string what_;
  std::function<ProbeResult()> probe_;
  std::vector<ProbeResult> groups_;
};

class Prober {
 public:
  explicit Prober(const MachineProbeOptions& options) : options_(options), cores_(options.threads > 0 ? options.threads : cpu_info().cores) {
    threads_ = {1};
    if (cores_ >= 8) threads_.push_back(cores_ / 2);
    if (cores_ > 1) threads_.push_back(cores_);
  }

  Machine run() {
    const PinnedThreads pinned(cores_);
    identity();
    stage(0.02, "warming up");
    warm_up();
    prepare_arithmetic();
    stage(0.05, "memory and arithmetic");
    memory();
    stage(0.8, "small costs");
    costs();
    stage(0.9, "arithmetic");
    arithmetic();
    stage(1, "done");
    check_machine(m_);
    return m_;
  }

 private:
  void stage(double share, std::string_view name) const {
    if (options_.progress) options_.progress(share, name);
  }

  void identity() {
    const CpuInfo& info = cpu_info();
    m_.name = "this-machine";
    m_.board = fmt::format("{} (family {} model {}{})", info.model_name, info.family, info.model, info.hypervisor ? ", virtual" : "");
    m_.kind = MachineKind::kCpu;
    m_.isa = isa_name(isa());
    m_.cores = cores_;
    if (const std::int64_t bytes = main_memory_bytes(); bytes > 0) m_.memory = Figure{static_cast<double>(bytes), Provenance::kDatasheet, "reported by the system"};
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm utc{};
    gmtime_r(&now, &utc);
    m_.date = fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
    const dnnl_version_t* version = dnnl_version();
    m_.software["onednn"] = fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
    m_.software["compiler"] = fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
  }

  // A core that was idle needs milliseconds to raise its clock and to power its wide units.
  void warm_up() const {
    for (const double end = now() + kWarmUp; now() < end;) probe_f32_fma(threads_.back(), 20);
  }

  void prepare_arithmetic() {
    clock_.emplace("chain of dependent multiplications", [] { return probe_clock(40); });
    for (const int t : threads_) {
      fma_.emplace_back("fused multiply-adds on registers", [t] { return probe_f32_fma(t, 20); });
      dots_.emplace_back("vdpbf16ps on registers", [t] { return probe_bf16_dot(t, 20); });
      tiles_.emplace_back("AMX, 2 x 2 tiles loaded from L2", [t] { return probe_amx_tiles(t, kTilesInL2, 20); });
      registers_.emplace_back("AMX on registers", [t] { return probe_amx_registers(t, 10); });
    }
  }
  void round() {
    clock_->round();
    for (auto* each : {&fma_, &dots_, &tiles_, &registers_})
      for (Ceiling& ceiling : *each) ceiling.round();
  }
  bool settled() const {
    bool all = clock_->settled();
    for (const auto* each : {&fma_, &dots_, &tiles_})
      for (const Ceiling& ceiling : *each) all = all && ceiling.settled();
    return all;
  }

  // Two threads that do not come near twice one were never undisturbed together.
  bool scales(const std::vector<Ceiling>& ceilings) const {
    for (size_t i = 1; i < ceilings.size(); ++i)
      if (ceilings[i].found() && ceilings[i].value() < kScaling * ceilings[0].value()) return false;
    return true;
  }

  void arithmetic() {
    for (int i = 0; i < kMoreRounds && now() < begin_ + kArithmeticUntil && !(settled() && scales(fma_) && scales(dots_) && scales(tiles_)); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      round();
    }
    m_.clock = clock_->figure();
    m_.clock_max = Figure{clock_->best() * kClockHeadroom, Provenance::kProbed, "fastest sample of the same, 5 % on top"};
    Peak f32{DType::kF32, "fma", {}, {}};
    Peak bf16{DType::kBF16, isa() == Isa::kAmx ? "amx" : "vdpbf16ps", {}, {}};
    for (size_t i = 0; i < threads_.size(); ++i) {
      const int t = threads_[i];
      const auto in_registers = [&](Peak& peak, const Ceiling& ceiling, const char* noise) {
        if (!ceiling.found()) return;
        peak.rate[t] = ceiling.figure();
        peak.best[t] = Figure{std::max(ceiling.best(), ceiling.value() * 1.02) * kClockHeadroom, Provenance::kProbed, "fastest sample of the same, 5 % on top"};
        m_.noise[noise] = std::max(m_.noise[noise], ceiling.spread());
      };
      in_registers(f32, fma_[i], "fma");
      in_registers(bf16, dots_[i], "vdpbf16ps");
      if (const Ceiling& tiles = tiles_[i]; tiles.found()) {
        bf16.rate[t] = tiles.figure();
        bf16.best[t] = Figure{std::max(registers_[i].best(), tiles.best()) * kClockHeadroom, Provenance::kProbed, "AMX on registers, fastest sample, 5 % on top"};
        m_.noise["amx"] = std::max(m_.noise["amx"], tiles.spread());
      }
    }
    if (!f32.rate.empty()) m_.peaks.push_back(f32);
    if (!bf16.rate.empty()) m_.peaks.push_back(bf16);
  }

  void memory() {
    const CpuInfo& info = cpu_info();
    const std::int64_t l1 = info.l1d_bytes > 0 ? info.l1d_bytes : 32 << 10, l2 = info.l2_bytes > 0 ? info.l2_bytes : 1 << 20;
    struct Level {
      const char* name;
      std::int64_t bytes_per_thread;  // 0: kMainMemoryBytes in all
    };
    // Beyond the caches that a core has to itself, and well within the last one: of what is reported a shared host leaves only a part.
    last_cache_bytes_ = std::clamp<std::int64_t>(info.l3_bytes / (4 * std::max(1, cores_)) / 4096 * 4096, std::min(3 * l2, kLastCacheBytes), kLastCacheBytes);
    const std::vector<Level> levels = {{"L1", l1 / 2}, {"L2", l2 / 2}, {"L3", last_cache_bytes_}, {"DRAM", 0}};
    Buffer buffer(std::max(kMainMemoryBytes, last_cache_bytes_ * cores_), cores_);
    double share = 0.1;
    for (const Level& level : levels) {
      MemoryLevel out;
      out.name = level.name;
      for (const int t : threads_) {
        round();
        const std::int64_t each = level.bytes_per_thread > 0 ? level.bytes_per_thread : kMainMemoryBytes / t / 4096 * 4096;
        for (const auto& [pattern, access] : {std::pair{StreamPattern::kRead, Access::kRead}, {StreamPattern::kCopy, Access::kCopy},
                                             {StreamPattern::kUpdate, Access::kUpdate}, {StreamPattern::kGatherRows, Access::kGather}}) {
          PerThreads& rates = out.rate[static_cast<int>(access)];
          const CostProbe r = scaled([&] { return probe_stream(pattern, buffer.data(), each, t, kSecondsEach, 7); }, rates.empty() ? 0.0 : rates.begin()->second.value, t);
          rates[t] = probed(r, fmt::format("{} of {} KiB per thread", r.name, each >> 10));
          if (level.bytes_per_thread == 0) m_.noise["stream"] = std::max(m_.noise["stream"], r.spread);
        }
      }
      m_.levels.push_back(std::move(out));
      stage(share += 0.17, "memory and arithmetic");
    }
    m_.levels[0].shared = m_.levels[1].shared = false;
    m_.levels[0].capacity = Figure{static_cast<double>(l1), Provenance::kDatasheet, "reported by the CPU"};
    m_.levels[1].capacity = Figure{static_cast<double>(l2), Provenance::kDatasheet, "reported by the CPU"};
    last_cache(buffer, static_cast<double>(info.l3_bytes), static_cast<double>(l2) * cores_);
    if (const HandoverProbe handover = probe_handover(cores_); handover.apart()) {
      // Every core a last cache of its own.
      MemoryLevel& last = m_.levels[2];
      last.shared = false;
      for (auto* bytes : {&last.capacity, &last.claimed})
        if (*bytes) (*bytes)->source += fmt::format("; one per core: {:.0f} GB/s where the core wrote, {:.0f} where another did", handover.own / 1e9, handover.other / 1e9);
    }
  }

  // Where reading stops being as fast as in the last cache: the working set that is read at the geometric mean of the two levels.
  void last_cache(Buffer& buffer, double claimed, double private_bytes) {
    MemoryLevel& level = m_.levels[2];
    const int t = threads_.back();
    const double near = level.rate[0].at(t).value, far = m_.levels[3].rate[0].at(t).value;
    if (near < 1.3 * far || claimed <= 0) {
      // No cache beyond the private ones can be told apart: as small as what stands before it.
      level.capacity = Figure{private_bytes, Provenance::kProbed, "reads no faster than main memory"};
      if (claimed > 0) level.claimed = Figure{claimed, Provenance::kDatasheet, "reported by the CPU"};
      return;
    }
    // On a shared host less is held than claimed. Never more: reading round and round a set twice as large still finds a part of it, which a step does not.
    const double middle = std::sqrt(near * far);
    double held = static_cast<double>(last_cache_bytes_) * t, rate = near;
    for (double bytes = held * 1.15; held < claimed && bytes <= static_cast<double>(kMainMemoryBytes); bytes *= 1.15) {
      const auto each = static_cast<std::int64_t>(bytes / t) / 4096 * 4096;
      const double now = probe_stream(StreamPattern::kRead, buffer.data(), each, t, kSecondsEach, 7).best;
      if (now < middle) {
        if (rate > middle && rate > now) held *= std::pow(bytes / held, std::log(rate / middle) / std::log(rate / now));
        break;
      }
      held = bytes;
      rate = now;
    }
    held = std::floor(std::min(held, claimed) / (1 << 20)) * (1 << 20);
    level.capacity = Figure{std::max(held, private_bytes), Provenance::kProbed, "set that is read at a rate halfway to main memory, at most what is reported"};
    level.claimed = Figure{std::max(claimed, level.capacity->value), Provenance::kDatasheet, "reported by the CPU"};
  }

  void costs() {
    const CostProbe exp = least([] { return probe_exp(); });
    m_.exp_element = probed(exp, "exponential of 4096 elements in L1, per element and thread", false);
    const CostProbe topk = least([] { return probe_topk(kTopKCount, kTopKKept); });
    m_.select_element = probed(topk.value / kTopKCount, fmt::format("top {} of {}, per candidate", kTopKKept, kTopKCount), topk.samples, topk.spread);
    m_.clock_read = probed(least([] { return probe_clock_read(); }), "steady clock", false);
    for (const int t : threads_) {
      if (t > 1) m_.region[t] = probed(least([t] { return probe_region(t); }), "empty parallel region", false);
      m_.launch[t] = call(1);  // the region is its own figure
    }
  }

  // A product so small that only the call is left.
  static Figure call(int threads) {
    GemmOptions options;
    options.threads = threads;
    options.pad_rows = false;
    const GemmPlan plan({1, 16, 16}, options);
    Buffer memory(4096 + plan.scratch_bytes());
    float* floats = memory.as<float>();
    std::fill_n(floats, 1024, 0.5f);
    std::vector<double> seconds;
    for (int i = 0; i < 60; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (int j = 0; j < 100; ++j) plan.run(floats, floats + 64, floats + 512, memory.as<std::byte>(4096));
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 100);
    }
    std::sort(seconds.begin(), seconds.end());
    struct {
      double value, best, spread;
      int samples;
    } result = {seconds[30], seconds[3], (seconds[54] - seconds[6]) / seconds[30], 60};
    return probed(result, "library call with nothing to do", false);
  }

  const MachineProbeOptions& options_;
  int cores_;
  std::vector<int> threads_;
  double begin_ = now();
  std::optional<Ceiling> clock_;
  std::vector<Ceiling> fma_, dots_, tiles_, registers_;  // by index into threads_
  std::int64_t last_cache_bytes_ = 0;                    // per thread
  Machine m_;
};

}  // namespace

std::int64_t main_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::int64_t bytes = pages > 0 && page > 0 ? std::int64_t{pages} * page : 0, limit = 0;
  if (std::ifstream file("/sys/fs/cgroup/memory.max"); file >> limit && limit > 0) bytes = bytes > 0 ? std::min(bytes, limit) : limit;
  return bytes;
}

Machine probe_machine(const MachineProbeOptions& options) { return Prober(options).run(); }

}  // namespace fathom::cpu
