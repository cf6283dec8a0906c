// A Pareto front over three objectives or more that grows and shrinks as rows come: a tree of boxes.
//
// A node knows bounds of its points in every objective: nothing below it is better than `ideal`, nothing worse than `nadir`. So one comparison decides about whole
// branches: a row that is no better than a nadir anywhere is dominated, a branch whose ideal is no better than the row is. Only boxes that neither decides
// are opened (Jaszkiewicz and Lust, arXiv 1603.04798: the ND-tree). Memory is that of the front.
#pragma once

#include <cstdint>
#include <memory>
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
  FrontTree();
  ~FrontTree();
  FrontTree(FrontTree&&) noexcept;
  FrontTree& operator=(FrontTree&&) noexcept;

  // Takes the entry in, with `line`, unless one that is kept dominates it; drops what it dominates. Entries that are equal in every objective are all kept.
  void offer(FrontEntry entry, std::string_view line);
  // All that are kept, in no order.
  void append_to(std::vector<FrontEntry>& entries) const;

 private:
  struct Node;
  enum class Fate : std::uint8_t { kOpen, kDominated, kEqual };
  static Fate meet(Node& node, const FrontEntry& entry, std::string_view line);
  static void insert(Node& node, std::vector<FrontEntry> group);
  static void split(Node& node);
  std::unique_ptr<Node> root_;
};

}  // namespace fathom
