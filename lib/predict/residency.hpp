// Where an op finds its operands: reuse distances over the program.
//
// The reuse distance of a piece of memory is the number of distinct bytes touched since it was last touched. A cache of capacity C
// serves the share hit(x) = 1 / (1 + (x / C)^4) of accesses at distance x: a step at C, smoothed because replacement is not perfect.
// The program is walked twice, as steps repeat: what the previous step left behind is what this one finds.
#pragma once

#include <array>
#include <vector>

#include "lib/machine.hpp"
#include "lib/plan.hpp"
#include "lib/workload.hpp"

namespace fathom {

inline constexpr int kMaxLevels = 6;
using LevelShares = std::array<double, kMaxLevels>;  // share served by each of Machine::levels; sums to 1

// hit(x) of a cache of `capacity` bytes.
double hit_share(double distance, double capacity);
// How accesses at one distance divide over the levels.
LevelShares level_shares(const Machine& machine, int threads, double distance);

struct Residency {
  double weight_bytes = 0;      // of the op's weight operands (all expert sets), at most what it reads
  LevelShares weights{}, reads{}, writes{};   // reads: every input but the weights
  // Where cores have last caches of their own (lib/predict/handover.hpp): shares of the bytes read and written that come from another core's. May exceed one:
  // what all threads read comes over once for each that lacks it.
  double fetched_reads = 0, fetched_writes = 0, reclaimed = 0;
};

// Mean over the uses of each op. `plan` null: every tensor instance is its own memory; else pieces of the arena, so that an activation which
// takes the place of a dead one finds it in cache. `bytes_between_ops`: PredictOptions.
PerOp<Residency> residency(const Workload& workload, const Machine& machine, int threads, const MemoryPlan* plan, double bytes_between_ops);

// Exact LRU stack distances of weighted segments in O(log touches) each; exposed for tests.
class ReuseTracker {
 public:
  // Distinct bytes touched since this segment's last touch (its own not counted); infinity on the first. Then marks it touched.
  double touch(std::size_t segment, double bytes);

 private:
  void add(std::size_t slot, double bytes);
  double sum_to(std::size_t slot) const;   // of slots [0, slot)
  void compact();

  std::vector<double> tree_;               // Fenwick sums over time slots
  std::vector<std::size_t> slot_of_;       // segment -> slot + 1; 0: never
  std::vector<double> bytes_of_;
  std::size_t next_ = 0;
  double total_ = 0;
};

}  // namespace fathom
