// What this machine's memory and its small operations cost: bandwidth per access pattern, level and thread count, and the costs
// of exp, an empty parallel region, reading the clock, and top-k. These are the ceilings that vector kernels are held against and
// the inputs of calibration.
//
// Each pattern is probed by itself (an in-place stream is not a copy: no write-allocate). Rates count the arrays touched:
// read 1, copy 2, update 2 (read and write of one), triad 3, streaming copy 2, gather by row 2. Below about 100 MB on large
// server caches a "DRAM" probe measures L3: the full plan uses 512 MiB.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::cpu {

enum class StreamPattern { kRead, kCopy, kUpdate, kTriad, kStreamingCopy, kGatherRows };
std::string_view stream_pattern_name(StreamPattern pattern);

struct CostProbe {
  std::string name;                 // "read", "exp", ...
  std::string unit;                 // "B/s" or "s" (per element, region, call)
  std::int64_t bytes_per_thread = 0;  // working set; 0 where it has no meaning
  int threads = 1;
  double value = 0;                 // median of the samples
  double best = 0;                  // fastest sample
  double spread = 0;                // (third quartile - first quartile) / median
  int samples = 0;
};

struct MemoryProbePlan {
  std::vector<std::int64_t> bytes_per_thread;  // working set of each thread, all arrays together
  std::vector<StreamPattern> patterns;
  std::vector<int> threads;
  double seconds_each = 0.03;  // per probe, at least min_samples samples
  int min_samples = 5;
  std::int64_t gather_row_bytes = 3072;
};

// All patterns at 32 KiB, 1 MiB, 16 MiB and 512 MiB in all, for one and `threads` threads; under 8 s with two threads.
MemoryProbePlan full_memory_plan(int threads);
// Read, copy and update at 1 MiB and 256 MiB in all; under 3 s.
MemoryProbePlan quick_memory_plan(int threads);

// One result per (threads, working set, pattern), in that order. Needs as much memory as the largest working set of all threads.
std::vector<CostProbe> probe_memory(const MemoryProbePlan& plan);

// One stream in memory the caller provides (at least threads * bytes_per_thread bytes, 64-byte aligned, touched).
CostProbe probe_stream(StreamPattern pattern, void* memory, std::int64_t bytes_per_thread, int threads, double seconds, int min_samples,
                         std::int64_t gather_row_bytes = 3072);

// Reading what the thread itself wrote and what another thread wrote, both out of the private caches: medians in B/s, per thread. Where all threads
// share their last cache the two are alike. Else the cores lie on several, whatever the system says (a guest's cores may be moved between two measurements).
struct HandoverProbe {
  double own = 0, other = 0;
  int samples = 0;
  bool apart() const { return other > 0 && own > 1.5 * other; }
};
HandoverProbe probe_handover(int threads);
// The same in some ten microseconds, by how long a line takes to another core and back: within one last cache 50 to 150 ns, between two from 300 ns on.
bool cores_apart(int threads);

CostProbe probe_exp();                  // seconds per element, operands in L1: one load, one exp, one store
CostProbe probe_region(int threads);    // seconds per empty parallel region
CostProbe probe_clock_read();                // seconds per reading of the clock
CostProbe probe_topk(std::int64_t count = 2048, std::int64_t k = 256);  // seconds per call on distinct random scores

}  // namespace fathom::cpu
