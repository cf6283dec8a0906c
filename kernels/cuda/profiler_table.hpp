// Profiling across the module boundary: plain data and function pointers, like the rest of kernels/cuda/module.hpp.
//
// The module opens CUPTI when open_activity or open_counters is called and not before. Every function returns false when it fails and then fills
// the message; after a failure everything returns false.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fathom::cuda {

struct ProfilerMessage {
  char message[768] = {};
  char cure[512] = {};
  std::int32_t internal = 0;  // a mistake of fathom, not of the machine
};

struct ProfilerRequest {
  const char* visible_devices = nullptr;  // CUDA_VISIBLE_DEVICES as the user set it; for messages
};

// What tracing gives, sent piece by piece: `user` is what finish_activity was given.
struct TracedOp {
  std::uint64_t op = 0, pass = 0;
  std::int64_t kernels = 0, copies = 0, without_time = 0;
  double kernel_seconds = 0, copy_seconds = 0;
  std::uint64_t copy_bytes = 0;
};
struct TracedPass {
  std::uint64_t pass = 0;
  double busy_seconds = 0, span_seconds = 0, sum_seconds = 0;
};
struct TracedTotals {
  std::int64_t kernels = 0, copies = 0, attributed = 0, unattributed = 0, outside = 0, by_graph_node = 0, no_stamp = 0, reversed = 0, before_launch = 0, failed_calls = 0;
  std::int64_t broken_buffers = 0, cut_tails = 0;
  std::uint64_t dropped = 0;
};
struct TracedOverhead {
  std::uint32_t kind = 0;
  std::int64_t count = 0;
  double seconds = 0;
};
struct ProfilerSink {
  void* user = nullptr;
  void (*op)(void* user, const TracedOp*) = nullptr;
  void (*pass)(void* user, const TracedPass*) = nullptr;
  void (*totals)(void* user, const TracedTotals*) = nullptr;
  void (*overhead)(void* user, const TracedOverhead*) = nullptr;
  // One range of counters: `count` pairs of Counter (cupti_metrics.hpp) and value.
  void (*range)(void* user, const char* name, const std::uint8_t* counters, const double* values, std::size_t count) = nullptr;
  void (*note)(void* user, const char* text) = nullptr;
};

struct ProfilerTable {
  bool (*open_activity)(const ProfilerRequest*, ProfilerMessage*) = nullptr;
  bool (*push)(std::uint64_t op, std::uint64_t pass, ProfilerMessage*) = nullptr;
  bool (*pop)(ProfilerMessage*) = nullptr;
  bool (*finish_activity)(const ProfilerSink*, ProfilerMessage*) = nullptr;

  bool (*open_counters)(const ProfilerRequest*, std::uint8_t metric_set, std::size_t most_ranges, ProfilerMessage*) = nullptr;
  bool (*start_pass)(ProfilerMessage*) = nullptr;
  bool (*push_range)(const char* name, ProfilerMessage*) = nullptr;
  bool (*pop_range)(ProfilerMessage*) = nullptr;
  bool (*stop_pass)(bool* more, ProfilerMessage*) = nullptr;
  bool (*finish_counters)(const ProfilerSink*, ProfilerMessage*) = nullptr;
  const char* (*chip)() = nullptr;  // after open_counters

  bool (*wait)(ProfilerMessage*) = nullptr;  // until the device is idle
  // NVTX ranges, so that vendor tools show op paths. They cost a test and a jump while no tool is attached.
  void (*range_begin)(const char* name) = nullptr;
  void (*range_end)() = nullptr;
};

}  // namespace fathom::cuda
