// What a machine can do, each figure with its source: the second input of every prediction.
//
// A figure is never a bare number: it says whether it was read in a data sheet, probed, fitted or extrapolated, and by what. Figures
// that depend on the number of threads (a CPU's bandwidth is a per-core concurrency limit, not a share of a socket) are stored per thread
// count; a GPU is one device and uses thread count 0. An unknown figure is absent, never zero.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/dtype.hpp"
#include "lib/error.hpp"

namespace fathom {

namespace gpu {
struct GpuModel;
}

// A GPU's fitted model (lib/gpu/gpu_model.hpp), a file of its own beside the machine file: a megabyte of numbers, so it is parsed when a
// calibrated prediction first asks for it. Two machines are compared by their own figures; Machine::hash() covers the fit by its hash.
class GpuFit {
 public:
  GpuFit() = default;
  // `hash` is that of the model which `load` gives.
  GpuFit(std::string hash, std::function<gpu::GpuModel()> load);
  explicit operator bool() const { return state_ != nullptr; }
  const std::string& hash() const;
  const gpu::GpuModel& model() const;  // parses on the first call, from any thread; throws what parsing throws
  friend bool operator==(const GpuFit&, const GpuFit&) { return true; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

enum class Provenance : std::uint8_t { kDatasheet, kProbed, kFitted, kExtrapolated };
std::string_view provenance_name(Provenance provenance);     // "datasheet", "probed", "fitted", "extrapolated"
Provenance parse_provenance(std::string_view text);          // throws an input Error
// The weaker of two: a prediction is as good as its worst input.
Provenance weaker(Provenance a, Provenance b);

// One figure in base units (FLOP/s, B/s, B, s, Hz, or none), with where it comes from.
struct Figure {
  double value = 0;
  Provenance provenance = Provenance::kDatasheet;
  std::string source;
  friend bool operator==(const Figure&, const Figure&) = default;
};

// A figure per thread count; key 0 is the whole device.
using PerThreads = std::map<int, Figure>;

// Dense arithmetic rate of one unit: "fma", "amx", "tensor". `best` is what light uses: the rate at the maximum clock, which no honest
// measurement exceeds; `rate` is what a kernel can hope for (data sheet, or the probed ceiling that has its operands in L2).
struct Peak {
  DType dtype = DType::kF32;
  std::string unit;
  PerThreads rate;
  PerThreads best;
  friend bool operator==(const Peak&, const Peak&) = default;
};

enum class Access : std::uint8_t { kRead, kCopy, kUpdate, kGather };
inline constexpr int kAccesses = 4;
std::string_view access_name(Access access);  // "read", "copy", "update" (in place), "gather" (by row)

// One level of memory, nearest first in Machine::levels; the last one is main memory. Rates count the arrays touched, without
// write-allocate. `capacity` is what holds data in practice; `claimed` (absent: the same) is what the system reports, the bound light uses.
struct MemoryLevel {
  std::string name;      // "L1", "L2", "L3", "DRAM"
  bool shared = true;    // false: capacity is per core
  std::optional<Figure> capacity;
  std::optional<Figure> claimed;
  PerThreads rate[kAccesses];
  friend bool operator==(const MemoryLevel&, const MemoryLevel&) = default;
};

// Measured time of one product Y[rows,n] = X[rows,k] W over rows, interpolated in log rows.
// `variant` tells what else decides the code path: "forward", "tied" (transposed weight), "dx", "dw" and what gemm_variant() adds.
struct GemmCurve {
  DType dtype = DType::kF32;
  std::string variant = "forward";
  int threads = 1;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::int64_t> rows;   // ascending, >= 2 entries
  std::vector<double> seconds;
  Provenance provenance = Provenance::kProbed;
  friend bool operator==(const GemmCurve&, const GemmCurve&) = default;
};

// Fitted coefficients of one op class ("attention", "norm", ...), with the range they hold in and the residuals of held-out points.
struct ClassFit {
  std::string name;
  DType dtype = DType::kF32;
  int threads = 1;
  std::map<std::string, double> coefficients;   // base units; names by lib/predict/class_model.hpp
  std::map<std::string, double> low, high;      // hull of the calibration points per axis; an octave beyond is out of range
  double residual_low = 1, residual_high = 1;   // 10 % and 90 % quantiles of measured / predicted on held-out points
  int points = 0;                               // of which the residuals were taken
  friend bool operator==(const ClassFit&, const ClassFit&) = default;
};

enum class MachineKind : std::uint8_t { kCpu, kGpu };

struct Machine {
  std::string name;         // "h200", "this-machine"
  std::string board;        // one line for people: "NVIDIA H200 SXM 141 GB"
  MachineKind kind = MachineKind::kCpu;
  std::string isa;          // "avx512", "amx", "sm_90": a CPU file of another ISA is refused
  std::string date;         // of probing, "2026-01-31"; data sheets: empty
  std::map<std::string, std::string> software;   // "onednn" -> "2.6.3"

  std::int64_t cores = 0;   // physical cores, or streaming multiprocessors
  std::optional<Figure> clock, clock_max;   // Hz
  std::optional<Figure> memory;             // bytes of main memory

  std::vector<Peak> peaks;
  std::vector<MemoryLevel> levels;

  PerThreads launch;                  // s per op: call overhead, or kernel launch
  PerThreads region;                  // s per parallel region
  std::optional<Figure> exp_element;  // s per exponential and thread
  std::optional<Figure> select_element;  // s per candidate of top-k, one thread
  std::optional<Figure> clock_read;   // s per reading of the clock

  std::map<std::string, double> noise;   // op class -> A/A spread of its bracketed times (0.012 = 1.2 %)
  // Nominal seconds of the reference kernel of each class while this machine was calibrated: bracketed times are ratios to these, so that what
  // was calibrated in one state of a shared machine can be compared with what is measured in another.
  std::map<std::string, double> references;
  std::vector<GemmCurve> gemm_curves;
  std::vector<ClassFit> class_fits;
  GpuFit gpu_fit;   // GPUs that were fitted from measured kernels; absent: bounds only

  friend bool operator==(const Machine&, const Machine&) = default;

  // Thread count to use when 0 is asked for: the largest that was probed; 0 on a GPU.
  int default_threads() const;
  // The peak of this type, or nullptr. On a CPU without a unit for it, kernels compute in f32.
  const Peak* peak(DType dtype) const;
  const MemoryLevel* level(std::string_view name) const;
  // Hash of everything above, 16 hex digits: what a record stores so that "predict first" can be checked.
  std::string hash() const;
};

// The figure for this thread count: exact, else scaled linearly between the neighbours (provenance extrapolated outside them).
// nullopt when the map is empty.
std::optional<Figure> figure_at(const PerThreads& figures, int threads);

// Throws Error(kInput) naming the first figure that a prediction cannot do without, or that contradicts another.
void check_machine(const Machine& machine);

// Rates that are smaller at a larger thread count by more than a tenth ("DRAM read: 21 GB/s at 1 thread, 12 GB/s at 2"): cores were taken away
// while they were probed, and nothing should be predicted from them as they are. Empty: plausible.
std::vector<std::string> falling_rates(const Machine& machine);
// Two probes of one machine: keeps the faster figure of each rate and the smaller of each cost, because a disturbance only ever slows.
void take_faster(Machine& machine, const Machine& again);
// Lifts every falling rate to that of fewer threads (which more threads can always reach) and says so in its source.
void raise_falling_rates(Machine& machine);

}  // namespace fathom
