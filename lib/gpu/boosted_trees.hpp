// Gradient-boosted regression trees with Huber loss: the residual on top of a physics form.
//
// Histogram trees on at most 255 quantile bins per feature, row and feature subsampling by a seeded hash, leaf = learning
// rate times the mean clipped residual. Deterministic for given rows, order and seed. Thresholds and leaves are rounded to
// few decimal digits while fitting, so that a model file stays small and holds exactly what is evaluated.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::gpu {

// Rows of equal length, row-major.
struct Matrix {
  int columns = 0;
  std::vector<double> values;
  int rows() const { return columns ? static_cast<int>(values.size()) / columns : 0; }
  const double* row(int i) const { return values.data() + static_cast<std::size_t>(i) * columns; }
};

struct TreeOptions {
  int trees = 300;
  int depth = 5;
  double learning_rate = 0.05;
  double subsample = 0.7;
  double feature_share = 0.5;
  int min_leaf = 5;
  double l2 = 1.0;
  double huber_quantile = 0.95;  // residuals beyond this quantile of |r| count linearly
  int seeds = 1;                 // independent ensembles, averaged
  std::uint64_t seed = 1;
};

// x[feature] < threshold goes left. feature < 0: a leaf with `value`. Children of node i in the same tree are indices
// into `nodes`; a tree's root is roots[t].
struct TreeNode {
  int feature = -1;
  double value = 0;  // threshold (one of edges[feature]) or leaf (a multiple of kLeafUnit)
  int left = 0, right = 0;
};

struct BoostedTrees {
  static constexpr double kLeafUnit = 1e-5;
  double base = 0;
  std::vector<std::vector<double>> edges;  // thresholds per feature, ascending
  std::vector<int> roots;
  std::vector<TreeNode> nodes;

  double predict(const double* x) const;
};

// The same ensemble laid out for speed: complete trees of one depth whose nodes are two bytes, a feature and the rank of its threshold; values are ranked once, then
// trees are walked eight at a time without branches. Answers as BoostedTrees::predict bit for bit.
class PackedTrees {
 public:
  PackedTrees() = default;
  explicit PackedTrees(const BoostedTrees& trees);
  double predict(const double* x) const;

 private:
  struct Node {
    std::uint8_t feature = 0;
    std::uint8_t rank = 255;  // left while fewer thresholds than this, or as many, are at most x; 255: always
  };
  const BoostedTrees* plain_ = nullptr;  // an ensemble that does not fit the layout; must outlive this
  double base_ = 0;
  int depth_ = 0;
  std::size_t count_ = 0;                // trees, then empty ones up to a multiple of eight
  std::vector<Node> nodes_;              // (2^depth - 1) per tree, children of i at 2 i + 1 and 2 i + 2
  std::vector<double> leaves_;           // 2^depth per tree
  std::vector<double> thresholds_;       // ascending, by feature
  std::vector<std::uint32_t> first_;     // of each feature; one more at the end
};

BoostedTrees fit_trees(const Matrix& x, const std::vector<double>& y, const TreeOptions& options);

}  // namespace fathom::gpu
