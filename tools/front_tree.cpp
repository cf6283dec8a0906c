#include "tools/front_tree.hpp"

#include <algorithm>
#include <utility>

namespace fathom {
namespace {

constexpr std::size_t kFresh = 32;  // rows that are gathered
constexpr std::size_t kLeaf = 8;

enum class Order : std::uint8_t { kEqual, kBetter, kWorse, kApart };  // of two points: better where no value is larger and one is smaller

Order compare(const std::vector<double>& a, const std::vector<double>& b) {
  bool better = false, worse = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    better = better || a[i] < b[i];
    worse = worse || a[i] > b[i];
  }
  return better ? (worse ? Order::kApart : Order::kBetter) : worse ? Order::kWorse : Order::kEqual;
}

}  // namespace

void FrontTree::offer(FrontEntry entry, std::string_view line) {
  // What is dominated drops nothing: what it would drop would have been dominated before. So nothing has to be taken back.
  std::size_t alive = 0;
  for (Point& point : fresh_)
    if (meet(point, entry, line, alive) != Fate::kOpen) return;
  for (Tree& tree : trees_)
    if (meet(tree, entry, line) != Fate::kOpen) return;
  entry.line = line;
  Point point{entry.values, {}};
  point.entries.push_back(std::move(entry));
  fresh_.push_back(std::move(point));
  for (Tree& tree : trees_) {
    if (2 * tree.alive >= tree.points.size()) continue;
    std::vector<Point> left;
    take_alive(tree, left);
    tree.points = std::move(left);
    build(tree);
  }
  if (fresh_.size() < kFresh) return;
  // As a binary number counts up: the trees below the first free place and the fresh ones make one there.
  Tree gathered{std::move(fresh_), {}, 0};
  fresh_.clear();
  std::vector<Point> all;
  take_alive(gathered, all);
  std::size_t place = 0;
  for (; place < trees_.size() && !trees_[place].points.empty(); ++place) take_alive(trees_[place], all);
  if (place == trees_.size()) trees_.emplace_back();
  trees_[place].points = std::move(all);
  build(trees_[place]);
}

// Compares the entry with one point: it is dominated, or equal and joins it, or neither, and then a point that it dominates has been dropped.
FrontTree::Fate FrontTree::meet(Point& point, const FrontEntry& entry, std::string_view line, std::size_t& alive) {
  if (point.entries.empty()) return Fate::kOpen;
  switch (compare(entry.values, point.values)) {
    case Order::kWorse: return Fate::kDominated;
    case Order::kApart: return Fate::kOpen;
    case Order::kBetter:
      Group().swap(point.entries);
      --alive;
      return Fate::kOpen;
    case Order::kEqual: break;
  }
  point.entries.push_back(entry);
  point.entries.back().line = line;
  return Fate::kEqual;
}

// Bounds stay those of the points that were there: what a dropped point dominates, a kept one dominates too.
FrontTree::Fate FrontTree::meet(Tree& tree, const FrontEntry& entry, std::string_view line) {
  for (std::size_t n = 0; n < tree.nodes.size();) {
    const Node& node = tree.nodes[n];
    const Order with_nadir = compare(entry.values, node.nadir);
    if (with_nadir == Order::kWorse) return Fate::kDominated;
    const Order with_ideal = compare(entry.values, node.ideal);
    // Something below may be better only if the ideal is no worse anywhere, and worse only if the nadir is no better anywhere.
    const bool may_lose = with_ideal == Order::kWorse || with_ideal == Order::kEqual, may_win = with_nadir == Order::kBetter || with_nadir == Order::kEqual;
    const bool opens = may_lose || may_win;
    if (opens && node.behind == n + 1)
      for (std::size_t p = node.begin; p < node.end; ++p)
        if (const Fate fate = meet(tree.points[p], entry, line, tree.alive); fate != Fate::kOpen) return fate;
    n = opens ? n + 1 : node.behind;
  }
  return Fate::kOpen;
}

void FrontTree::take_alive(Tree& from, std::vector<Point>& into) {
  for (Point& point : from.points)
    if (!point.entries.empty()) into.push_back(std::move(point));
  from = Tree();
}

void FrontTree::build(Tree& tree) {
  tree.alive = tree.points.size();
  tree.nodes.clear();
  if (tree.points.empty()) return;
  const std::size_t dimensions = tree.points[0].values.size();
  struct Open {
    std::size_t begin, end;
    bool second;
    std::size_t parent;  // of a second child
  };
  std::vector<Open> open = {{0, tree.points.size(), false, 0}};
  while (!open.empty()) {
    const Open here = open.back();
    open.pop_back();
    const std::size_t index = tree.nodes.size();
    if (here.second) tree.nodes[here.parent].behind = index;  // for now: the second child
    Node node{tree.points[here.begin].values, tree.points[here.begin].values, here.begin, here.end, 0};
    for (std::size_t p = here.begin + 1; p < here.end; ++p)
      for (std::size_t i = 0; i < dimensions; ++i) {
        const double value = tree.points[p].values[i];
        node.ideal[i] = std::min(node.ideal[i], value), node.nadir[i] = std::max(node.nadir[i], value);
      }
    const std::size_t count = here.end - here.begin;
    if (count > kLeaf) {
      // Halved along the objective in which it is widest, measured in the extent of the whole tree.
      const Node& whole = tree.nodes.empty() ? node : tree.nodes[0];
      std::size_t widest = 0;
      double most = -1;
      for (std::size_t i = 0; i < dimensions; ++i) {
        const double extent = whole.nadir[i] - whole.ideal[i], share = extent > 0 ? (node.nadir[i] - node.ideal[i]) / extent : 0;
        if (share > most) widest = i, most = share;
      }
      const std::size_t middle = here.begin + count / 2;
      const auto at = [&](std::size_t p) { return tree.points.begin() + static_cast<std::ptrdiff_t>(p); };
      std::nth_element(at(here.begin), at(middle), at(here.end), [widest](const Point& a, const Point& b) { return a.values[widest] < b.values[widest]; });
      open.push_back({middle, here.end, true, index});
      open.push_back({here.begin, middle, false, 0});
    }
    tree.nodes.push_back(std::move(node));
  }
  for (std::size_t n = tree.nodes.size(); n-- > 0;) {
    std::size_t& behind = tree.nodes[n].behind;
    behind = behind == 0 ? n + 1 : tree.nodes[behind].behind;
  }
}

void FrontTree::append_to(std::vector<FrontEntry>& entries) const {
  const auto append = [&](const std::vector<Point>& points) {
    for (const Point& point : points) entries.insert(entries.end(), point.entries.begin(), point.entries.end());
  };
  append(fresh_);
  for (const Tree& tree : trees_) append(tree.points);
}

}  // namespace fathom
