// What a sweep keeps of all its rows: the Pareto front over some columns, and the best N by one column.
//
// Memory is that of what is kept, and the time of a row grows with what is kept far less than with the rows. Rows arrive in order, and ties are settled by order, so that the result does not depend on threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/front_tree.hpp"
#include "tools/sweep_rows.hpp"

namespace fathom {

// "flops", "max:tokens_per_s", "min:time": a column and the better direction (small is better unless the column is a rate or a yield).
struct Objective {
  std::string key;
  bool maximise = false;
};
std::vector<Objective> parse_objectives(const std::string& text, SweepKind kind);

class SweepFront {
 public:
  using Entry = FrontEntry;

  explicit SweepFront(std::vector<Objective> objectives) : objectives_(std::move(objectives)) {}

  // Takes the row in when nothing kept so far dominates it (as good in every objective, better in one), and drops what it dominates. Rows that are equal in
  // every objective are all kept. `values` as they stand in the columns, in the objectives' order.
  void offer(std::uint64_t row, const std::vector<double>& values, std::string_view line);

  const std::vector<Objective>& objectives() const { return objectives_; }
  // By the first objective, best first; then by the others, then by row.
  std::vector<Entry> sorted() const;

 private:
  void offer_pair(Entry entry, std::string_view line);

  std::vector<Objective> objectives_;
  FrontTree tree_;                                 // of three objectives or more
  std::map<double, std::vector<Entry>> stairs_;    // of one or two: by the first, the second falls; equal rows share a stair
};

class SweepTop {
 public:
  SweepTop(Objective objective, std::size_t count) : objective_(std::move(objective)), count_(count) {}
  void offer(std::uint64_t row, double value, std::string_view line);
  const Objective& objective() const { return objective_; }
  std::vector<SweepFront::Entry> sorted() const;

 private:
  Objective objective_;
  std::size_t count_;
  std::vector<SweepFront::Entry> heap_;  // worst on top
};

}  // namespace fathom
