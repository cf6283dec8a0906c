// What cores take from each other's caches, of many op lists that differ in sizes alone: the HandoverTracker of lib/predict/residency.cpp, done once per history.
//
// A tensor's memory is touched as a whole, so what a touch hands over, per byte, depends on the touches of that memory alone: which operands they are, how the threads divide
// them, and how densely. Memories that the same operands touch in the same order share a history. It is followed once for each set of divisions and densities, and kept.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lib/predict/handover.hpp"

namespace fathom {

class HandoverProgram {
 public:
  // An operand that has bytes, at the list at hand.
  struct Site {
    std::int32_t op = 0;
    bool write = false;
    Division division = Division::kRows;
    double density = 0;  // touched bytes over the tensor's, at most one
    double bytes = 0;    // of the tensor
    friend bool operator==(const Site&, const Site&) = default;
  };
  struct Touch {
    std::int32_t site = 0;
    std::int32_t point = 0;    // of the reuse distances: index into `cached`
    std::size_t memory = 0;
  };
  // The touches of one op in one layer: those from the one before's end up to `end`.
  struct Use {
    std::int32_t op = 0;
    std::int32_t end = 0;
  };
  // Of all uses of one op.
  struct Sums {
    double fetched_reads = 0, fetched_writes = 0, reclaimed = 0;  // bytes, as Residency has them before they are shares
  };

  HandoverProgram() = default;
  // One round of the program: touches of memory that somebody writes, in order.
  HandoverProgram(const std::vector<Touch>& touches, std::vector<Use> uses);

  // `cached`: by point, the share that is in some cache. `sums`: by op, added to.
  void evaluate(const std::vector<Site>& sites, const std::vector<double>& cached, std::vector<Sums>& sums);

 private:
  using Taken = HandedSides;  // per byte of the memory
  struct Asked {              // what a history's outcome depends on, by site
    Division division;
    double density;
    friend bool operator==(const Asked&, const Asked&) = default;
  };
  struct Known {
    std::vector<Asked> asked;
    std::vector<Taken> taken;  // by touch of one round
  };
  struct History {
    std::vector<std::int32_t> touches;   // sites in order
    std::vector<std::int32_t> distinct;  // sites
    std::vector<Known> known;            // a few; the oldest makes room
    std::size_t oldest = 0;
    std::size_t chosen = 0;              // of known, for the list at hand
    std::int32_t first = 0;              // of taken_
  };
  struct Step {
    std::int32_t site = 0, point = 0, taken = 0;  // index into taken_
  };
  bool choose(History& history, const std::vector<Site>& sites);
  void gather();
  static Known follow(const History& history, const std::vector<Site>& sites, std::vector<Asked> asked);

  std::vector<Step> steps_;
  std::vector<Use> uses_;
  std::vector<History> histories_;
  std::vector<Taken> taken_;
  std::vector<Asked> asked_;
  // Touches that take anything, and the uses that have any: the same from list to list until a history changes.
  std::vector<Step> active_steps_;
  std::vector<Use> active_uses_;
};

}  // namespace fathom
