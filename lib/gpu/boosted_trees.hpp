// Gradient-boosted regression trees with Huber loss: the residual on top of a physics form (SPEC_PREDICT 9).
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

BoostedTrees fit_trees(const Matrix& x, const std::vector<double>& y, const TreeOptions& options);

}  // namespace fathom::gpu
