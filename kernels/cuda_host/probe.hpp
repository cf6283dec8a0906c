// What a GPU can do, measured through the module's table: ceilings of products per type, bandwidth per memory level and access, launch cost in a stream and
// in a graph, and designed points of products, attention, vector ops and top-k, from which a machine file and a fitted model are made.
//
// Every time is the device's: calls are queued behind a held stream between two events, so that launch gaps stay out; the median of several samples
// counts. Nothing is timed at its first launch. Contents are random values of both signs: zeros are faster.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda_host/device.hpp"
#include "lib/gpu/table.hpp"
#include "lib/machine.hpp"

namespace fathom::cuda {

// What is measured, and how long. Tests use small ones.
struct ProbePlan {
  std::int64_t stream_bytes = std::int64_t{1} << 30;  // of each of three buffers, at most a fifth of the free memory
  std::vector<std::int64_t> ceilings = {8192, 4096};  // m = n = k of products, bf16; f32 runs the last
  std::vector<std::int64_t> rows = {1, 4, 16, 64, 128, 192, 256, 512, 1024, 2048, 4096, 8192};
  // (n, k) of linear layers between widths of 768 and 8192.
  std::vector<std::pair<std::int64_t, std::int64_t>> layers = {{768, 768},   {3072, 768},  {768, 3072},  {1024, 1024}, {3072, 1024}, {4096, 1024}, {1536, 1536}, {6144, 1536},
                                                               {2048, 2048}, {8192, 2048}, {2048, 8192}, {2560, 2560}, {6144, 4096}, {4096, 4096}, {14336, 4096}, {4096, 14336}};
  struct Heads {
    std::int64_t heads = 0, kv_heads = 0, dim = 0;
  };
  std::vector<Heads> heads = {{12, 12, 64}, {16, 16, 64}, {16, 16, 128}, {32, 8, 128}, {64, 8, 128}};
  std::vector<std::int64_t> lengths = {256, 512, 1024, 2048, 4096, 8192};  // of prefill, with batches 1, 4, 16
  std::vector<std::int64_t> contexts = {512, 2048, 8192, 32768};           // of decode, with batches 1, 8, 64
  std::int64_t vector_width = 4096;
  std::vector<std::int64_t> candidates = {2048, 8192, 32768};              // of top-k
  int launches = 200;
  double seconds = 15;   // for all points together
  int most_calls = 48;   // of one sample: what may wait behind a held stream
  int tune = 8;          // candidates of the ceilings' products
};

// One measurement. `amount` is what one call moves or executes; `unit` "B" or "FLOP", empty where only the time counts.
struct ProbePoint {
  std::string name;    // "copy", "rms_norm", "top-k 8192 of 1"
  std::string where;   // "DRAM", "L2", ""
  double seconds = 0;  // of one call, median
  double spread = 0;   // between quartiles, relative
  int samples = 0;
  double amount = 0;
  std::string unit;
};

struct DeviceProbe {
  Machine machine;
  std::vector<ProbePoint> points;
  std::vector<gpu::TableRow> rows;     // products and attention, in the form of measured tables
  std::vector<std::string> skipped;    // what did not fit into memory, or was refused, with the reason
};

// The name by which tables know this board: "h200"; empty: none of them.
std::string chip_of(const DeviceInfo& info);
// Dense FLOP per clock and multiprocessor of the tensor cores in bf16, and of f32 multiply-adds; 0: not known.
double tensor_flops_per_clock(const DeviceInfo& info);
double fma_flops_per_clock(const DeviceInfo& info);

// `progress` may be null: share done, and what is measured now. Stops early, with what it has, when `stop` says so.
DeviceProbe probe_gpu(std::shared_ptr<OpenDevice> device, const ProbePlan& plan, const std::function<void(double, const std::string&)>& progress = nullptr,
                      const std::function<bool()>& stop = nullptr);

}  // namespace fathom::cuda
