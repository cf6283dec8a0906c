// A Pareto front over three objectives or more that grows and shrinks as rows come: trees of boxes.
//
// A node knows bounds of its points in every objective: nothing below it is better than `ideal`, nothing worse than `nadir`. So one comparison decides about whole
// branches: a row that is no better than a nadir anywhere is dominated, a branch whose ideal is no better than the row is. Only boxes that neither decides are opened.
// The trees are balanced whatever the order of the rows, which in a sweep are sorted by most objectives: new rows are gathered, and trees of 2^k times as many
// rows are built by halving (Bentley and Saxe 1980). Dominated rows are left in place, their text dropped, until less than half of a tree is alive. Memory is that of the front.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

// A row that is kept. Smaller values are better.
struct FrontEntry {
  std::uint64_t row = 0;
  std::vector<double> values;  // by objective
  std::string line;
};

class FrontTree {
 public:
  // Takes the entry in, with `line`, unless one that is kept dominates it; drops what it dominates. Entries that are equal in every objective are all kept.
  void offer(FrontEntry entry, std::string_view line);
  // All that are kept, in no order.
  void append_to(std::vector<FrontEntry>& entries) const;

 private:
  using Group = std::vector<FrontEntry>;  // of equal values
  struct Point {
    std::vector<double> values;
    Group entries;                        // none: dominated
  };
  struct Node {
    std::vector<double> ideal, nadir;
    std::size_t begin = 0, end = 0;       // of its points
    std::size_t behind = 0;               // the node that follows its branch; of a leaf the next one
  };
  struct Tree {
    std::vector<Point> points;
    std::vector<Node> nodes;
    std::size_t alive = 0;
  };
  enum class Fate : std::uint8_t { kOpen, kDominated, kEqual };
  static Fate meet(Tree& tree, const FrontEntry& entry, std::string_view line);
  static Fate meet(Point& point, const FrontEntry& entry, std::string_view line, std::size_t& alive);
  static void build(Tree& tree);
  static void take_alive(Tree& from, std::vector<Point>& into);

  std::vector<Point> fresh_;   // in no tree yet
  std::vector<Tree> trees_;    // by size; empty ones between
};

}  // namespace fathom
