#include "tools/front_tree.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom {
namespace {

constexpr std::size_t kLeaf = 20;      // groups in a leaf; more are split
constexpr std::size_t kBranches = 4;   // into so many

enum class Order : std::uint8_t { kEqual, kBetter, kWorse, kApart };  // of two points: better where no value is larger and one is smaller

Order compare(const std::vector<double>& a, const std::vector<double>& b) {
  bool better = false, worse = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    better = better || a[i] < b[i];
    worse = worse || a[i] > b[i];
  }
  return better ? (worse ? Order::kApart : Order::kBetter) : worse ? Order::kWorse : Order::kEqual;
}

double distance(const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& scale) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (scale[i] > 0) sum += (a[i] - b[i]) / scale[i] * ((a[i] - b[i]) / scale[i]);
  return sum;
}

}  // namespace

// Entries of equal values are one group; a leaf holds groups, another node children.
struct FrontTree::Node {
  std::vector<double> ideal, nadir;
  std::vector<std::vector<FrontEntry>> groups;
  std::vector<std::unique_ptr<Node>> children;

  bool empty() const { return groups.empty() && children.empty(); }
  void widen(const std::vector<double>& values) {
    if (ideal.empty()) ideal = nadir = values;
    for (std::size_t i = 0; i < values.size(); ++i) ideal[i] = std::min(ideal[i], values[i]), nadir[i] = std::max(nadir[i], values[i]);
  }
  std::vector<double> extent() const {
    std::vector<double> scale(ideal.size());
    for (std::size_t i = 0; i < scale.size(); ++i) scale[i] = nadir[i] - ideal[i];
    return scale;
  }
};

FrontTree::FrontTree() : root_(std::make_unique<Node>()) {}
FrontTree::~FrontTree() = default;
FrontTree::FrontTree(FrontTree&&) noexcept = default;
FrontTree& FrontTree::operator=(FrontTree&&) noexcept = default;

void FrontTree::offer(FrontEntry entry, std::string_view line) {
  if (meet(*root_, entry, line) != Fate::kOpen) return;
  if (root_->empty()) root_ = std::make_unique<Node>();  // with no bounds of what is gone
  entry.line = line;
  std::vector<FrontEntry> group;
  group.push_back(std::move(entry));
  insert(*root_, std::move(group));
}

// Compares the entry with all below the node: it is dominated, or equal to a group (and joins it), or neither, and then what it dominates has been dropped. Nothing is dropped
// where it is dominated itself: what it would drop would have been dominated before.
FrontTree::Fate FrontTree::meet(Node& node, const FrontEntry& entry, std::string_view line) {
  if (node.empty()) return Fate::kOpen;
  const Order with_nadir = compare(entry.values, node.nadir);
  if (with_nadir == Order::kWorse) return Fate::kDominated;
  const Order with_ideal = compare(entry.values, node.ideal);
  if (with_ideal == Order::kBetter) {
    node.groups.clear();
    node.children.clear();
    return Fate::kOpen;
  }
  // Something below may be better only if the ideal is no worse anywhere, and worse only if the nadir is no better anywhere.
  const bool may_lose = with_ideal == Order::kWorse || with_ideal == Order::kEqual, may_win = with_nadir == Order::kBetter || with_nadir == Order::kEqual;
  if (!may_lose && !may_win) return Fate::kOpen;
  for (std::size_t g = 0; g < node.groups.size();) {
    switch (compare(entry.values, node.groups[g].front().values)) {
      case Order::kWorse: return Fate::kDominated;
      case Order::kEqual:
        node.groups[g].push_back(entry);
        node.groups[g].back().line = line;
        return Fate::kEqual;
      case Order::kBetter:
        if (g + 1 != node.groups.size()) std::swap(node.groups[g], node.groups.back());
        node.groups.pop_back();
        break;
      case Order::kApart: ++g; break;
    }
  }
  for (std::size_t c = 0; c < node.children.size();) {
    const Fate fate = meet(*node.children[c], entry, line);
    if (fate != Fate::kOpen) return fate;
    if (node.children[c]->empty()) {
      if (c + 1 != node.children.size()) std::swap(node.children[c], node.children.back());
      node.children.pop_back();
    } else {
      ++c;
    }
  }
  return Fate::kOpen;
}

void FrontTree::insert(Node& node, std::vector<FrontEntry> group) {
  node.widen(group.front().values);
  if (node.children.empty()) {
    node.groups.push_back(std::move(group));
    if (node.groups.size() > kLeaf) split(node);
    return;
  }
  // Into the child whose middle is nearest, measured in the node's own extent.
  const std::vector<double> scale = node.extent();
  Node* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const std::unique_ptr<Node>& child : node.children) {
    std::vector<double> middle(child->ideal.size());
    for (std::size_t i = 0; i < middle.size(); ++i) middle[i] = child->ideal[i] / 2 + child->nadir[i] / 2;
    const double away = distance(group.front().values, middle, scale);
    if (!nearest || away < least) nearest = child.get(), least = away;
  }
  insert(*nearest, std::move(group));
}

// A leaf becomes a node: seeds that lie far apart, and every group with the nearest of them.
void FrontTree::split(Node& node) {
  const std::vector<double> scale = node.extent();
  std::vector<std::size_t> seeds = {0};
  std::vector<double> away(node.groups.size(), std::numeric_limits<double>::infinity());
  while (seeds.size() < kBranches) {
    for (std::size_t g = 0; g < node.groups.size(); ++g) away[g] = std::min(away[g], distance(node.groups[g].front().values, node.groups[seeds.back()].front().values, scale));
    const std::size_t farthest = static_cast<std::size_t>(std::max_element(away.begin(), away.end()) - away.begin());
    if (!(away[farthest] > 0) || !std::isfinite(away[farthest])) break;
    seeds.push_back(farthest);
  }
  if (seeds.size() < 2) return;  // differences that vanish in the extent: it stays a leaf
  std::vector<std::vector<double>> centres;
  for (const std::size_t seed : seeds) centres.push_back(node.groups[seed].front().values);
  std::vector<std::unique_ptr<Node>> children(seeds.size());
  for (std::vector<FrontEntry>& group : node.groups) {
    std::size_t nearest = 0;
    for (std::size_t c = 1; c < centres.size(); ++c)
      if (distance(group.front().values, centres[c], scale) < distance(group.front().values, centres[nearest], scale)) nearest = c;
    if (!children[nearest]) children[nearest] = std::make_unique<Node>();
    children[nearest]->widen(group.front().values);
    children[nearest]->groups.push_back(std::move(group));
  }
  node.groups.clear();
  node.children = std::move(children);
}

void FrontTree::append_to(std::vector<FrontEntry>& entries) const {
  std::vector<const Node*> open = {root_.get()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const auto& group : node->groups) entries.insert(entries.end(), group.begin(), group.end());
    for (const auto& child : node->children) open.push_back(child.get());
  }
}

}  // namespace fathom
