#include "lib/gpu/boosted_trees.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "lib/gpu/table.hpp"

namespace fathom::gpu {
namespace {

struct Bins {
  std::vector<std::vector<double>> edges;         // per feature, ascending; bin = number of edges <= x
  std::vector<std::vector<std::uint8_t>> column;  // [feature][row]
};

// To so many decimals, through text: the shortest form of the result is short, so model files stay small.
double rounded(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return std::strtod(text, nullptr);
}

// A short number in (low, high].
double short_edge(double low, double high) {
  const double middle = low + (high - low) / 2;
  for (int decimals : {1, 2, 3, 5, 8}) {
    const double edge = rounded(middle, decimals);
    if (edge > low && edge <= high) return edge;
  }
  return high;
}

Bins make_bins(const Matrix& x) {
  Bins bins;
  const int rows = x.rows();
  bins.edges.resize(x.columns);
  bins.column.assign(x.columns, std::vector<std::uint8_t>(rows));
  std::vector<double> sorted(rows);
  for (int f = 0; f < x.columns; ++f) {
    for (int i = 0; i < rows; ++i) sorted[i] = x.row(i)[f];
    std::sort(sorted.begin(), sorted.end());
    auto unique = sorted;
    unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
    auto& edges = bins.edges[f];
    constexpr int kMax = 200;
    if (static_cast<int>(unique.size()) <= kMax) {
      for (std::size_t i = 1; i < unique.size(); ++i) edges.push_back(short_edge(unique[i - 1], unique[i]));
    } else {
      for (int b = 1; b < kMax; ++b) {
        const int at = static_cast<int>(static_cast<std::int64_t>(b) * rows / kMax);
        if (at == 0 || sorted[at - 1] == sorted[at]) continue;
        edges.push_back(short_edge(sorted[at - 1], sorted[at]));
      }
    }
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    for (int i = 0; i < rows; ++i)
      bins.column[f][i] = static_cast<std::uint8_t>(std::upper_bound(edges.begin(), edges.end(), x.row(i)[f]) - edges.begin());
  }
  return bins;
}

// Grows one tree over `members` (row indices, reordered in place) on gradients g.
class TreeBuilder {
 public:
  TreeBuilder(const Bins& bins, const std::vector<double>& g, const TreeOptions& options, BoostedTrees& out)
      : bins_(bins), g_(g), options_(options), out_(out) {}

  int grow(std::vector<int>& members, std::size_t begin, std::size_t end, int depth, const std::vector<int>& features) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += g_[members[i]];
    const auto count = static_cast<double>(end - begin);
    const int node = static_cast<int>(out_.nodes.size());
    out_.nodes.emplace_back();
    Split best = depth > 0 ? find(members, begin, end, sum, features) : Split{};
    if (best.feature < 0) {
      const double leaf = options_.learning_rate * sum / (count + options_.l2) / options_.seeds;
      out_.nodes[node].value = std::round(leaf / BoostedTrees::kLeafUnit) * BoostedTrees::kLeafUnit;
      return node;
    }
    const auto& column = bins_.column[best.feature];
    const auto middle = std::stable_partition(members.begin() + static_cast<std::ptrdiff_t>(begin), members.begin() + static_cast<std::ptrdiff_t>(end),
                                              [&](int row) { return column[row] <= best.bin; });
    const auto at = static_cast<std::size_t>(middle - members.begin());
    const int left = grow(members, begin, at, depth - 1, features);
    const int right = grow(members, at, end, depth - 1, features);
    out_.nodes[node] = {best.feature, bins_.edges[best.feature][best.bin], left, right};
    return node;
  }

 private:
  struct Split {
    int feature = -1, bin = 0;
    double gain = 0;
  };

  Split find(const std::vector<int>& members, std::size_t begin, std::size_t end, double sum, const std::vector<int>& features) const {
    Split best;
    const auto count = static_cast<double>(end - begin);
    if (count < 2.0 * options_.min_leaf) return best;
    const double parent = sum * sum / (count + options_.l2);
    std::array<double, 256> sums;
    std::array<int, 256> counts;
    for (int f : features) {
      const std::size_t n_bins = bins_.edges[f].size() + 1;
      if (n_bins < 2) continue;
      std::fill_n(sums.begin(), n_bins, 0.0);
      std::fill_n(counts.begin(), n_bins, 0);
      const auto& column = bins_.column[f];
      for (std::size_t i = begin; i < end; ++i) {
        const int row = members[i];
        sums[column[row]] += g_[row];
        ++counts[column[row]];
      }
      double left_sum = 0;
      int left = 0;
      const int total = static_cast<int>(end - begin);
      for (std::size_t b = 0; b + 1 < n_bins; ++b) {
        left_sum += sums[b];
        left += counts[b];
        if (counts[b] == 0 || left < options_.min_leaf) continue;
        if (total - left < options_.min_leaf) break;
        const double right_sum = sum - left_sum;
        const double gain = left_sum * left_sum / (left + options_.l2) + right_sum * right_sum / (total - left + options_.l2) - parent;
        if (gain > best.gain + 1e-12) best = {f, static_cast<int>(b), gain};
      }
    }
    return best;
  }

  const Bins& bins_;
  const std::vector<double>& g_;
  const TreeOptions& options_;
  BoostedTrees& out_;
};

}  // namespace

double BoostedTrees::predict(const double* x) const {
  double sum = base;
  for (int at : roots) {
    while (nodes[at].feature >= 0) at = x[nodes[at].feature] < nodes[at].value ? nodes[at].left : nodes[at].right;
    sum += nodes[at].value;
  }
  return sum;
}

PackedTrees::PackedTrees(const BoostedTrees& trees) : base_(trees.base), count_(trees.roots.size()) {
  constexpr int kDeepest = 8;
  std::vector<std::vector<double>> edges;
  const auto depth_of = [&](const auto& self, int at) -> int {
    const TreeNode& node = trees.nodes[static_cast<std::size_t>(at)];
    if (node.feature < 0) return 0;
    const auto feature = static_cast<std::size_t>(node.feature);
    if (edges.size() <= feature) edges.resize(feature + 1);
    edges[feature].push_back(node.value);
    return 1 + std::max(self(self, node.left), self(self, node.right));
  };
  for (const int root : trees.roots) depth_ = std::max(depth_, depth_of(depth_of, root));
  bool fits = depth_ <= kDeepest && edges.size() <= 256;
  for (auto& list : edges) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    fits = fits && list.size() < 255;
  }
  if (!fits) {
    plain_ = &trees;
    return;
  }
  for (const auto& list : edges) {
    first_.push_back(static_cast<std::uint32_t>(thresholds_.size()));
    thresholds_.insert(thresholds_.end(), list.begin(), list.end());
  }
  first_.push_back(static_cast<std::uint32_t>(thresholds_.size()));
  const std::size_t padded = (count_ + 7) / 8 * 8, inner = (std::size_t{1} << depth_) - 1;
  nodes_.assign(padded * inner, Node{});
  leaves_.assign(padded * (inner + 1), 0.0);
  for (std::size_t t = 0; t < count_; ++t) {
    const auto place = [&](const auto& self, int from, std::size_t to) -> void {
      const TreeNode& node = trees.nodes[static_cast<std::size_t>(from)];
      if (node.feature < 0) {
        while (to < inner) to = 2 * to + 1;  // an early leaf: the empty nodes below lead left
        leaves_[t * (inner + 1) + to - inner] = node.value;
        return;
      }
      const auto& list = edges[static_cast<std::size_t>(node.feature)];
      const auto rank = std::lower_bound(list.begin(), list.end(), node.value) - list.begin();
      nodes_[t * inner + to] = {static_cast<std::uint8_t>(node.feature), static_cast<std::uint8_t>(rank)};
      self(self, node.left, 2 * to + 1);
      self(self, node.right, 2 * to + 2);
    };
    place(place, trees.roots[t], 0);
  }
}

double PackedTrees::predict(const double* x) const {
  if (plain_) return plain_->predict(x);
  // How many thresholds of each feature are at most x: x < threshold r exactly while that is at most r. Not a number: right everywhere, as in the plain walk.
  std::uint8_t ranks[256];
  ranks[0] = 0;
  for (std::size_t f = 0; f + 1 < first_.size(); ++f) {
    const double* list = thresholds_.data() + first_[f];
    std::size_t left = first_[f + 1] - first_[f], below = 0;
    const double value = x[f];
    while (left > 0) {
      const std::size_t half = left / 2;
      const bool right = !(value < list[below + half]);
      below = right ? below + half + 1 : below;
      left = right ? left - half - 1 : half;
    }
    ranks[f] = static_cast<std::uint8_t>(below);
  }
  const std::size_t inner = (std::size_t{1} << depth_) - 1;
  double sum = base_;
  for (std::size_t t = 0; t < count_; t += 8) {
    const Node* nodes = nodes_.data() + t * inner;
    std::size_t at[8] = {};
    for (int level = 0; level < depth_; ++level)
      for (std::size_t j = 0; j < 8; ++j) {
        const Node node = nodes[j * inner + at[j]];
        at[j] = 2 * at[j] + 1 + static_cast<std::size_t>(ranks[node.feature] > node.rank);
      }
    const double* leaves = leaves_.data() + t * (inner + 1);
    const std::size_t trees = std::min<std::size_t>(8, count_ - t);
    for (std::size_t j = 0; j < trees; ++j) sum += leaves[j * (inner + 1) + at[j] - inner];
  }
  return sum;
}

BoostedTrees fit_trees(const Matrix& x, const std::vector<double>& y, const TreeOptions& options) {
  BoostedTrees model;
  const int rows = x.rows();
  if (rows == 0) return model;
  auto median = y;
  std::nth_element(median.begin(), median.begin() + rows / 2, median.end());
  model.base = rounded(median[rows / 2], 6);
  if (rows < 4 * options.min_leaf) return model;
  const Bins bins = make_bins(x);
  std::vector<double> fitted(rows), g(rows), magnitude(rows);
  std::vector<int> members, features;
  for (int ensemble = 0; ensemble < options.seeds; ++ensemble) {
    std::fill(fitted.begin(), fitted.end(), model.base);
    double delta = 1;
    for (int t = 0; t < options.trees; ++t) {
      if (t % 10 == 0) {
        for (int i = 0; i < rows; ++i) magnitude[i] = std::abs(y[i] - fitted[i]);
        const int at = std::min(rows - 1, static_cast<int>(options.huber_quantile * rows));
        std::nth_element(magnitude.begin(), magnitude.begin() + at, magnitude.end());
        delta = std::max(1e-4, magnitude[at]);
      }
      for (int i = 0; i < rows; ++i) g[i] = std::clamp(y[i] - fitted[i], -delta, delta);
      const std::uint64_t tree_seed = mix_hash(mix_hash(options.seed * 1000003u + static_cast<std::uint64_t>(ensemble)) + static_cast<std::uint64_t>(t));
      auto chosen = [&](std::uint64_t salt, int i, double share) {
        return static_cast<double>(mix_hash(tree_seed ^ mix_hash(salt + static_cast<std::uint64_t>(i))) >> 11) * 0x1p-53 < share;
      };
      members.clear();
      features.clear();
      for (int i = 0; i < rows; ++i)
        if (chosen(1u << 20, i, options.subsample)) members.push_back(i);
      for (int f = 0; f < x.columns; ++f)
        if (chosen(1u << 28, f, options.feature_share)) features.push_back(f);
      if (members.empty() || features.empty()) continue;
      const int root = TreeBuilder(bins, g, options, model).grow(members, 0, members.size(), options.depth, features);
      model.roots.push_back(root);
      for (int i = 0; i < rows; ++i) {
        int at = root;
        const double* row = x.row(i);
        while (model.nodes[at].feature >= 0) at = row[model.nodes[at].feature] < model.nodes[at].value ? model.nodes[at].left : model.nodes[at].right;
        fitted[i] += model.nodes[at].value * options.seeds;
      }
    }
  }
  model.edges = bins.edges;
  return model;
}

}  // namespace fathom::gpu
