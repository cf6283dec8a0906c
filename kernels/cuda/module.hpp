// The boundary between the program and the CUDA module (libfathom_cuda.so), a library that is opened at run time.
//
// The program never links CUDA: it opens the module, asks its one entry for this table, and calls through it. Only plain data crosses: no
// exception, no standard container, a status and a text buffer instead. Both sides carry the ABI number and a build id (a hash of the headers
// that both compile), so that a module of another build is refused instead of misread. Tests fill the same table with an emulated device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/profiler_table.hpp"
#include "lib/dtype.hpp"

namespace fathom::cuda {

inline constexpr std::uint32_t kModuleAbi = 1;
inline constexpr char kModuleEntry[] = "fathom_cuda_module";

// The driver's version that CUDA 13.0 needs, as cudaDriverGetVersion counts.
inline constexpr int kNeededDriver = 13000;

enum class Status : std::int32_t {
  kOk = 0,
  kNoDriver,     // no libcuda on this machine
  kOldDriver,    // DeviceInfo::driver says which
  kStubDriver,   // the toolkit's stub library was loaded in the driver's place
  kNoDevice,     // a driver, but no GPU that this process may see
  kOldDevice,    // a GPU that the module has no code for
  kOutOfMemory,
  kRefused,      // this shape, type or layout is not done; the text says why
  kFailed,       // the text says what the library said
};

struct Text {
  char text[768] = {};
};

struct DeviceInfo {
  char name[256] = {};
  char uuid[48] = {};
  std::int32_t major = 0, minor = 0;  // compute capability
  std::int32_t multiprocessors = 0;
  std::int64_t memory_total = 0, memory_free = 0, l2_bytes = 0, shared_per_block = 0;
  std::int64_t clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;  // 0: not told
  std::int32_t ecc = 0;
  std::int32_t driver = 0, runtime = 0, cublaslt = 0;
};

// State of the GPU now, from its management library where that opens. Negative: not told.
struct DeviceState {
  double sm_clock_hz = -1, memory_clock_hz = -1, power_watts = -1, temperature_c = -1;
  std::int64_t throttle_reasons = -1;  // bits of nvmlClocksEventReasons
};

// One matrix product in row-major terms: C[m,n] = op(A)[m,k] op(B)[k,n] + beta C (+ bias[n] in every row). A is stored [m,k], transposed
// [k,m]; B [k,n], transposed [n,k]. Strides are in elements; `batch` products stand batch_* elements apart.
struct Matmul {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int32_t batch = 1;
  std::int64_t batch_a = 0, batch_b = 0, batch_c = 0;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  bool tf32 = false;  // f32 operands rounded to tf32; off unless asked for
  DType type = DType::kF32;    // of A and B
  DType result = DType::kF32;  // of C
  DType bias_type = DType::kF32;
  float beta = 0.0f;
  std::int64_t alignment = 16;  // bytes that the addresses of A, B and C are multiples of
  friend bool operator==(const Matmul&, const Matmul&) = default;
};

// What the library chose for one product, recorded with the measurement.
struct MatmulChoice {
  std::int32_t algorithm = -1, tile = -1, stages = -1, split_k = 0, reduction = 0, swizzle = 0, custom = 0, cluster = -1;
  std::int32_t tile_m = 0, tile_n = 0;  // rows and columns of one tile of C as the library counts it; 0: not known
  float waves = 0;
  std::int64_t workspace = 0;
  std::int32_t candidates = 0;   // how many were offered
  std::int32_t tried = 0;        // how many were timed; 0: the heuristic's first
  float seconds = 0, first_seconds = 0;  // of the chosen and of the heuristic's first, where timed
};

using Device = void;  // of the module
using Event = void;
using Graph = void;

// Queues one kernel family; arguments point into device memory.
struct Kernels {
#define FATHOM_CUDA_MEMBER(name, Args) Status (*name)(Device * device, const Args* args, Text* text) = nullptr;
  FATHOM_CUDA_KERNELS(FATHOM_CUDA_MEMBER)
#undef FATHOM_CUDA_MEMBER
};

// Every function returns a Status (kOk: done) and on anything else fills `text`. Work is queued on the device's one stream.
struct Module {
  std::uint32_t abi = 0;
  std::uint32_t bytes = 0;  // of this struct
  const char* build_id = nullptr;
  const char* architectures = nullptr;  // "80 90 100"

  // Looks for a driver and a device, and describes device 0. Never throws, never crashes without a driver.
  Status (*probe)(DeviceInfo* info, Text* text) = nullptr;
  Status (*open)(Device** device, Text* text) = nullptr;
  void (*close)(Device* device) = nullptr;
  Status (*state)(Device* device, DeviceState* state) = nullptr;

  Status (*allocate)(Device* device, std::int64_t bytes, void** memory, Text* text) = nullptr;
  void (*release)(Device* device, void* memory) = nullptr;
  Status (*memory_free)(Device* device, std::int64_t* bytes, Text* text) = nullptr;
  // Queued after everything before; the host memory may be reused when the call returns. download also waits.
  Status (*upload)(Device* device, void* to, const void* from, std::int64_t bytes, Text* text) = nullptr;
  Status (*download)(Device* device, void* to, const void* from, std::int64_t bytes, Text* text) = nullptr;
  Status (*clear)(Device* device, void* memory, std::int64_t bytes, Text* text) = nullptr;
  Status (*copy)(Device* device, void* to, const void* from, std::int64_t bytes, Text* text) = nullptr;
  Status (*wait)(Device* device, Text* text) = nullptr;

  Status (*make_event)(Device* device, Event** event, Text* text) = nullptr;
  void (*free_event)(Device* device, Event* event) = nullptr;
  Status (*record)(Device* device, Event* event, Text* text) = nullptr;
  Status (*wait_event)(Device* device, Event* event, Text* text) = nullptr;
  Status (*elapsed)(Device* device, Event* from, Event* to, double* seconds, Text* text) = nullptr;
  // Overwrites and reads twice the L2's size, so that what follows finds nothing of its operands there.
  Status (*flush_l2)(Device* device, Text* text) = nullptr;
  // Holds the stream until `release_stream`, or for at most `seconds`: what is queued behind runs without launch gaps.
  Status (*hold_stream)(Device* device, double seconds, Text* text) = nullptr;
  Status (*release_stream)(Device* device, Text* text) = nullptr;

  Status (*begin_capture)(Device* device, Text* text) = nullptr;
  Status (*end_capture)(Device* device, Graph** graph, std::int64_t* nodes, Text* text) = nullptr;
  Status (*abandon_capture)(Device* device, Text* text) = nullptr;
  Status (*launch_graph)(Device* device, Graph* graph, Text* text) = nullptr;
  void (*free_graph)(Device* device, Graph* graph) = nullptr;

  // Finds an algorithm once; `plan` is a small number for matmul(). Equal descriptions share one. tune > 0: times up to that many
  // candidates on memory of its own and keeps the fastest.
  Status (*plan_matmul)(Device* device, const Matmul* product, std::int32_t tune, std::int32_t* plan, MatmulChoice* choice, Text* text) = nullptr;
  Status (*matmul)(Device* device, std::int32_t plan, const void* a, const void* b, void* c, const void* bias, Text* text) = nullptr;

  Kernels kernels;

  const ProfilerTable* profiler = nullptr;  // null: built without the CUPTI headers
};

// The module's one exported function: its table, or null where it does not know this ABI.
using ModuleEntry = const Module* (*)(std::uint32_t abi);

}  // namespace fathom::cuda
