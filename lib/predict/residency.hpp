// Where an op finds its operands: reuse distances over the program.
//
// The reuse distance of a piece of memory is the number of distinct bytes touched since it was last touched. A cache of capacity C
// serves the share hit(x) = 1 / (1 + (x / C)^4) of accesses at distance x: a step at C, smoothed because replacement is not perfect.
// The program is walked twice, as steps repeat: what the previous step left behind is what this one finds.
#pragma once

#include <array>
#include <vector>

#include "lib/backend.hpp"
#include "lib/machine.hpp"
#include "lib/plan.hpp"
#include "lib/workload.hpp"

namespace fathom {

inline constexpr int kMaxLevels = 6;
using LevelShares = std::array<double, kMaxLevels>;  // share served by each of Machine::levels; sums to 1

// hit(x) of a cache of `capacity` bytes; `sharp`: of a CPU, whose cores touch what lies close together in turn, 1 / (1 + (x / C)^8).
double hit_share(double distance, double capacity, bool sharp = false);
// Bytes between two touches. `copied`: what every thread touches counted once for each, for it takes room in each of the caches that they do not share.
struct ReuseDistance {
  double bytes = 0, copied = 0;
};
// How accesses at one distance divide over the levels: caches that each thread has to itself by `copied`, shared ones by `bytes`.
LevelShares level_shares(const Machine& machine, int threads, const ReuseDistance& distance);

struct Residency {
  double weight_bytes = 0;      // of the op's weight operands (all expert sets), at most what it reads
  LevelShares weights{}, reads{}, writes{};   // reads: every input but the weights
  // What one core takes from another's cache (lib/predict/handover.hpp): shares of the bytes read and written, as if every thread took as much as the one that takes
  // longest. May exceed one: what all threads read comes over once for each that lacks it.
  double fetched_reads = 0, fetched_writes = 0, reclaimed = 0;
  Placement placement = Placement::kUnknown;   // of the cores
};

// Mean over the uses of each op. `plan` null: every tensor instance is its own memory; else pieces of the arena, so that an activation which
// takes the place of a dead one finds it in cache. `bytes_between_ops`: PredictOptions.
PerOp<Residency> residency(const Workload& workload, const Machine& machine, int threads, const MemoryPlan* plan, double bytes_between_ops);

// Exact LRU stack distances of weighted segments in O(log touches) each; exposed for tests.
class ReuseTracker {
 public:
  // Distinct bytes touched since this segment's last touch (its own not counted); infinity on the first. Then marks it touched, by `copies` threads each in whole.
  ReuseDistance touch(std::size_t segment, double bytes, double copies = 1);

 private:
  void add(std::size_t slot, const ReuseDistance& bytes, double sign = 1);
  ReuseDistance sum_to(std::size_t slot) const;  // of slots [0, slot)
  void compact();

  std::vector<ReuseDistance> tree_;        // Fenwick sums over time slots
  std::vector<std::size_t> slot_of_;       // segment -> slot + 1; 0: never
  std::vector<ReuseDistance> bytes_of_;
  std::size_t next_ = 0;
  ReuseDistance total_;
};

}  // namespace fathom
