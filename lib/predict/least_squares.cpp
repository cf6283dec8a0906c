// Non-negative least squares of the class fits.
#include <algorithm>
#include <cmath>

#include "lib/predict/calibrate.hpp"

namespace fathom {

std::vector<double> relative_least_squares(const std::vector<std::vector<double>>& rows, const std::vector<double>& y, const std::vector<double>& weights) {
  const size_t terms = rows.empty() ? 0 : rows.front().size();
  std::vector<double> c(terms, 0.0);
  // Normal equations of rows / y against ones, columns scaled to unit length.
  const auto square = [&](size_t i) { return weights.empty() ? 1.0 : weights[i] * weights[i]; };
  std::vector<double> length(terms, 0.0);
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < terms; ++j) length[j] += square(i) * rows[i][j] / y[i] * (rows[i][j] / y[i]);
  for (double& l : length) l = std::sqrt(l);
  std::vector<std::vector<double>> a(terms, std::vector<double>(terms, 0.0));
  std::vector<double> b(terms, 0.0);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < terms; ++j) {
      if (!(length[j] > 0)) continue;
      const double xj = square(i) * rows[i][j] / y[i] / length[j];
      b[j] += xj;
      for (size_t k = 0; k < terms; ++k)
        if (length[k] > 0) a[j][k] += xj * rows[i][k] / y[i] / length[k];
    }
  }
  // Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23: free the term that would help most, solve for the free ones, fix those that turn negative.
  std::vector<bool> free(terms, false);
  const auto solved = [&] {
    std::vector<size_t> at;
    for (size_t j = 0; j < terms; ++j)
      if (free[j]) at.push_back(j);
    const size_t n = at.size();
    std::vector<std::vector<double>> m(n, std::vector<double>(n + 1));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) m[i][j] = a[at[i]][at[j]];
      m[i][i] += 1e-12;  // two terms that say the same
      m[i][n] = b[at[i]];
    }
    for (size_t k = 0; k < n; ++k)  // positive definite: no exchange of rows
      for (size_t i = 0; i < n; ++i) {
        if (i == k) continue;
        const double by = m[i][k] / m[k][k];
        for (size_t j = k; j <= n; ++j) m[i][j] -= by * m[k][j];
      }
    std::vector<double> x(terms, 0.0);
    for (size_t i = 0; i < n; ++i) x[at[i]] = m[i][n] / m[i][i];
    return x;
  };
  for (size_t round = 0; round < 4 * terms; ++round) {
    size_t helps = terms;
    double most = 1e-11;
    for (size_t j = 0; j < terms; ++j) {
      if (free[j] || !(a[j][j] > 0)) continue;
      double gradient = b[j];
      for (size_t k = 0; k < terms; ++k) gradient -= a[j][k] * c[k];
      if (gradient > most) most = gradient, helps = j;
    }
    if (helps == terms) break;
    free[helps] = true;
    for (size_t inner = 0; inner <= terms; ++inner) {
      const std::vector<double> x = solved();
      double step = 1;
      for (size_t j = 0; j < terms; ++j)
        if (free[j] && x[j] <= 0) step = std::min(step, c[j] > x[j] ? c[j] / (c[j] - x[j]) : 0.0);
      for (size_t j = 0; j < terms; ++j) c[j] = free[j] ? c[j] + step * (x[j] - c[j]) : 0.0;
      if (step >= 1) break;
      for (size_t j = 0; j < terms; ++j)
        if (free[j] && c[j] <= 1e-15) free[j] = false, c[j] = 0;
    }
  }
  for (size_t j = 0; j < terms; ++j) c[j] = length[j] > 0 ? c[j] / length[j] : 0;
  return c;
}

}  // namespace fathom
